//! Replays what fuzzing the pipeline found worth keeping: `fuzz/corpus/forwarder_pipeline` (inputs that reach different
//! code) and `fuzz/regressions/forwarder_pipeline` (inputs that once failed).

mod pipeline_checks;
#[path = "promises/plan.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod plan;

use pipeline_checks::watching::{SHOWN, TOLD};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

const TARGET: &str = "forwarder_pipeline";

fn inputs(kind: &str) -> Vec<PathBuf> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let Ok(entries) = fs::read_dir(fuzz.join(kind).join(TARGET)) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.collect()
}

#[test]
fn every_frame_of_the_corpus_leaves_is_answered_or_is_in_one_drop_counter() {
    let corpus = inputs("corpus");
    assert!(!corpus.is_empty(), "there is a corpus");
    for path in corpus.into_iter().chain(inputs("regressions")) {
        println!("{}", path.display());
        pipeline_checks::run(&fs::read(path).expect("a readable file"));
    }
    for (number, (shown, told)) in SHOWN.iter().zip(&TOLD).enumerate() {
        let [shown, told] = [shown, told].map(|did| did.load(Relaxed));
        assert!(shown && told, "filter {number} lets through {shown} {told}");
    }
}

#[test]
fn so_do_beginnings_of_it() {
    for path in inputs("corpus") {
        let bytes = fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        for part in 0..12 {
            pipeline_checks::run(&bytes[..bytes.len() * part / 12]);
        }
    }
}

#[test]
fn every_rule_set_of_the_corpus_can_be_compiled() {
    for platform in 0..pipeline_checks::PLATFORMS {
        for site in 0..pipeline_checks::SITES {
            for variant in 0..pipeline_checks::VARIANTS {
                let set = pipeline_checks::rule_set(platform, site, variant);
                let macs: Vec<_> = (0..set.ports.len())
                    .map(pipeline_checks::port_mac)
                    .collect();
                let mut registry = forwarder::registry::Registry::default();
                let compiled = forwarder::rules::compile(&set, &macs, &mut registry);
                assert!(
                    compiled.is_ok(),
                    "{platform} {site} {variant}: {:?}",
                    compiled.err()
                );
            }
        }
    }
}
