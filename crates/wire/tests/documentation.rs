//! The documents say what the code does: `docs/wire-formats.md` shows the bytes that are sent, and `docs/conformance.md` names
//! tests that exist.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use wire::nsh::ServicePathIdentifier;
use wire::steering::{
    Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, TunnelTemplate,
};
use wire::{Label, MacAddress, ServiceIndex, Vni, ipv4, udp};

/// The outer source port of the examples.
const PORT: u16 = 0xc209;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("a document")
}

/// The example's service path is number 66.
struct Example;

impl ServicePathMap for Example {
    fn path(&self, _: ServicePathIdentifier) -> Option<ServicePath> {
        None
    }

    fn identifier(&self, _: &ServicePath) -> Option<ServicePathIdentifier> {
        ServicePathIdentifier::new(66)
    }
}

/// The packet of the examples: DNS from 10.1.0.1 to 10.2.0.1, without data.
fn inner() -> Vec<u8> {
    let header = ipv4::write(&ipv4::Fields {
        source: [10, 1, 0, 1],
        destination: [10, 2, 0, 1],
        protocol: udp::PROTOCOL,
        ttl: 63,
        payload_length: udp::HEADER_LENGTH,
        identification: 1,
        dont_fragment: true,
    });
    let datagram = udp::Header {
        source_port: 12_345,
        destination_port: 53,
        length: udp::HEADER_LENGTH,
        checksum: 0,
    };
    [&header[..], &datagram.to_bytes()].concat()
}

fn frame(encoding: Encoding) -> Vec<u8> {
    let context = SteeringContext {
        chain: Label::new(1000).unwrap(),
        direction: Direction::Forward,
        egress: Label::new(77).unwrap(),
        service_index: ServiceIndex::INITIAL,
        loop_guard: 63,
    };
    let template = TunnelTemplate::with_encoding(
        encoding,
        (
            MacAddress([2, 0, 0, 0, 0, 1]),
            MacAddress([2, 0, 0, 0, 0, 2]),
        ),
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
        Vni::new(5).unwrap(),
    )
    .unwrap();
    let mut frame = vec![0; template.length()];
    frame.extend(inner());
    template
        .encapsulate(&mut frame, PORT, &context, &Example)
        .unwrap();
    frame
}

/// Sixteen bytes a line, with the first one's offset.
fn dump(bytes: &[u8]) -> String {
    bytes
        .chunks(16)
        .enumerate()
        .fold(String::new(), |mut text, (line, chunk)| {
            write!(text, "{:04x} ", line * 16).expect("a string takes anything");
            for byte in chunk {
                write!(text, " {byte:02x}").expect("a string takes anything");
            }
            text + "\n"
        })
}

#[test]
fn wire_formats_shows_the_bytes_that_are_sent() {
    let document = document("wire-formats.md");
    for encoding in Encoding::ALL {
        let dump = dump(&frame(encoding));
        assert!(
            document.contains(&dump),
            "docs/wire-formats.md lacks, for {encoding:?}:\n{dump}"
        );
    }
}

#[test]
fn wire_formats_names_every_error() {
    let document = document("wire-formats.md");
    for error in wire::ParseError::ALL {
        let name = format!("`{}`", error.name());
        assert!(
            document.contains(&name),
            "docs/wire-formats.md lacks {name}"
        );
    }
}

/// The tests of all Rust files below a directory, as `module::name` for the file and for each directory that it lies in.
fn tests(directory: &Path, within: &[String], found: &mut HashSet<String>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        let within = [within, &[name.into_owned()]].concat();
        if path.is_dir() {
            tests(&path, &within, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a readable file");
            for behind in text.split("#[test]").skip(1) {
                let named = behind.split_once("fn ").expect("a test is a function").1;
                let name = named.split('(').next().unwrap_or_default();
                found.extend(within.iter().map(|module| format!("{module}::{name}")));
            }
        }
    }
}

#[test]
fn conformance_names_tests_that_exist() {
    let mut there = HashSet::new();
    for part in ["wire/src", "wire/tests", "forwarder/src", "forwarder/tests"] {
        tests(&root().join("crates").join(part), &[], &mut there);
    }
    let document = document("conformance.md");
    let mut rows = 0;
    for row in document.lines().filter(|line| line.starts_with("| ")) {
        let Some(test) = row.trim_end_matches(" |").rsplit(" | ").next() else {
            continue;
        };
        for name in test.split('`').skip(1).step_by(2) {
            assert!(there.contains(name), "no test is named {name}: {row}");
            rows += 1;
        }
        let applies = !test.starts_with("Does not apply");
        let is_heading = test == "shown by" || test.starts_with("---");
        assert!(
            !applies || is_heading || test.contains('`'),
            "no test is named: {row}"
        );
    }
    assert!(rows > 30, "only {rows} tests are named");
}
