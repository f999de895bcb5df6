//! Wrong versions of the library, the store and the world: each a text replacement that must match exactly once.
//!
//! A mutant's file says in its first line what is wrong, then `breaks:` which promise that should show in, `faults:` which
//! kinds to draw (all of the default, if it is left out), `gap:` how often, if not as usual, and `in:` which file of the workspace each of its replacements
//! is for:
//!
//! ```text
//! The deadline is counted from the answer.
//! breaks: BeliefOverlap
//! in: crates/leasehold/src/lease/keeper.rs
//! <<<<
//! what is there
//! ====
//! what is put in its place
//! >>>>
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One wrong version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Its file's name, without the ending.
    pub name: String,
    /// What is wrong.
    pub what: String,
    /// The promise that should be seen broken.
    pub breaks: String,
    /// The kinds of faults to draw, as on the command line; `None` for the default.
    pub faults: Option<String>,
    /// How often one is drawn, as on the command line; `None` for the default.
    pub gap: Option<String>,
    /// What is replaced.
    pub changes: Vec<Change>,
}

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, from the workspace's root.
    pub file: String,
    /// What must be there exactly once.
    pub find: String,
    /// What is put in its place.
    pub replace: String,
}

impl Mutant {
    /// Reads a mutant's text.
    ///
    /// # Errors
    /// What is missing in it.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let fail = |why: &str| Err(format!("mutant {name}: {why}"));
        let mut lines = text.lines();
        let Some(what) = lines.next().filter(|line| !line.is_empty()) else { return fail("it is empty") };
        let mut mutant = Self {
            name: name.to_owned(),
            what: what.to_owned(),
            breaks: String::new(),
            faults: None,
            gap: None,
            changes: Vec::new(),
        };
        let mut file = String::new();
        while let Some(line) = lines.next() {
            if let Some(breaks) = line.strip_prefix("breaks: ") {
                breaks.clone_into(&mut mutant.breaks);
            } else if let Some(faults) = line.strip_prefix("faults: ") {
                mutant.faults = Some(faults.to_owned());
            } else if let Some(gap) = line.strip_prefix("gap: ") {
                mutant.gap = Some(gap.to_owned());
            } else if let Some(of) = line.strip_prefix("in: ") {
                of.clone_into(&mut file);
            } else if line == "<<<<" {
                let mut part = |end: &str| {
                    let lines: Vec<_> = lines.by_ref().take_while(|line| *line != end).collect();
                    lines.join("\n")
                };
                let (find, replace) = (part("===="), part(">>>>"));
                if find.is_empty() || file.is_empty() {
                    return fail("a replacement lacks its file or what it replaces");
                }
                mutant.changes.push(Change { file: file.clone(), find, replace });
            } else if !line.is_empty() {
                return fail(&format!("the line {line:?} says nothing"));
            }
        }
        if mutant.changes.is_empty() || mutant.breaks.is_empty() {
            return fail("it changes nothing, or does not say what it breaks");
        }
        Ok(mutant)
    }

    /// All mutants of a workspace, by name.
    ///
    /// # Errors
    /// Which one cannot be read.
    pub fn all(workspace: &Path) -> Result<Vec<Self>, String> {
        let folder = workspace.join("crates/leasehold-sim/mutants");
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            files.push(entry.map_err(failed)?.path());
        }
        files.sort();
        let mutants = files.iter().filter(|file| file.extension().is_some_and(|end| end == "mutant"));
        mutants
            .map(|file| {
                let text = fs::read_to_string(file).map_err(failed)?;
                let name = file.file_stem().map(|name| name.to_string_lossy().into_owned());
                Self::parse(&name.unwrap_or_default(), &text)
            })
            .collect()
    }

    /// The changed files as they would be, in the order of the changes.
    ///
    /// # Errors
    /// Which replacement does not match exactly once.
    pub fn applied(&self, workspace: &Path) -> Result<Vec<(String, String)>, String> {
        let mut files: Vec<(String, String)> = Vec::new();
        for change in &self.changes {
            let known = files.iter().position(|(file, _)| *file == change.file);
            let text = match known {
                Some(known) => files[known].1.clone(),
                None => fs::read_to_string(workspace.join(&change.file))
                    .map_err(|error| format!("mutant {}: {}: {error}", self.name, change.file))?,
            };
            let found = text.matches(&change.find).count();
            if found != 1 {
                return Err(format!(
                    "mutant {}: what it replaces is found {found} times in {}, not once",
                    self.name, change.file
                ));
            }
            let text = text.replacen(&change.find, &change.replace, 1);
            match known {
                Some(known) => files[known].1 = text,
                None => files.push((change.file.clone(), text)),
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "It is wrong.\nbreaks: Order\nfaults: none\nin: a.rs\n<<<<\none\ntwo\n====\nthree\n>>>>\n";

    #[test]
    fn a_mutant_says_what_it_changes() {
        let mutant = Mutant::parse("wrong", TEXT).unwrap();
        let change = Change { file: "a.rs".into(), find: "one\ntwo".into(), replace: "three".into() };
        assert_eq!(mutant.changes, [change]);
        assert_eq!((mutant.what.as_str(), mutant.breaks.as_str()), ("It is wrong.", "Order"));
        assert_eq!(mutant.faults.as_deref(), Some("none"));
    }

    #[test]
    fn one_that_lacks_something_is_named() {
        for text in ["", "It is wrong.\nbreaks: Order\n", "Wrong.\nbreaks: Order\n<<<<\none\n====\n>>>>\n"] {
            assert!(Mutant::parse("wrong", text).unwrap_err().contains("mutant wrong"), "{text}");
        }
    }

    #[test]
    fn every_mutant_applies_and_there_are_enough_of_them() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let mutants = Mutant::all(workspace).unwrap();
        assert!(mutants.len() >= 25, "{}", mutants.len());
        for mutant in mutants {
            let files = mutant.applied(workspace).unwrap();
            assert!(!files.is_empty());
        }
    }
}
