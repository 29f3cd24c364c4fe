//! Infeasible models by kind of constraint, for every algorithm, objective and plan: exit code 3, and on standard error the
//! constraint by name and JSON pointer with the quantity that is scarce. And what is merely not found is not called infeasible.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const ALGORITHMS: [&str; 6] = [
    "lp",
    "dp",
    "one-hop",
    "dp-latency",
    "anycast",
    "compute-aware",
];

/// a — b — c, 1 ms and 100 Mbit/s for each link; a site at each node; the VNF f at b and c. The chain x from a to c carries
/// 50 Mbit/s, which are 100 load units.
const MODEL: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"c"}],
 "links": [
  {"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":100,"background_mbps":0},
  {"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":100},
  {"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":100},
  {"id":"cb","from":"c","to":"b","latency_ms":1,"bandwidth_mbps":100}],
 "max_link_utilization": 1,
 "sites": [{"id":"sa","node":"a","capacity":1000},{"id":"sb","node":"b","capacity":1000},{"id":"sc","node":"c","capacity":1000}],
 "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":1000},{"site":"sc","capacity":1000}]}],
 "chains": [{"id":"x","ingress":"a","egress":"c","vnfs":["f"],"minimum_share":1,"forward_mbps":50}]}"#;

/// What of the program a kind of constraint makes infeasible.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// Everything: no demand, however small, can be carried.
    Everywhere,
    /// As [`Where::Everywhere`], but where capacities are left out of account.
    WithCapacities,
    /// Objectives that carry a stated demand, and plans of placement.
    StatedDemand,
    /// As [`Where::StatedDemand`], but new sites can mend it.
    NoPlan,
}

struct Kind {
    name: &'static str,
    edits: &'static [(&'static str, &'static str)],
    infeasible: Where,
    /// What standard error must hold.
    says: &'static [&'static str],
}

const CHAIN: &str = r#""minimum_share":1"#;
const AB_BACKGROUND: &str = r#""background_mbps":0"#;
const DEMAND: &str = r#""forward_mbps":50"#;

const KINDS: [Kind; 15] = [
    Kind {
        name: "background traffic above a link's limit",
        edits: &[(AB_BACKGROUND, r#""background_mbps":101"#)],
        infeasible: Where::Everywhere,
        says: &[
            "link ab (/links/0/background_mbps)",
            "101 Mbit/s",
            "allows 100",
        ],
    },
    Kind {
        name: "background traffic that leaves a link nothing",
        edits: &[(AB_BACKGROUND, r#""background_mbps":100"#)],
        infeasible: Where::WithCapacities,
        says: &[
            "chain x (/chains/0)",
            "link ab (/links/0/bandwidth_mbps)",
            "has 0 Mbit/s",
            "less 100 Mbit/s of background",
        ],
    },
    Kind {
        name: "link capacity",
        edits: &[(DEMAND, r#""forward_mbps":125"#)],
        infeasible: Where::StatedDemand,
        says: &["link ", "(/links/", "at least 1.25 times", "has 100 Mbit/s"],
    },
    Kind {
        name: "the limit on utilisation",
        edits: &[(
            r#""max_link_utilization": 1"#,
            r#""max_link_utilization": 0.4"#,
        )],
        infeasible: Where::StatedDemand,
        says: &[
            "link ",
            "(/links/",
            "max_link_utilization 0.4 of 100 Mbit/s",
            "at least 1.25 times",
        ],
    },
    Kind {
        name: "background traffic that leaves a link too little",
        edits: &[(AB_BACKGROUND, r#""background_mbps":60"#)],
        infeasible: Where::StatedDemand,
        says: &[
            "link ab (/links/0/bandwidth_mbps)",
            "has 40 Mbit/s",
            "at least 50 Mbit/s are needed",
            "less 60 Mbit/s of background",
        ],
    },
    Kind {
        name: "site capacity",
        edits: &[
            (
                r#""node":"a","capacity":1000"#,
                r#""node":"a","capacity":20"#,
            ),
            (
                r#""node":"b","capacity":1000"#,
                r#""node":"b","capacity":20"#,
            ),
            (
                r#""node":"c","capacity":1000"#,
                r#""node":"c","capacity":20"#,
            ),
        ],
        infeasible: Where::StatedDemand,
        says: &["site s", "(/sites/", "has 20 load units"],
    },
    Kind {
        name: "capacity of a VNF at its sites",
        edits: &[
            (
                r#""site":"sb","capacity":1000"#,
                r#""site":"sb","capacity":30"#,
            ),
            (
                r#""site":"sc","capacity":1000"#,
                r#""site":"sc","capacity":50"#,
            ),
        ],
        infeasible: Where::NoPlan,
        says: &[
            "VNF f at site sb (/vnfs/0/deployments/0/capacity)",
            "VNF f at site sc (/vnfs/0/deployments/1/capacity)",
            "has 30 load units",
            "at least 1.25 times",
        ],
    },
    Kind {
        name: "latency limit",
        edits: &[(CHAIN, r#""minimum_share":1,"max_latency_ms":1.5"#)],
        infeasible: Where::Everywhere,
        says: &[
            "chain x (/chains/0/max_latency_ms)",
            "limit is 1.5 ms",
            "takes 2",
        ],
    },
    Kind {
        name: "sites to avoid",
        edits: &[(
            CHAIN,
            r#""minimum_share":1,"avoid":{"sites":["sc","sb","sa"]}"#,
        )],
        infeasible: Where::Everywhere,
        says: &[
            "chain x (/chains/0/avoid/sites/0)",
            "must avoid site sc",
            "must avoid site sb",
        ],
    },
    Kind {
        name: "a link to avoid",
        edits: &[(CHAIN, r#""minimum_share":1,"avoid":{"links":["cb","ab"]}"#)],
        infeasible: Where::Everywhere,
        says: &["chain x (/chains/0/avoid/links/1)", "must avoid link ab"],
    },
    Kind {
        name: "sites to use, more than VNFs",
        edits: &[(CHAIN, r#""minimum_share":1,"use":{"sites":["sb","sc"]}"#)],
        infeasible: Where::Everywhere,
        says: &[
            "chain x (/chains/0/use/sites/0)",
            "chain x (/chains/0/use/sites/1)",
            "must use site sc",
        ],
    },
    Kind {
        name: "a link to use that no route crosses",
        edits: &[(CHAIN, r#""minimum_share":1,"use":{"links":["cb"]}"#)],
        infeasible: Where::Everywhere,
        says: &["chain x (/chains/0/use/links/0)", "must use link cb"],
    },
    Kind {
        name: "a latency limit that a site to avoid breaks",
        edits: &[
            (
                r#""from":"a","to":"b","latency_ms":1"#,
                r#""from":"a","to":"b","latency_ms":3"#,
            ),
            (
                CHAIN,
                r#""minimum_share":1,"max_latency_ms":3.5,"use":{"links":["bc"]}"#,
            ),
        ],
        infeasible: Where::Everywhere,
        says: &[
            "chain x (/chains/0/max_latency_ms)",
            "limit is 3.5 ms",
            "takes 4",
        ],
    },
    Kind {
        name: "sites of a VNF behind a full link",
        edits: &[
            (
                r#"{"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":100"#,
                r#"{"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":100,"background_mbps":100"#,
            ),
            (r#""egress":"c""#, r#""egress":"b""#),
            (r#"{"site":"sb","capacity":1000},"#, ""),
            (
                r#""sites": [{"id":"sa","node":"a","capacity":1000},{"id":"sb","node":"b","capacity":1000},"#,
                r#""sites": [{"id":"sa","node":"c","capacity":1000},"#,
            ),
        ],
        infeasible: Where::WithCapacities,
        says: &[
            "chain x (/chains/0)",
            "link bc (/links/2/bandwidth_mbps)",
            "has 0 Mbit/s",
        ],
    },
    Kind {
        name: "number of routes",
        edits: &[
            (
                r#""site":"sb","capacity":1000"#,
                r#""site":"sb","capacity":60"#,
            ),
            (
                r#""site":"sc","capacity":1000"#,
                r#""site":"sc","capacity":70"#,
            ),
            (CHAIN, r#""minimum_share":1,"max_routes":1"#),
        ],
        infeasible: Where::NoPlan,
        says: &[
            "chain x (/chains/0/max_routes)",
            "at least 50 Mbit/s",
            "has room for 35",
            "VNF f at site sc (/vnfs/0/deployments/1/capacity)",
        ],
    },
];

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let path = std::env::temp_dir().join(format!("te-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Files(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-te"));
    command
        .args(line.split_whitespace())
        .output()
        .expect("the program runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The model with edits, each of which must find something to change.
fn edited(edits: &[(&str, &str)]) -> String {
    let mut text = MODEL.to_owned();
    for (old, new) in edits {
        assert!(text.contains(old), "'{old}' is not in {text}");
        text = text.replace(old, new);
    }
    text
}

/// Commands that a kind makes infeasible.
fn commands(infeasible: Where, model: &str, matrices: &str) -> Vec<String> {
    let objectives: &[&str] = match infeasible {
        Where::Everywhere | Where::WithCapacities => &["throughput", "scale", "latency"],
        Where::StatedDemand | Where::NoPlan => &["throughput", "latency"],
    };
    let mut lines = Vec::new();
    for algorithm in ALGORITHMS {
        for objective in objectives {
            lines.push(format!(
                "solve --model {model} --algorithm {algorithm} --objective {objective}"
            ));
        }
    }
    if infeasible != Where::NoPlan {
        lines.push(format!("plan placement --model {model} --new-sites f=1"));
    }
    if infeasible == Where::Everywhere {
        lines.push(format!(
            "plan placement --model {model} --new-sites f=1 --ignore-capacity"
        ));
    }
    if matches!(infeasible, Where::Everywhere | Where::WithCapacities) {
        lines.push(format!("plan cloud --model {model} --add-capacity 10"));
        lines.push(format!("solve --model {model} --survive link"));
        lines.push(format!("solve --model {model} --survive site"));
        lines.push(format!("solve --model {model} --demands {matrices}"));
        lines.push(format!(
            "solve --model {model} --demands {matrices} --max-change 0.5"
        ));
    }
    lines
}

fn assert_infeasible(line: &str, kind: &str, says: &[&str]) {
    let output = run(line);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{kind}: {line}: {text}");
    assert!(output.stdout.is_empty(), "{kind}: {line}");
    for part in says {
        assert!(text.contains(part), "{kind}: {line}: no '{part}' in {text}");
    }
}

#[test]
fn every_kind_of_constraint_is_named_with_what_is_scarce() {
    let files = Files::new("infeasible");
    let matrices =
        r#"{"matrices":[{"name":"day","demands":[]},{"name":"night","factor":0.5,"demands":[]}]}"#;
    let matrices = files.write("matrices.json", matrices);
    for (number, kind) in KINDS.iter().enumerate() {
        let model = files.write(&format!("{number}.json"), &edited(kind.edits));
        for line in commands(kind.infeasible, &model, &matrices) {
            assert_infeasible(&line, kind.name, kind.says);
        }
    }
}

#[test]
fn the_model_of_the_table_is_feasible_without_its_edits() {
    let files = Files::new("feasible");
    let model = files.write("model.json", MODEL);
    let matrices = files.write(
        "matrices.json",
        r#"{"matrices":[{"name":"day","demands":[]}]}"#,
    );
    for line in commands(Where::Everywhere, &model, &matrices) {
        // Nothing replaces a link of a line.
        let expected = if line.contains("--survive link") {
            3
        } else {
            0
        };
        let output = run(&line);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(expected), "{line}: {text}");
    }
}

#[test]
fn what_a_failure_takes_away_is_named_with_the_failure() {
    let files = Files::new("failure");
    let ring = r#""to":"b","latency_ms":1,"bandwidth_mbps":100},{"id":"ac","from":"a","to":"c","latency_ms":4,"bandwidth_mbps":100},{"id":"ca","from":"c","to":"a","latency_ms":4,"bandwidth_mbps":100}],"#;
    let last = r#""to":"b","latency_ms":1,"bandwidth_mbps":100}],"#;
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 5] = [
        (
            "link",
            &[],
            &[
                "after the failure of link ab",
                "link ab (/links/0): has failed",
                "chain x (/chains/0/vnfs/0)",
                "reaches no site of the VNF 'f'",
            ],
        ),
        (
            "site",
            &[(r#",{"site":"sc","capacity":1000}"#, "")],
            &[
                "after the failure of site sb",
                "site sb (/sites/1): has failed",
                "chain x (/chains/0/vnfs/0)",
                "reaches no site of the VNF 'f'",
            ],
        ),
        (
            "site",
            &[(CHAIN, r#""avoid":{"sites":["sc"]}"#)],
            &[
                "after the failure of site sb",
                "site sb (/sites/1)",
                "chain x (/chains/0/avoid/sites/0)",
                "must avoid site sc",
            ],
        ),
        (
            "link",
            &[
                (last, ring),
                (CHAIN, r#""max_latency_ms":3,"survive_share":0.5"#),
            ],
            &[
                "after the failure of link ab",
                "chain x (/chains/0/max_latency_ms)",
                "limit is 3 ms",
                "takes 4",
            ],
        ),
        (
            "link",
            &[(last, ring), (CHAIN, r#""use":{"links":["ab"]}"#)],
            &[
                "after the failure of link ab",
                "chain x (/chains/0/use/links/0)",
                "must use link ab",
            ],
        ),
    ];
    for (number, (kind, edits, says)) in cases.iter().enumerate() {
        let model = files.write(&format!("{number}.json"), &edited(edits));
        assert_infeasible(
            &format!("solve --model {model} --survive {kind}"),
            kind,
            says,
        );
        // A chain that need not survive stops nothing.
        let free: String = fs::read_to_string(&model).expect("written");
        let free = free
            .replace(r#","survive_share":0.5"#, "")
            .replace(DEMAND, r#""survive_share":0,"forward_mbps":50"#);
        let model = files.write("free.json", &free);
        let output = run(&format!("solve --model {model} --survive {kind}"));
        assert_eq!(output.status.code(), Some(0), "{number}: {}", said(&output));
    }
}

#[test]
fn a_matrix_whose_chain_has_no_route_is_named() {
    let files = Files::new("matrix");
    let model = files.write("model.json", &edited(&[(CHAIN, r#""max_latency_ms":1"#)]));
    let matrices = files.write(
        "matrices.json",
        r#"{"matrices":[{"name":"night","demands":[]}]}"#,
    );
    let line = format!("solve --model {model} --demands {matrices}");
    assert_infeasible(
        &line,
        "matrix",
        &[
            "with the demands of 'night'",
            "chain x (/chains/0/max_latency_ms)",
        ],
    );
}

#[test]
fn no_result_holds_for_a_model_that_breaks_a_limit_by_itself() {
    let files = Files::new("check");
    let (good, result) = (files.write("good.json", MODEL), files.path("result.json"));
    let solved = run(&format!(
        "solve --model {good} --algorithm lp --objective scale -o {result}"
    ));
    assert_eq!(solved.status.code(), Some(0), "{}", said(&solved));
    let model = files.write(
        "model.json",
        &edited(&[(AB_BACKGROUND, r#""background_mbps":101"#)]),
    );
    assert_infeasible(
        &format!("check --model {model} --result {result}"),
        "check",
        &["link ab (/links/0/background_mbps)", "101 Mbit/s"],
    );
}

#[test]
fn what_can_never_be_joined_is_bad_input_and_not_infeasible() {
    let files = Files::new("unreachable");
    let model = files.write(
        "model.json",
        &edited(&[(r#""from":"b","to":"c""#, r#""from":"b","to":"a""#)]),
    );
    for algorithm in ALGORITHMS {
        let output = run(&format!(
            "solve --model {model} --algorithm {algorithm} --objective scale"
        ));
        let text = said(&output);
        assert!(
            output.status.code() == Some(2) && text.contains("/chains/0/egress"),
            "{algorithm}: {text}"
        );
    }
}

#[test]
fn a_heuristic_that_fails_where_another_routing_fits_says_so() {
    let files = Files::new("partial");
    // The nearest site has room for half of the chain.
    let model = files.write(
        "model.json",
        &edited(&[(
            r#""site":"sb","capacity":1000"#,
            r#""site":"sb","capacity":50"#,
        )]),
    );
    let result = files.path("result.json");
    for (algorithm, partial) in [
        ("lp", false),
        ("dp", false),
        ("anycast", true),
        ("dp-latency", true),
    ] {
        let line = format!(
            "solve --model {model} --algorithm {algorithm} --objective latency -o {result}"
        );
        let output = run(&line);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(0), "{line}: {text}");
        let result_text = fs::read_to_string(&result).expect("written");
        assert_eq!(
            result_text.contains(r#""status":"partial""#),
            partial,
            "{line}"
        );
        let says = "25.000000 Mbit/s that should be carried are left, most of the chain 'x'; another routing carries it";
        assert_eq!(text.contains(says), partial, "{line}: {text}");
        let check = run(&format!("check --model {model} --result {result}"));
        assert_eq!(check.status.code(), Some(0), "{line}: {}", said(&check));
        let quiet = run(&format!("{line} -q"));
        assert!(quiet.stderr.is_empty(), "{line} -q: {}", said(&quiet));
    }
}

#[test]
fn a_heuristic_that_leads_nowhere_takes_the_fastest_route_instead() {
    let files = Files::new("dead-end");
    // d is nearest to a, and a dead end: nothing leaves it.
    let model = edited(&[
        (r#"{"id":"c"}]"#, r#"{"id":"c"},{"id":"d"}]"#),
        (
            r#""links": ["#,
            r#""links": [{"id":"ad","from":"a","to":"d","latency_ms":0.1,"bandwidth_mbps":100},"#,
        ),
        (
            r#""sites": ["#,
            r#""sites": [{"id":"sd","node":"d","capacity":1000},"#,
        ),
        (
            r#""deployments":["#,
            r#""deployments":[{"site":"sd","capacity":1000},"#,
        ),
    ]);
    let (model, result) = (files.write("model.json", &model), files.path("result.json"));
    for algorithm in ALGORITHMS {
        let output = run(&format!(
            "solve --model {model} --algorithm {algorithm} --objective scale -o {result}"
        ));
        assert_eq!(
            output.status.code(),
            Some(0),
            "{algorithm}: {}",
            said(&output)
        );
        let check = run(&format!("check --model {model} --result {result}"));
        assert_eq!(
            check.status.code(),
            Some(0),
            "{algorithm}: {}",
            said(&check)
        );
        assert!(
            said(&check).contains("value 2,"),
            "{algorithm}: {}",
            said(&check)
        );
    }
}
