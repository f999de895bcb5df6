//! Who was inside a lock when: the checker of the promise that there are never two.
//!
//! [`Witness`] sees the tasks of one process, [`WitnessFile`] sees processes, in any language that can append a line.
//! Enter after the lock is granted, leave before it is given up; then any overlap seen is the lock's fault.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::FencingToken;

/// What counts as a token: a [`FencingToken`] or its number.
pub trait AsToken {
    /// Its number.
    fn number(&self) -> u64;
}

impl AsToken for FencingToken {
    fn number(&self) -> u64 {
        self.as_u64()
    }
}

impl AsToken for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

/// Watches over the holders of one lock within a process. A clone is the same witness.
#[derive(Clone, Default, Debug)]
pub struct Witness(Arc<Mutex<Scene>>);

#[derive(Default, Debug)]
struct Scene {
    inside: Vec<Presence>,
    entries: u64,
    highest_exclusive: Option<u64>,
    highest_shared: Option<u64>,
    turns: Vec<(String, u64)>,
}

#[derive(Clone, Debug)]
struct Presence {
    entry: u64,
    who: String,
    /// `None` for an exclusive holder.
    weight: Option<u64>,
}

impl Witness {
    /// A witness that has seen nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The only holder enters.
    ///
    /// # Panics
    /// If anybody is inside, or if the token is not above all earlier ones.
    pub fn enter(&self, who: impl fmt::Display, token: impl AsToken) -> Inside {
        let token = token.number();
        let highest = |scene: &Scene| scene.highest_exclusive.max(scene.highest_shared);
        let inside = self.admit(who.to_string(), None, token, highest, |_| None);
        self.scene().highest_exclusive = Some(token);
        inside
    }

    /// One of several holders enters, such as a reader.
    ///
    /// # Panics
    /// If an exclusive holder is inside, or if the token is not above that of every exclusive holder before.
    pub fn enter_shared(&self, who: impl fmt::Display, token: impl AsToken) -> Inside {
        let token = token.number();
        let inside = self.admit(who.to_string(), Some(0), token, |scene| scene.highest_exclusive, |_| None);
        let mut scene = self.scene();
        scene.highest_shared = scene.highest_shared.max(Some(token));
        drop(scene);
        inside
    }

    /// A holder of `weight` permits of a semaphore of `limit` enters.
    ///
    /// # Panics
    /// If that makes more than the limit, or if an exclusive holder is inside.
    pub fn enter_permit(&self, who: impl fmt::Display, weight: u64, limit: u64) -> Inside {
        let full = |scene: &Scene| {
            let taken: u64 = scene.inside.iter().filter_map(|other| other.weight).sum();
            (taken + weight > limit).then(|| format!("{taken} + {weight} permits of {limit} are taken"))
        };
        self.admit(who.to_string(), Some(weight), 0, |_| None, full)
    }

    fn admit(
        &self,
        who: String,
        weight: Option<u64>,
        token: u64,
        must_exceed: impl Fn(&Scene) -> Option<u64>,
        objection: impl Fn(&Scene) -> Option<String>,
    ) -> Inside {
        let mut scene = self.scene();
        let stranger = scene.inside.iter().find(|other| weight.is_none() || other.weight.is_none());
        let objection = match (stranger, must_exceed(&scene)) {
            (Some(other), _) => Some(format!("{} is inside", other.who)),
            (None, Some(highest)) if token <= highest => {
                Some(format!("a token of {highest} was there before"))
            }
            _ => objection(&scene),
        };
        if let Some(objection) = objection {
            let turns = scene.turns[scene.turns.len().saturating_sub(10)..].to_vec();
            drop(scene);
            panic!("{who} entered with the token {token}, although {objection}; the last turns: {turns:?}");
        }
        let entry = scene.entries;
        scene.entries += 1;
        scene.turns.push((who.clone(), token));
        scene.inside.push(Presence { entry, who, weight });
        drop(scene);
        Inside { scene: self.0.clone(), entry }
    }

    /// How many have entered so far.
    pub fn turns(&self) -> usize {
        self.scene().turns.len()
    }

    /// Who entered so far, in order, with which token.
    pub fn history(&self) -> Vec<(String, u64)> {
        self.scene().turns.clone()
    }

    /// Who is inside.
    pub fn inside(&self) -> Vec<String> {
        self.scene().inside.iter().map(|presence| presence.who.clone()).collect()
    }

    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stay inside. Dropping this leaves: declare it after the guard, so that it goes first.
#[must_use = "dropping this leaves"]
#[derive(Debug)]
pub struct Inside {
    scene: Arc<Mutex<Scene>>,
    entry: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut scene = self.scene.lock().unwrap_or_else(PoisonError::into_inner);
        scene.inside.retain(|presence| presence.entry != self.entry);
    }
}

/// A file in which processes note their turns: a line `begin WHO TOKEN` inside, a line `end WHO TOKEN` before the lock
/// is given up. Each line is appended in one write, so the file has them in the order in which they happened.
///
/// In a mixed fleet all tokens must be plain revisions: [`FencingToken::revision`], `ETCD_LOCK_REV`.
#[derive(Clone, Debug)]
pub struct WitnessFile(PathBuf);

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub who: String,
    /// With which token.
    pub token: u64,
    /// Whether it was seen to end; a killed holder's was not.
    pub ended: bool,
}

impl WitnessFile {
    /// The file at `path`, which need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Notes that a turn begins. `who` has no blanks.
    pub fn begin(&self, who: &str, token: impl AsToken) {
        self.append(&format!("begin {who} {}\n", token.number()));
    }

    /// Notes that a turn ends.
    pub fn end(&self, who: &str, token: impl AsToken) {
        self.append(&format!("end {who} {}\n", token.number()));
    }

    fn append(&self, line: &str) {
        let written = OpenOptions::new().append(true).create(true).open(&self.0);
        let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot append to {}: {error}", self.0.display()));
    }

    /// The turns so far, checked.
    ///
    /// # Panics
    /// If two overlapped, or if a token is not above the one before. A turn without an end is followed by another only
    /// if its holder is named in `killed`.
    pub fn check(&self, killed: &[&str]) -> Vec<Turn> {
        let text = match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.unwrap_or_else(|error| panic!("cannot read {}: {error}", self.0.display())),
        };
        check(&text, killed).unwrap_or_else(|why| panic!("{why}; the whole file:\n{text}"))
    }
}

fn check(text: &str, killed: &[&str]) -> Result<Vec<Turn>, String> {
    let mut turns: Vec<Turn> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |what: &str| format!("line {}, {line:?}: {what}", number + 1);
        let mut words = line.split(' ');
        let (Some(what), Some(who), Some(token), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(at("not of the form `begin WHO TOKEN` or `end WHO TOKEN`"));
        };
        let token: u64 = token.parse().map_err(|_| at("the token is no number"))?;
        let last = turns.last_mut();
        match (what, last) {
            ("begin", Some(last)) if !last.ended && !killed.contains(&last.who.as_str()) => {
                return Err(at(&format!("{} is inside", last.who)));
            }
            ("begin", Some(last)) if last.token >= token => {
                return Err(at(&format!("the token before was {}", last.token)));
            }
            ("begin", _) => turns.push(Turn { who: who.to_owned(), token, ended: false }),
            ("end", Some(last)) if !last.ended && (last.who.as_str(), last.token) == (who, token) => {
                last.ended = true
            }
            ("end", _) => return Err(at("it was not inside")),
            _ => return Err(at("neither begin nor end")),
        }
    }
    Ok(turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_one_after_another_pass_and_are_counted() {
        let witness = Witness::new();
        for token in 1_u64..=3 {
            let inside = witness.enter("a", token);
            assert_eq!(witness.inside(), ["a"]);
            drop(inside);
        }
        assert_eq!((witness.turns(), witness.inside()), (3, vec![]));
    }

    #[test]
    #[should_panic(expected = "b entered with the token 2, although a is inside")]
    fn two_inside_at_once_are_caught() {
        let witness = Witness::new();
        let _first = witness.enter("a", 1_u64);
        let _second = witness.enter("b", 2_u64);
    }

    #[test]
    #[should_panic(expected = "b entered with the token 5, although a token of 5 was there before")]
    fn a_token_that_does_not_rise_is_caught() {
        let witness = Witness::new();
        drop(witness.enter("a", 5_u64));
        drop(witness.enter("b", 5_u64));
    }

    #[test]
    fn readers_share_and_keep_a_writer_out() {
        let witness = Witness::new();
        drop(witness.enter("writer", 1_u64));
        let readers = [witness.enter_shared("r1", 2_u64), witness.enter_shared("r2", 2_u64)];
        let writer = witness.clone();
        assert!(std::panic::catch_unwind(move || writer.enter("w", 3_u64)).is_err());
        drop(readers);
        drop(witness.enter("w", 3_u64));
    }

    #[test]
    #[should_panic(expected = "2 + 2 permits of 3 are taken")]
    fn more_permits_than_there_are_are_caught() {
        let witness = Witness::new();
        let _first = witness.enter_permit("a", 2, 3);
        let _second = witness.enter_permit("b", 2, 3);
    }

    #[test]
    fn a_file_of_turns_is_judged_as_it_was_written() {
        let turns = check("begin a 1\nend a 1\nbegin b 2\nbegin c 5\nend c 5\n", &["b"]).unwrap();
        assert_eq!(turns.iter().map(|turn| turn.ended).collect::<Vec<_>>(), [true, false, true]);
        for (text, killed, why) in [
            ("begin a 1\nbegin b 2\n", &[][..], "a is inside"),
            ("begin a 2\nend a 2\nbegin b 2\n", &[], "the token before was 2"),
            ("begin a 1\nbegin b 2\nend a 1\n", &["a"], "it was not inside"),
            ("begin a\n", &[], "not of the form"),
        ] {
            let error = check(text, killed).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
