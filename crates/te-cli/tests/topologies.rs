//! `import` of each format: small files with every trap against the exact model they mean, and the project's real files
//! against the figures of their README.

mod support;

use support::{Directory, data, model, run, said, written};
use te::model::{Ends, Model};

/// A model's nodes, links and chains, a line for each; latencies rounded to 0.1 µs.
fn shape(model: &Model) -> Vec<String> {
    let id = |node: usize| model.nodes[node].id.as_str();
    let mut lines = Vec::new();
    for node in &model.nodes {
        let place = node.coordinates;
        let place = place.map_or("nowhere".into(), |(y, x)| format!("{y} {x}"));
        lines.push(format!("{}: {place}", node.id));
    }
    for link in &model.links {
        let (from, to) = (id(link.from), id(link.to));
        assert_eq!(link.background_mbps, 0.0);
        let (latency, bandwidth) = (link.latency_ms, link.bandwidth_mbps);
        lines.push(format!(
            "{}: {from} -> {to} {latency:.4} ms {bandwidth}",
            link.id
        ));
    }
    for chain in &model.chains {
        let end = |ends: &Ends| match ends {
            Ends::Any(nodes) if nodes.len() == 1 => id(nodes[0]).to_owned(),
            other => panic!("{other:?}"),
        };
        assert!(chain.vnfs.is_empty() && chain.reverse_mbps == [0.0]);
        let (from, to) = (end(&chain.ingress), end(&chain.egress));
        lines.push(format!(
            "{}: {from} => {to} {:?}",
            chain.id, chain.forward_mbps
        ));
    }
    lines
}

fn imported(options: &str) -> Model {
    model(&written(&format!("import -q {options}")))
}

/// Keys have other ids than elsewhere, and names that nodes, edges and the graph share; one degree on the equator is
/// 111.195 km, 0.556 ms.
const GRAPHML: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" for="graph" id="d1"/><key attr.name="label" for="edge" id="d2"/><key attr.name="label" for="node" id="d3"/>
<key attr.name="Latitude" for="node" id="d29"/><key attr.name="Longitude" for="node" id="d7"/>
<key attr.name="LinkSpeedRaw" for="edge" id="d8"/><key attr.name="LinkSpeed" for="edge" id="d9"/><key attr.name="LinkSpeedUnits" for="edge" id="d10"/>
<graph edgedefault="undirected">
<data key="d1">A network</data>
<node id="0"><data key="d3">Rome</data><data key="d29">0</data><data key="d7">1</data></node>
<node id="1"><data key="d3">Rome</data><data key="d29">0</data><data key="d7">2</data></node>
<node id="7"><data key="d3">Null &amp; Island</data><data key="d29">0</data><data key="d7">0</data></node>
<node id="3"/>
<edge source="0" target="1"><data key="d2">OC-192</data><data key="d8">9953280000.0</data></edge>
<edge source="1" target="0"><data key="d9">2.5</data><data key="d10">G</data></edge>
<edge source="0" target="7"><data key="d9">155</data><data key="d10">M</data></edge>
<edge source="7" target="7"><data key="d8">1e9</data></edge>
<edge source="7" target="3"><data key="d9">64</data><data key="d10">K</data></edge>
<edge source="1" target="7"/>
</graph></graphml>"#;

const GRAPHML_NODES: [&str; 4] = [
    "Rome-0: 0 1",
    "Rome-1: 0 2",
    "Null & Island: 0 0",
    "3: nowhere",
];

#[test]
fn graphml_with_every_trap_is_the_model_it_means() {
    let directory = Directory::new("graphml");
    let both = "--default-bandwidth 12.5 --default-latency 4";
    let file = directory.file("a.graphml", GRAPHML);
    let mut expected = GRAPHML_NODES.to_vec();
    expected.extend([
        "Rome-0>Rome-1#0: Rome-0 -> Rome-1 0.5560 ms 9953.28",
        "Rome-1>Rome-0#1: Rome-1 -> Rome-0 0.5560 ms 9953.28",
        "Rome-1>Rome-0#2: Rome-1 -> Rome-0 0.5560 ms 2500",
        "Rome-0>Rome-1#3: Rome-0 -> Rome-1 0.5560 ms 2500",
        "Rome-0>Null & Island: Rome-0 -> Null & Island 0.5560 ms 155",
        "Null & Island>Rome-0: Null & Island -> Rome-0 0.5560 ms 155",
        "Null & Island>3: Null & Island -> 3 4.0000 ms 0.064",
        "3>Null & Island: 3 -> Null & Island 4.0000 ms 0.064",
        "Rome-1>Null & Island: Rome-1 -> Null & Island 1.1120 ms 12.5",
        "Null & Island>Rome-1: Null & Island -> Rome-1 1.1120 ms 12.5",
    ]);
    assert_eq!(
        shape(&imported(&format!("--graphml {file} {both}"))),
        expected
    );

    let directed = GRAPHML.replace("\"undirected\"", "\"directed\"");
    let file = directory.file("b.graphml", &directed);
    let mut expected = GRAPHML_NODES.to_vec();
    expected.extend([
        "Rome-0>Rome-1: Rome-0 -> Rome-1 0.5560 ms 9953.28",
        "Rome-1>Rome-0: Rome-1 -> Rome-0 0.5560 ms 2500",
        "Rome-0>Null & Island: Rome-0 -> Null & Island 0.5560 ms 155",
        "Null & Island>3: Null & Island -> 3 4.0000 ms 0.064",
        "Rome-1>Null & Island: Rome-1 -> Null & Island 1.1120 ms 12.5",
    ]);
    assert_eq!(
        shape(&imported(&format!("--graphml {file} {both}"))),
        expected
    );
}

/// kbit/s and µs; node c is without coordinates, written as (0, 0); two links join a and b, and have the same name.
const REPETITA: &str = "NODES 4\nlabel x y\na 1.0 0.0\nb 2.0 0.0\na 4 0\nc 0.0 0.0\n\nEDGES 7\nlabel src dest weight bw delay\n\
    e 0 1 1 1000000 999\ne 0 1 1 155520 999\nf 1 0 1 1000 0\ng 1 2 7 64 0\nh 2 3 1 1000 250\ni 3 2 1 1000 0\nself 2 2 1 1000 0\n";
const REPETITA_DEMANDS: &str =
    "DEMANDS 5\nlabel src dest bw\nd0 0 1 1500\nd1 3 3 9\nd2 2 1 0\nd3 1 0 2.5\nd4 0 1 1500\n";

#[test]
fn repetita_with_every_trap_is_the_model_it_means() {
    let directory = Directory::new("repetita");
    let file = directory.file("a.graph", REPETITA);
    let demands = directory.file("a.demands", REPETITA_DEMANDS);
    let options = format!("--repetita {file} --demands {demands} --default-latency 4");
    let expected = [
        "a#0: 0 1",
        "b: 0 2",
        "a#2: 0 4",
        "c: nowhere",
        "e#0: a#0 -> b 0.5560 ms 1000",
        "e#1: a#0 -> b 0.5560 ms 155.52",
        "f: b -> a#0 0.5560 ms 1",
        "g: b -> a#2 1.1120 ms 0.064",
        "h: a#2 -> c 0.2500 ms 1",
        "i: c -> a#2 4.0000 ms 1",
        "demand-0: a#0 => b [1.5]",
        "demand-1: b => a#0 [0.0025]",
        "demand-2: a#0 => b [1.5]",
    ];
    assert_eq!(shape(&imported(&options)), expected);
}

/// l0 has capacity, l1 only modules, l2 runs beside l0, l3 and l4 are listed apart in both directions, l5 is a loop,
/// l6 has nothing; the plane coordinates of d are none on the globe.
const NATIVE: &str = "?SNDlib native format; type: network; version: 1.0\n# nodes\nMETA (\n unit = MBITPERSEC\n)\n\
    NODES (\n a ( 1 0 )\n b ( 2.00 0.0 )  # twice the longitude\n c ( 4 0 )\n d ( 300 20 )\n)\n\nLINKS (\n l0 ( a b ) 100.50 0.00 0.00 0.00 ( 40.0 1 )\n \
    l1 ( b c ) 0.00 0 0 0 ( 40.0 1 80.0 2 60.0 3 )\n l2 ( a b ) 7 0 0 0 ( )\n l3 ( a c ) 5 0 0 0 ( )\n l4 ( c a ) 6 0 0 0 ( )\n l5 ( c c ) 6 0 0 0 ( )\n \
    l6 ( c d ) 0 0 0 0 ( )\n)\nDEMANDS (\n d0 ( a b ) 1 5.5 UNLIMITED\n d1 ( c a ) 2 3 UNLIMITED\n d2 ( a a ) 1 3 UNLIMITED\n d3 ( a c ) 1 0 UNLIMITED\n)\n";

#[test]
fn sndlib_with_every_trap_is_the_model_it_means_in_both_forms() {
    let directory = Directory::new("sndlib");
    let both = "--default-bandwidth 12.5 --default-latency 4";
    let file = directory.file("a.txt", NATIVE);
    let expected = [
        "a: 0 1",
        "b: 0 2",
        "c: 0 4",
        "d: nowhere",
        "l0: a -> b 0.5560 ms 100.5",
        "l0-reverse: b -> a 0.5560 ms 100.5",
        "l1: b -> c 1.1120 ms 80",
        "l1-reverse: c -> b 1.1120 ms 80",
        "l2: a -> b 0.5560 ms 7",
        "l2-reverse: b -> a 0.5560 ms 7",
        "l3: a -> c 1.6679 ms 5",
        "l4: c -> a 1.6679 ms 6",
        "l6: c -> d 4.0000 ms 12.5",
        "l6-reverse: d -> c 4.0000 ms 12.5",
        "demand-0: a => b [5.5]",
        "demand-1: c => a [6.0]",
    ];
    assert_eq!(
        shape(&imported(&format!("--sndlib {file} {both}"))),
        expected
    );
    let xml = directory.file("a.xml", &xml());
    assert_eq!(
        shape(&imported(&format!("--sndlib {xml} {both}"))),
        expected
    );
}

/// What [`NATIVE`] says, in XML.
fn xml() -> String {
    let nodes = [
        ("a", "1", "0"),
        ("b", "2.0", "0"),
        ("c", "4", "0.0"),
        ("d", "300", "20"),
    ]
    .map(|(id, x, y)| {
        format!("<node id=\"{id}\"><coordinates><x> {x} </x><y>{y}</y></coordinates></node>")
    });
    let link = |id: &str, ends: (&str, &str), capacities: &str| {
        let (a, b) = ends;
        format!("<link id=\"{id}\"><source>{a}</source><target>{b}</target>{capacities}</link>")
    };
    let installed = |mbps: &str| {
        format!(
            "<preInstalledModule><capacity>{mbps}</capacity><cost>0</cost></preInstalledModule>"
        )
    };
    let module =
        |mbps: &str| format!("<addModule><capacity>{mbps}</capacity><cost>1</cost></addModule>");
    let modules = |all: &[&str]| {
        let all: Vec<String> = all.iter().map(|m| module(m)).collect();
        format!("<additionalModules>{}</additionalModules>", all.concat())
    };
    let links = [
        link(
            "l0",
            ("a", "b"),
            &(installed("100.5") + &modules(&["40.0"])),
        ),
        link("l1", ("b", "c"), &modules(&["40.0", "80.0", "60.0"])),
        link("l2", ("a", "b"), &installed("7")),
        link("l3", ("a", "c"), &installed("5")),
        link("l4", ("c", "a"), &installed("6")),
        link("l5", ("c", "c"), &installed("6")),
        link("l6", ("c", "d"), ""),
    ];
    let demands = [("d0", "a", "b", "5.5"), ("d1", "c", "a", "6"), ("d2", "a", "a", "3"), ("d3", "a", "c", "0")].map(
        |(id, from, to, mbps)| {
            format!("<demand id=\"{id}\"><source>{from}</source><target>{to}</target><demandValue>{mbps}</demandValue></demand>")
        },
    );
    format!(
        "<?xml version=\"1.0\"?><network xmlns=\"http://sndlib.zib.de/network\"><networkStructure><nodes>{}</nodes><links>{}</links>\
         </networkStructure><demands>{}</demands></network>",
        nodes.concat(),
        links.concat(),
        demands.concat()
    )
}

/// What is replaced in a good file, by what, and what standard error must then hold.
const WRONG: &[(&str, &str, &str, &[&str])] = &[
    (
        "--graphml",
        GRAPHML,
        "<graphml/>",
        &["line 1 column 1", "no <graph>"],
    ),
    ("--graphml", "</graphml>", "", &["not XML"]),
    (
        "--graphml",
        r#"target="3""#,
        r#"target="9""#,
        &["line 16 column 1", "no node '9'"],
    ),
    (
        "--graphml",
        r#"target="3""#,
        "",
        &["line 16 column 1", "needs a target"],
    ),
    (
        "--graphml",
        r#"<node id="3"/>"#,
        r#"<node id="7"/>"#,
        &["line 11 column 1", "'7' appears twice"],
    ),
    (
        "--graphml",
        r#"<node id="3"/>"#,
        "<node/>",
        &["line 11 column 1", "needs an id"],
    ),
    (
        "--graphml",
        r#"<data key="d29">0</data><data key="d7">1</data>"#,
        r#"<data key="d29">91</data><data key="d7">1</data>"#,
        &["line 8 column 1", "Latitude '91'"],
    ),
    (
        "--graphml",
        "9953280000.0",
        "fast",
        &["line 12 column 1", "LinkSpeedRaw 'fast'"],
    ),
    (
        "--graphml",
        "9953280000.0",
        "0",
        &["LinkSpeedRaw '0'", "above zero"],
    ),
    (
        "--repetita",
        "NODES 4",
        "NODES four",
        &["line 1", "needs a count"],
    ),
    (
        "--repetita",
        "EDGES 7",
        "EDGES 8",
        &["line 8", "announces 8 lines, only 7"],
    ),
    ("--repetita", "EDGES 7", "LINKS 7", &["no section EDGES"]),
    (
        "--repetita",
        "e 0 1 1 1000000",
        "e 0 4 1 1000000",
        &["line 10", "no node 4", "has 4"],
    ),
    (
        "--repetita",
        "e 0 1 1 1000000",
        "e 0 1.5 1 1000000",
        &["line 10", "no node 1.5"],
    ),
    (
        "--repetita",
        "1000000",
        "0",
        &["line 10", "bandwidth must be above zero"],
    ),
    (
        "--repetita",
        "1000000",
        "1G",
        &["line 10", "column 5 (bandwidth)"],
    ),
    (
        "--repetita",
        "a 1.0 0.0",
        "a 181 0.0",
        &["line 3", "(181, 0)"],
    ),
    ("--sndlib", "LINKS (", "EDGES (", &["no section LINKS"]),
    (
        "--sndlib",
        " l6 ( c d )",
        " l6 ( c e )",
        &["line 20", "no node 'e'"],
    ),
    (
        "--sndlib",
        " c ( 4 0 )",
        " b ( 4 0 )",
        &["section NODES", "'b' appears twice"],
    ),
    (
        "--sndlib",
        "100.50",
        "-1",
        &["line 14", "'-1' is no capacity"],
    ),
    (
        "--sndlib",
        " d1 ( c a ) 2 3 UNLIMITED",
        " d1 ( c a )",
        &["line 24", "words"],
    ),
    (
        "--sndlib",
        "UNLIMITED\n)\n",
        "UNLIMITED\n",
        &["DEMANDS does not end"],
    ),
    (
        "--sndlib",
        " a ( 1 0 )",
        " a ( east 0 )",
        &["line 7", "'east' is no coordinate"],
    ),
    ("--demands", "d3 1 0", "d3 1 4", &["line 6", "no node 4"]),
    (
        "--demands",
        "2.5",
        "-2.5",
        &["line 6", "must not be negative"],
    ),
    (
        "--demands",
        "DEMANDS 5",
        "DEMANDS 6",
        &["line 1", "announces 6 lines, only 5"],
    ),
];

#[test]
fn a_mistake_in_a_topology_is_refused_with_its_place() {
    let directory = Directory::new("topology-mistakes");
    for (format, good, bad, says) in WRONG {
        let whole = match *format {
            "--graphml" => GRAPHML,
            "--repetita" => REPETITA,
            "--sndlib" => NATIVE,
            _ => REPETITA_DEMANDS,
        };
        assert!(whole.contains(good), "{format}: {good}");
        let wrong = directory.file("wrong", &whole.replacen(good, bad, 1));
        let named = match *format {
            "--demands" => format!(
                "--repetita {} --demands {wrong}",
                directory.file("a.graph", REPETITA)
            ),
            _ => format!("{format} {wrong}"),
        };
        let output = run(&format!(
            "import {named} --default-bandwidth 1 --default-latency 1"
        ));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{good} -> {bad}: {said}");
        assert!(output.stdout.is_empty(), "{good} -> {bad}");
        let last = said.lines().last().expect("a word");
        assert!(
            last.starts_with(&format!("switchboard-te: {wrong}: ")),
            "{said}"
        );
        assert!(
            says.iter().all(|s| last.contains(s)),
            "{good} -> {bad}: {last}"
        );
    }
}

#[test]
fn what_a_file_leaves_out_is_not_invented() {
    let directory = Directory::new("topology-defaults");
    let graphml = directory.file("a.graphml", GRAPHML);
    let native = directory.file("a.txt", NATIVE);
    let repetita = directory.file("a.graph", REPETITA);
    for (options, says) in [
        (
            format!("--graphml {graphml} --default-latency 1"),
            "give --default-bandwidth",
        ),
        (
            format!("--graphml {graphml} --default-bandwidth 1"),
            "give --default-latency",
        ),
        (
            format!("--sndlib {native} --default-latency 1"),
            "give --default-bandwidth",
        ),
        (
            format!("--sndlib {native} --default-bandwidth 1"),
            "give --default-latency",
        ),
        (format!("--repetita {repetita}"), "give --default-latency"),
    ] {
        let output = run(&format!("import {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}");
        assert!(said(&output).contains(says), "{options}: {}", said(&output));
    }
}

/// The README's figures: nodes, directed links, links beside another one, nodes without coordinates, chains (of Geant2012's
/// 1 560 demands four are zero, of Cogentco's 38 612 these are 807).
type Figures = (&'static str, &'static str, [usize; 5]);

const REAL: [Figures; 11] = [
    (
        "--graphml",
        "topologyzoo/AttMpls.graphml",
        [25, 114, 2, 0, 0],
    ),
    (
        "--graphml",
        "topologyzoo/Abilene.graphml",
        [11, 28, 0, 0, 0],
    ),
    (
        "--graphml",
        "topologyzoo/Geant2012.graphml",
        [40, 122, 0, 3, 0],
    ),
    (
        "--graphml",
        "topologyzoo/Cogentco.graphml",
        [197, 490, 4, 11, 0],
    ),
    ("--repetita", "repetita/Abilene.graph", [11, 28, 0, 0, 110]),
    ("--repetita", "repetita/AttMpls.graph", [25, 114, 2, 0, 600]),
    (
        "--repetita",
        "repetita/Geant2012.graph",
        [40, 122, 0, 3, 1556],
    ),
    (
        "--repetita",
        "repetita/Cogentco.graph",
        [197, 490, 4, 11, 37805],
    ),
    ("--sndlib", "sndlib/native/abilene.txt", [12, 30, 0, 0, 132]),
    ("--sndlib", "sndlib/native/geant.txt", [22, 72, 0, 0, 462]),
    ("--sndlib", "sndlib/xml/abilene.xml", [12, 30, 0, 0, 132]),
];

#[test]
fn real_files_have_the_figures_of_their_readme() {
    let Some(data) = data() else { return };
    let at = |name: &str| data.join(name).to_string_lossy().into_owned();
    for (format, name, figures) in REAL {
        let demands = name.replace(".graph", ".0000.demands");
        let demands = if format == "--repetita" {
            format!("--demands {}", at(&demands))
        } else {
            String::new()
        };
        let defaults = "--default-bandwidth 10000 --default-latency 1";
        let model = imported(&format!("{format} {} {demands} {defaults}", at(name)));
        let mut pairs: Vec<_> = model.links.iter().map(|l| (l.from, l.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let nowhere = model
            .nodes
            .iter()
            .filter(|n| n.coordinates.is_none())
            .count();
        let (nodes, links) = (model.nodes.len(), model.links.len());
        let found = [
            nodes,
            links,
            links - pairs.len(),
            nowhere,
            model.chains.len(),
        ];
        assert_eq!(found, figures, "{name}");
    }
    let native = imported(&format!("--sndlib {}", at("sndlib/native/abilene.txt")));
    let xml = imported(&format!("--sndlib {}", at("sndlib/xml/abilene.xml")));
    assert_eq!(shape(&native), shape(&xml));
    let total: f64 = native.chains.iter().map(|c| c.demand_mbps()).sum();
    assert!((total - 3_000_002.0).abs() < 0.5, "{total}");
}

/// What no topology is: the text that is repeated, how many bytes of it, and what is said.
const BEYOND_REASON: [(&str, &str, usize, &str); 8] = [
    ("<graphml><graph>", "<a>", 50 << 20, "nested more than 32"),
    ("<graphml ", "a='' ", 50 << 20, "more than 32 attributes"),
    (
        "<graphml>",
        "<a xmlns:b='c'/>",
        50 << 20,
        "more than 64 namespaces",
    ),
    ("<graphml>", "<a/>", 50 << 20, "tags and attributes"),
    ("<graphml>", " ", 65 << 20, "larger than 64 MB"),
    ("NODES (\n", "a\n", 50 << 20, "more than 2000000 lines"),
    ("NODES 9\n", "a\n", 50 << 20, "more than 2000000 lines"),
    ("{\"nodes\":", "[", 50 << 20, "nested deeper"),
];

/// With at most a gigabyte of address space, program included.
#[test]
fn what_is_no_topology_is_refused_in_bounded_memory() {
    let directory = Directory::new("beyond-reason");
    for (start, repeated, bytes, says) in BEYOND_REASON {
        let text = format!("{start}{}", repeated.repeat(bytes / repeated.len()));
        let path = directory.file("a", &text);
        for command in [
            "import --graphml",
            "import --sndlib",
            "import --repetita",
            "generate --backbone",
        ] {
            let is_meant = match start.as_bytes()[0] {
                b'<' => !command.contains("repetita"),
                b'{' => command.contains("generate"),
                _ => command.contains(if start.contains('(') {
                    "sndlib"
                } else {
                    "repetita"
                }),
            };
            if !is_meant {
                continue;
            }
            let line = format!("{} {command} {path}", env!("CARGO_BIN_EXE_switchboard-te"));
            let limited = std::process::Command::new("sh")
                .args(["-c", &format!("ulimit -v 1048576; exec {line}")])
                .output()
                .expect("a shell");
            let said = said(&limited);
            assert_eq!(
                limited.status.code(),
                Some(2),
                "{command} {start}{repeated}: {said}"
            );
            assert!(said.contains(says), "{command} {start}{repeated}: {said}");
        }
    }
}
