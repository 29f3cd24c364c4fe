//! `generate`: the same bytes for the same options, an effect of every option, and models that are solved and checked.

mod support;

use support::{Directory, json, model, number, run, said, written};
use te::generate::{Division, Options, generate};
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::solution::Objective;

/// A ring of six nodes with a chord; node `f` has no coordinates.
const BACKBONE: &str = "NODES 6\nlabel x y\na 1 1\nb 2 1\nc 3 1\nd 3 2\ne 2 2\nf 0 0\n\nEDGES 14\nlabel src dest weight bw delay\n\
    e0 0 1 1 1000 0\ne1 1 0 1 1000 0\ne2 1 2 1 1000 0\ne3 2 1 1 1000 0\ne4 2 3 1 1000 0\ne5 3 2 1 1000 0\ne6 3 4 1 1000 0\n\
    e7 4 3 1 1000 0\ne8 4 5 1 1000 0\ne9 5 4 1 1000 0\ne10 5 0 1 1000 0\ne11 0 5 1 1000 0\ne12 1 4 1 1000 0\ne13 4 1 1 1000 0\n";

const BASE: &str = "--vnfs 6 --chains 20 --coverage 0.5 --cpu-per-byte 0.5 --seed 7";

/// Generates on the backbone with some options.
fn generated(directory: &Directory, options: &str) -> Model {
    model(&text(directory, options))
}

fn text(directory: &Directory, options: &str) -> String {
    let backbone = directory.file("backbone.graph", BACKBONE);
    written(&format!("generate -q --backbone {backbone} {options}"))
}

/// The base options with one of them replaced or added.
fn with(option: &str, value: &str) -> String {
    let words: Vec<&str> = BASE.split(' ').collect();
    let others = words.chunks(2).filter(|pair| pair[0] != option);
    let others: Vec<String> = others.map(|pair| pair.join(" ")).collect();
    format!("{} {option} {value}", others.join(" "))
}

fn demand(model: &Model) -> f64 {
    model.chains.iter().map(|c| c.demand_mbps()).sum()
}

/// Of every site: its capacity, and the capacities of the VNFs there.
fn divided(model: &Model) -> Vec<(f64, Vec<f64>)> {
    let mut sites: Vec<(f64, Vec<f64>)> = model
        .sites
        .iter()
        .map(|s| (s.capacity, Vec::new()))
        .collect();
    for deployment in model.vnfs.iter().flat_map(|v| &v.deployments) {
        sites[deployment.site].1.push(deployment.capacity);
    }
    sites.retain(|(_, parts)| parts.len() > 1);
    assert!(!sites.is_empty(), "some site has two VNFs");
    sites
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn the_same_options_give_the_same_bytes_and_another_seed_others() {
    let directory = Directory::new("generate-seed");
    let first = text(&directory, BASE);
    assert_eq!(first, text(&directory, BASE));
    let standard = text(&directory, "--chains 20 --seed 1");
    assert_eq!(
        standard,
        text(&directory, "--chains 20"),
        "the default is 1"
    );
    let other = generated(&directory, &with("--seed", "8"));
    let first = model(&first);
    assert_eq!(first.nodes, other.nodes);
    assert_ne!(first.chains, other.chains);
}

#[test]
fn counts_coverage_load_and_demand_are_as_asked() {
    let directory = Directory::new("generate-counts");
    let base = generated(&directory, BASE);
    assert_eq!(
        (base.vnfs.len(), base.chains.len(), base.sites.len()),
        (6, 20, 6)
    );
    assert!(base.vnfs.iter().all(|v| v.deployments.len() == 3));
    assert!(base.vnfs.iter().all(|v| v.load_per_mbps == 0.5));
    assert!(base.chains.iter().all(|c| (3..=5).contains(&c.vnfs.len())));

    assert_eq!(generated(&directory, &with("--vnfs", "9")).vnfs.len(), 9);
    let more = generated(&directory, &with("--chains", "33"));
    assert_eq!(more.chains.len(), 33);
    // However many chains there are, they share the same traffic.
    assert!(is_near(demand(&more), demand(&base)));
    let everywhere = generated(&directory, &with("--coverage", "1"));
    assert!(everywhere.vnfs.iter().all(|v| v.deployments.len() == 6));
    let heavy = generated(&directory, &with("--cpu-per-byte", "0.9"));
    assert!(heavy.vnfs.iter().all(|v| v.load_per_mbps == 0.9));
    let high = generated(&directory, &with("--demand", "2"));
    assert!(is_near(demand(&high), 2.0 * demand(&base)));
    assert_eq!((&high.links, &high.sites), (&base.links, &base.sites));
}

#[test]
fn each_division_shares_a_site_as_its_name_says() {
    let directory = Directory::new("generate-division");
    let sites = |name: &str| divided(&generated(&directory, &with("--division", name)));
    for (capacity, parts) in sites("equal") {
        let each = capacity / parts.len() as f64;
        assert!(parts.iter().all(|&p| is_near(p, each)));
    }
    for (capacity, parts) in sites("overbooked") {
        let each = (4.0 * capacity / parts.len() as f64).min(capacity);
        assert!(parts.iter().all(|&p| is_near(p, each)));
    }
    let proportional = sites("proportional");
    for (capacity, parts) in &proportional {
        assert!(is_near(parts.iter().sum(), *capacity));
    }
    let differ = |parts: &[f64]| parts.iter().any(|&p| !is_near(p, parts[0]));
    assert!(proportional.iter().any(|(_, parts)| differ(parts)));
}

#[test]
fn links_get_a_line_rate_that_their_background_leaves_room_on() {
    let directory = Directory::new("generate-links");
    let model = generated(&directory, BASE);
    let rates = [40_000.0, 100_000.0, 200_000.0, 400_000.0, 500_000.0];
    for link in &model.links {
        assert!(rates.contains(&link.bandwidth_mbps), "{}", link.id);
        assert!(link.background_mbps < 0.11 * link.bandwidth_mbps);
    }
    let default = |options: &str| {
        let links = generated(&directory, options).links;
        links
            .iter()
            .find(|l| l.id == "e8")
            .expect("a link")
            .latency_ms
    };
    assert_eq!(default(BASE), 1.0, "f has no coordinates");
    assert_eq!(default(&with("--default-latency", "3.5")), 3.5);
}

#[test]
fn every_form_of_backbone_gives_the_same_workload() {
    let directory = Directory::new("generate-forms");
    let graph = directory.file("a.graph", BACKBONE);
    let imported = directory.path("a.json");
    written(&format!(
        "import -q --repetita {graph} --default-latency 1 -o {imported}"
    ));
    let from = |path: &str| written(&format!("generate -q --backbone {path} {BASE}"));
    assert_eq!(from(&imported), from(&graph));
    let native = directory.file("a.txt", "NODES (\n a ( 1 1 )\n b ( 2 1 )\n)\nLINKS (\n l ( a b ) 10 0 0 0 ( )\n)\nDEMANDS (\n d ( a b ) 1 5 UNLIMITED\n)\n");
    let graphml = directory.file("a.graphml", "<graphml><key attr.name=\"Latitude\" for=\"node\" id=\"y\"/><key attr.name=\"Longitude\" for=\"node\" id=\"x\"/><graph>\
        <node id=\"a\"><data key=\"y\">1</data><data key=\"x\">1</data></node><node id=\"b\"><data key=\"y\">1</data><data key=\"x\">2</data></node>\
        <edge source=\"a\" target=\"b\"/></graph></graphml>");
    let (native, graphml) = (model(&from(&native)), model(&from(&graphml)));
    assert_eq!(native.chains, graphml.chains);
    assert_eq!(native.links.len(), graphml.links.len());
    assert_eq!(native.links[1].latency_ms, graphml.links[1].latency_ms);
}

#[test]
fn what_is_generated_is_solved_and_checked() {
    let directory = Directory::new("generate-solve");
    for division in ["equal", "overbooked", "proportional"] {
        let path = directory.file("m.json", &text(&directory, &with("--division", division)));
        let result = directory.path("r.json");
        let mut value = [0.0; 2];
        for (i, algorithm) in ["lp", "dp"].iter().enumerate() {
            for objective in ["scale", "throughput"] {
                let solve = format!("--algorithm {algorithm} --objective {objective}");
                written(&format!("solve -q --model {path} {solve} -o {result}"));
                written(&format!("check -q --model {path} --result {result}"));
                value[i] = number(&json(&directory.read("r.json")), "value");
            }
        }
        assert!(value[1] <= value[0] * (1.0 + 1e-6), "{division}: {value:?}");
    }
}

/// With fewer chains than visit every VNF, and few sites for each.
#[test]
fn a_workload_of_any_size_is_a_model_that_is_solved() {
    let directory = Directory::new("generate-sizes");
    let backbone = directory.file("backbone.graph", BACKBONE);
    let imported = format!("import -q --repetita {backbone} --default-latency 1");
    let backbone = model(&written(&imported));
    let mut idle = 0;
    for (seed, chains) in (1..=200).enumerate() {
        for division in [
            Division::Equal,
            Division::Overbooked,
            Division::Proportional,
        ] {
            let options = Options {
                chains,
                division,
                coverage: [0.01, 0.5, 1.0][seed % 3],
                seed: seed as u64,
                cpu_per_byte: 0.5,
                ..Options::default()
            };
            let what = format!("{options:?}");
            let generated = generate(&backbone, &options).expect(&what);
            // As it is read from its file, with every range of the contract.
            let generated = model(&generated.to_json());
            let visited = |vnf: &usize| generated.chains.iter().any(|c| c.vnfs.contains(vnf));
            let (used, others): (Vec<usize>, Vec<usize>) =
                (0..generated.vnfs.len()).partition(visited);
            let deployed = |vnf: &usize| !generated.vnfs[*vnf].deployments.is_empty();
            assert!(used.iter().all(deployed), "{what}");
            let left_out = division == Division::Proportional;
            assert!(others.iter().all(|v| deployed(v) != left_out), "{what}");
            idle += others.len();
            let instance = Instance::new(&generated, Demand::Full).expect(&what);
            let options = lp::Options {
                gap: 0.5,
                ..lp::Options::default()
            };
            let (scale, monitor) = (Objective::Scale, lp::Monitor::default());
            let solved = lp::solve(&generated, &instance, scale, &options, &monitor);
            assert!(solved.expect(&what).value > 0.0, "{what}");
        }
    }
    assert!(idle > 1000, "{idle} VNFs without a chain");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let directory = Directory::new("generate-refused");
    let backbone = directory.file("a.graph", BACKBONE);
    let apart = BACKBONE.replace("EDGES 14", "EDGES 2");
    let apart = directory.file("apart.graph", &apart);
    let cases = [
        ("--coverage", "0"),
        ("--coverage", "1.01"),
        ("--vnfs", "4"),
        ("--chains", "0"),
        ("--cpu-per-byte", "-1"),
        ("--cpu-per-byte", "1e-13"),
        ("--cpu-per-byte", "1e13"),
        ("--demand", "0"),
        ("--demand", "1e10"),
        ("--division", "fair"),
        ("--seed", "-1"),
        ("--default-latency", "x"),
    ];
    let refused = |line: &str, named: &str| {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(named), "{line}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{line}");
    };
    for (option, value) in cases {
        let options = with(option, value);
        refused(&format!("generate --backbone {backbone} {options}"), option);
    }
    refused(
        &format!("generate --backbone {apart} {BASE}"),
        "not connected",
    );
    refused(&format!("generate {BASE}"), "--backbone");
}
