//! Replays what fuzzing several workers found worth keeping: `fuzz/corpus/forwarder_homes` (inputs that reach different code)
//! and `fuzz/regressions/forwarder_homes` (inputs that once failed).

mod home_checks;
#[allow(dead_code, reason = "only its rules are used")]
mod pipeline_checks;
#[path = "promises/plan.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod plan;

use std::fs;
use std::path::Path;

#[test]
fn every_frame_of_the_corpus_comes_to_its_home() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut count = 0;
    for kind in ["corpus", "regressions"] {
        let Ok(entries) = fs::read_dir(fuzz.join(kind).join("forwarder_homes")) else {
            continue;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            home_checks::run(&fs::read(path).expect("a readable file"));
            count += 1;
        }
    }
    assert!(count > 0, "there is a corpus");
}
