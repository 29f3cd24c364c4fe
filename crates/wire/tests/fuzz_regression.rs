//! Replays what fuzzing found worth keeping: `fuzz/corpus` (inputs that reach different code) and `fuzz/regressions` (inputs
//! that once failed). A directory in either has the name of its check.

mod codec_checks;

use codec_checks::CHECKS;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

#[test]
fn the_corpora_pass_their_checks() {
    for (name, check) in CHECKS {
        let corpus = files(&fuzz_directory().join("corpus").join(name));
        assert!(!corpus.is_empty(), "{name} has a corpus");
        for path in corpus {
            println!("{}", path.display());
            check(&fs::read(path).expect("a readable file"));
        }
    }
}

#[test]
fn what_once_failed_passes_every_check() {
    for directory in files(&fuzz_directory().join("regressions")) {
        for path in files(&directory) {
            let bytes = fs::read(&path).expect("a readable file");
            for (_, check) in CHECKS {
                println!("{}", path.display());
                check(&bytes);
            }
        }
    }
}

#[test]
fn every_check_has_its_fuzz_target() {
    let manifest =
        fs::read_to_string(fuzz_directory().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    for (name, _) in CHECKS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let target = fuzz_directory().join(format!("fuzz_targets/{name}.rs"));
        let target = fs::read_to_string(target).expect("a target");
        assert!(target.contains(&format!("run(\"{name}\"")), "{name}");
    }
}

/// Every check on every length of every corpus file: truncation anywhere is no panic.
#[test]
fn corpora_cut_short_at_every_length_pass_every_check() {
    for (name, _) in CHECKS {
        for path in files(&fuzz_directory().join("corpus").join(name)) {
            let bytes = fs::read(path).expect("a readable file");
            for length in 0..bytes.len().min(200) {
                codec_checks::run(name, &bytes[..length]);
            }
        }
    }
}
