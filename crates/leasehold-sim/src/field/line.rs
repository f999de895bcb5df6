//! What a client process tells its parent: one JSON value a line on standard output, each written before what
//! follows.

use std::io::Write;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// One line. Times are nanoseconds of `CLOCK_BOOTTIME`, which all processes of the machine share: true time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Line {
    /// A lock was granted.
    Held {
        /// The hold's number within this process.
        id: u64,
        /// Which of the process's tasks holds.
        task: String,
        /// The lock.
        lock: String,
        /// The attempt's key.
        key: String,
        /// The fencing token.
        token: u64,
        /// The create revision of the key.
        created: i64,
        /// The revision that proved the hold.
        proven: i64,
        /// When the task began to count on it.
        from: u64,
        /// Until when it may count on it if nothing more is heard.
        valid: u64,
    },
    /// A hold was renewed.
    Valid {
        /// The hold.
        id: u64,
        /// The new end.
        until: u64,
    },
    /// A hold is over for its task.
    Ended {
        /// The hold.
        id: u64,
        /// From when on the task did not count on it.
        until: u64,
        /// The cause if it was lost; `None` if it was given up.
        lost: Option<String>,
    },
    /// A write to the resource, which is the parent: it arrives when the line does.
    Write {
        /// Which task writes.
        task: String,
        /// The lock that protects it.
        lock: String,
        /// The writer's token.
        token: u64,
    },
    /// A plain operation is about to be sent.
    Called {
        /// Its number within this process.
        id: u64,
        /// The key.
        key: String,
        /// When.
        at: u64,
        /// What.
        ask: Ask,
    },
    /// The same operation has ended.
    Answered {
        /// Its number.
        id: u64,
        /// When.
        at: u64,
        /// How.
        told: Told,
    },
    /// A check said that a hold is valid although its time was over.
    Overdue {
        /// The hold.
        id: u64,
        /// When the check was asked.
        asked: u64,
        /// Until when the hold was valid.
        until: u64,
    },
    /// Something that no fault explains.
    Surprise {
        /// What it was.
        what: String,
    },
}

/// What a plain operation asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// The value.
    Read,
    /// To write a value.
    Put(String),
    /// To delete the key.
    Delete,
    /// To write `new` if the value is `expected`.
    Swap {
        /// What must be there; `None` if nothing.
        expected: Option<String>,
        /// What is then written.
        new: String,
    },
}

/// How a plain operation ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// A read: the value, or that there is none.
    Value(Option<String>),
    /// A change: whether it was made.
    Done(bool),
    /// It was certainly not carried out.
    Refused,
    /// It may have been carried out, or may still be.
    Unknown,
}

/// Writes a line to the parent, whole, whichever thread writes.
pub fn say(line: &Line) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let text = serde_json::to_string(line).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // A parent that is gone reads nothing; this process is about to be killed.
    let _ = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = Line::Answered { id: 3, at: u64::MAX, told: Told::Value(Some("a\n\"b".into())) };
        let text = serde_json::to_string(&line).unwrap();
        assert!(!text.contains('\n'));
        let back: Line = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{line:?}"));
    }
}
