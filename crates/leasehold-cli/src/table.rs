//! Rows for people: columns as wide as what stands in them.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use crate::exit::Failure;

/// What stands where nothing is known.
pub(crate) const NOTHING: &str = "-";

/// A table that is filled row by row.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row. What other clients wrote may hold anything, also what a terminal would obey: that is shown escaped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

/// The text with control characters escaped, on one line.
pub(crate) fn plain(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// Prints it. Whoever reads it may have seen enough before its end.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::machine(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let mut table = Table::new(&["NAME", "HOST"]);
        table.row(["a-long-name".into(), "x".into()]);
        table.row(["é".into(), "y".into()]);
        assert_eq!(table.render(), "NAME         HOST\na-long-name  x\né            y\n");
    }

    #[test]
    fn nothing_that_a_client_wrote_reaches_the_terminal_as_a_command() {
        let mut table = Table::new(&["HOST"]);
        table.row(["\u{1b}[2J\nevil\u{9b}".into()]);
        assert_eq!(table.render(), "HOST\n\\u{1b}[2J\\nevil\\u{9b}\n");
    }
}
