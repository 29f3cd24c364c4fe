//! Rules from a file and the status to another, for a forwarder that follows no bus.

use contracts::forwarder as contract;
use prost::Message;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A file of rules, which is replaced as a whole, and the file that the status goes to.
#[derive(Debug)]
pub struct RulesFile {
    rules: PathBuf,
    status: Option<PathBuf>,
    /// What the rules' file said last.
    last: Vec<u8>,
    /// Why the files cannot be read and written, as was told last.
    unread: Option<String>,
    unwritten: Option<String>,
}

impl RulesFile {
    /// Files that nothing was read from yet.
    pub fn new(rules: PathBuf, status: Option<PathBuf>) -> RulesFile {
        RulesFile {
            rules,
            status,
            last: Vec::new(),
            unread: None,
            unwritten: None,
        }
    }

    /// The rules, or why they cannot be decoded, where the file says something else than before. While it is away nothing has
    /// changed: that is told once.
    pub fn changed(&mut self) -> Option<Result<contract::RuleSet, String>> {
        let read = fs::read(&self.rules);
        let bytes = told(&mut self.unread, &self.rules, read)?;
        if bytes == self.last {
            return None;
        }
        let rules = contract::RuleSet::decode(bytes.as_slice())
            .map_err(|error| format!("{}: {error}", self.rules.display()));
        self.last = bytes;
        Some(rules)
    }

    /// Writes the status down. Where that fails the next one may succeed: it is told once.
    pub fn report(&mut self, status: &contract::Status) {
        let Some(file) = &self.status else {
            return;
        };
        let unfinished = file.with_extension("new");
        let written = fs::write(&unfinished, status.encode_to_vec())
            .and_then(|()| fs::rename(&unfinished, file));
        told(&mut self.unwritten, file, written);
    }
}

/// What came of something, and tells why it did not come unless that is known.
fn told<T>(known: &mut Option<String>, file: &Path, result: io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => {
            *known = None;
            Some(value)
        }
        Err(error) => {
            let problem = format!("{}: {error}", file.display());
            if known.as_ref() != Some(&problem) {
                eprintln!("switchboard-forwarder: {problem}");
                *known = Some(problem);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that ends with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let name = format!("switchboard-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn rules(generation: u64) -> contract::RuleSet {
        contract::RuleSet {
            generation,
            site: "a".into(),
            ..Default::default()
        }
    }

    #[test]
    fn rules_stay_while_their_file_is_away() {
        let directory = Directory::new("rules-away");
        let path = directory.0.join("rules");
        let mut file = RulesFile::new(path.clone(), None);
        assert_eq!(file.changed(), None);
        assert!(
            file.unread
                .as_ref()
                .is_some_and(|problem| problem.starts_with(path.to_str().unwrap()))
        );
        for generation in 1..3 {
            fs::write(&path, rules(generation).encode_to_vec()).unwrap();
            assert_eq!(file.changed(), Some(Ok(rules(generation))));
            assert_eq!(file.unread, None);
            assert_eq!(file.changed(), None, "nothing has changed");
            fs::remove_file(&path).unwrap();
            assert_eq!(file.changed(), None);
            assert!(file.unread.is_some());
        }
    }

    #[test]
    fn rules_that_cannot_be_decoded_are_told_once() {
        let directory = Directory::new("rules-undecodable");
        let path = directory.0.join("rules");
        let mut file = RulesFile::new(path.clone(), None);
        fs::write(&path, [0xff; 30]).unwrap();
        let problem = file.changed().unwrap().unwrap_err();
        assert!(problem.starts_with(path.to_str().unwrap()), "{problem}");
        assert_eq!(file.changed(), None);
        fs::write(&path, rules(1).encode_to_vec()).unwrap();
        assert_eq!(file.changed(), Some(Ok(rules(1))));
    }

    #[test]
    fn a_status_that_cannot_be_written_is_written_later() {
        let directory = Directory::new("status-unwritten");
        let later = directory.0.join("later");
        let path = later.join("status");
        let mut file = RulesFile::new(directory.0.join("rules"), Some(path.clone()));
        let status = contract::Status {
            site: "a".into(),
            ..Default::default()
        };
        file.report(&status);
        assert!(file.unwritten.is_some());
        fs::create_dir(&later).unwrap();
        file.report(&status);
        assert_eq!(file.unwritten, None);
        let written = contract::Status::decode(fs::read(&path).unwrap().as_slice());
        assert_eq!(written, Ok(status));
    }
}
