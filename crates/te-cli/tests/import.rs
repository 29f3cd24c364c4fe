//! `import` says what it left out or changed: made-up files for every kind, and the project's real ones where they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of the test's own, removed in the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("te-import-{}-{name}", std::process::id()));
        fs::write(&path, text).expect("written");
        File(path)
    }

    fn path(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn import(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-te"));
    command.arg("import").args(arguments.split_whitespace());
    command.output().expect("the program runs")
}

/// What an import says, without the name of the file before each line; it must succeed, and be silent with `-q`.
fn notes(arguments: &str) -> Vec<String> {
    let output = import(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments}: {said}");
    let quiet = import(&format!("{arguments} -q"));
    assert!(quiet.stderr.is_empty(), "{arguments} -q says something");
    assert_eq!(quiet.stdout, output.stdout, "{arguments}");
    let line = |line: &str| line.split_once(": ").expect("a file first").1.to_owned();
    said.lines().map(line).collect()
}

const GRAPHML: &str = r#"<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" attr.type="string" for="node" id="d1"/><key attr.name="Latitude" for="node" id="d2"/>
<key attr.name="Longitude" for="node" id="d3"/><key attr.name="LinkSpeedRaw" for="edge" id="d4"/>
<graph edgedefault="undirected">
<node id="0"><data key="d1">Rome</data><data key="d2">41.9</data><data key="d3">12.5</data></node>
<node id="1"><data key="d1">Rome</data><data key="d2">45.0</data><data key="d3">9.2</data></node>
<node id="2"/>
<edge source="0" target="1"><data key="d4">1e9</data></edge>
<edge source="0" target="1"/>
<edge source="1" target="2"><data key="d4">1e9</data></edge>
<edge source="2" target="2"/>
</graph></graphml>"#;

#[test]
fn graphml_tells_what_it_changed() {
    let file = File::new("a.graphml", GRAPHML);
    let found = notes(&format!(
        "--graphml {} --default-bandwidth 100 --default-latency 1",
        file.path()
    ));
    assert_eq!(
        found,
        [
            "1 self-loops left out: 2 (line 11 column 1)",
            "2 parallel links kept apart: Rome-0>Rome-1#2, Rome-1>Rome-0#3",
            "2 nodes of a repeated label given names of their own: Rome-0, Rome-1",
            "1 nodes without a label named by their id: 2",
            "4 links of a repeated name given names of their own: Rome-0>Rome-1#0, Rome-1>Rome-0#1, Rome-0>Rome-1#2, …",
            "1 nodes without coordinates: 2",
            "1 links without known distance given --default-latency: Rome-1 - 2",
            "1 links without capacity given the default bandwidth: Rome-0 - Rome-1",
        ]
    );
}

#[test]
fn repetita_tells_what_it_changed() {
    let graph = "NODES 3\nlabel x y\na 1 1\nb 2 2\nc 0.0 0.0\n\nEDGES 5\nlabel src dest weight bw delay\ne0 0 1 1 1000 50\ne1 1 0 1 1000 50\n\
        e2 1 2 1 1000 70\ne3 2 1 1 1000 0\ne4 0 0 1 1000 1\n";
    let demands = "DEMANDS 4\nlabel src dest bw\nd0 0 1 10\nd1 0 2 0\nd2 1 1 5\nd3 1 2 10\n";
    let (graph, demands) = (File::new("a.graph", graph), File::new("a.demands", demands));
    let found = notes(&format!(
        "--repetita {} --demands {} --default-latency 2",
        graph.path(),
        demands.path()
    ));
    assert_eq!(
        found,
        [
            "1 self-loops left out: e4 (line 13)",
            "1 nodes without coordinates: c",
            "1 links without known distance given --default-latency: c - b",
            "1 links without known distance given their stated delay: e2",
            "2 links' stated delays replaced by their distance at 200 km per ms: e0, e1",
            "1 demands of zero left out: a > c",
            "1 demands from a node to itself left out: b > b",
        ]
    );
}

#[test]
fn sndlib_tells_what_it_changed() {
    let network = "NODES (\n a ( 1 1 )\n b ( 2 2 )\n c ( 3000 2 )\n)\nLINKS (\n l0 ( a b ) 100.0 0 0 0 ( 40.0 1 )\n l1 ( b c ) 0.0 0 0 0 ( 40.0 1 80.0 2 )\n \
        l2 ( a b ) 0.0 0 0 0 ( )\n)\nDEMANDS (\n d0 ( a b ) 1 5 UNLIMITED\n)\n";
    let file = File::new("a.txt", network);
    let found = notes(&format!(
        "--sndlib {} --default-bandwidth 7 --default-latency 1",
        file.path()
    ));
    assert_eq!(
        found,
        [
            "2 parallel links kept apart: l2, l2-reverse",
            "1 nodes without coordinates: c",
            "1 nodes' coordinates left out that are no longitude and latitude: c",
            "1 links without known distance given --default-latency: b - c",
            "1 links without capacity given the default bandwidth: l2",
            "1 links without installed capacity given their largest module: l1",
        ]
    );
}

#[test]
fn a_plain_file_is_imported_in_silence() {
    let graph = "NODES 2\nlabel x y\na 1 1\nb 2 2\n\nEDGES 1\nlabel src dest weight bw delay\ne0 0 1 1 1000 0\n";
    let file = File::new("plain.graph", graph);
    assert!(notes(&format!("--repetita {}", file.path())).is_empty());
}

#[test]
fn xml_beyond_reason_is_refused_before_it_takes_the_memory() {
    let deep = format!("<graphml><graph>{}", "<a>".repeat(3_000_000));
    let file = File::new("deep.graphml", &deep);
    for format in ["--graphml", "--sndlib"] {
        let output = import(&format!("{format} {}", file.path()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{format}: {said}");
        assert!(said.contains("this is no topology"), "{format}: {said}");
    }
}

/// Which kinds of notes each of the project's real files gives, with their counts.
#[test]
fn real_files_give_the_notes_that_their_readme_lists() {
    let data = std::env::var("SWITCHBOARD_DATA").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if !data.is_dir() {
        eprintln!(
            "skipped: {} is absent; SWITCHBOARD_DATA may name it",
            data.display()
        );
        return;
    }
    let at = |name: &str| data.join(name).to_string_lossy().into_owned();
    let cases: [(String, &[&str]); 6] = [
        (
            format!(
                "--graphml {} --default-bandwidth 10000",
                at("topologyzoo/AttMpls.graphml")
            ),
            &[
                "2 parallel links kept apart",
                "57 links without capacity given",
            ],
        ),
        (
            format!(
                "--graphml {} --default-bandwidth 10000",
                at("topologyzoo/Abilene.graphml")
            ),
            &["14 links without capacity given"],
        ),
        (
            format!(
                "--graphml {} --default-bandwidth 10000 --default-latency 1",
                at("topologyzoo/Cogentco.graphml")
            ),
            &[
                "4 parallel links kept apart",
                "11 nodes of a repeated label given",
                "11 nodes without coordinates",
                "245 links without capacity given",
            ],
        ),
        (
            format!(
                "--repetita {} --demands {} --default-latency 1",
                at("repetita/Geant2012.graph"),
                at("repetita/Geant2012.0000.demands")
            ),
            &[
                "3 nodes without coordinates",
                "links without known distance given",
            ],
        ),
        (format!("--sndlib {}", at("sndlib/native/abilene.txt")), &[]),
        (
            format!("--sndlib {}", at("sndlib/native/geant.txt")),
            &["36 links without installed capacity given their largest module"],
        ),
    ];
    for (arguments, expected) in cases {
        let found = notes(&arguments);
        for start in expected {
            let is_told = found.iter().any(|line| line.contains(start));
            assert!(is_told, "{arguments}: no '{start}' in {found:?}");
        }
        assert!(
            !expected.is_empty() || found.is_empty(),
            "{arguments}: {found:?}"
        );
    }
}
