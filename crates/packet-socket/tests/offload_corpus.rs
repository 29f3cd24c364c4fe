//! Replays what fuzzing the kernel's descriptions found worth keeping.

mod offload_checks;

use std::fs;
use std::path::Path;

#[test]
fn descriptions_of_the_corpus_do_what_they_say_or_are_refused() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut count = 0;
    for kind in ["corpus", "regressions"] {
        let Ok(entries) = fs::read_dir(fuzz.join(kind).join("packet_socket_offload")) else {
            continue;
        };
        for entry in entries {
            let bytes = fs::read(entry.expect("an entry").path()).expect("a readable file");
            for length in 0..=bytes.len() {
                offload_checks::run(&bytes[..length]);
            }
            count += 1;
        }
    }
    assert!(count > 0, "there is a corpus");
}
