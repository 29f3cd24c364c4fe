//! The command as a user's shell meets it: exit codes, standard input and output, silence, and what else is written.

mod support;

use support::{Directory, answer, json, member, model, number, run, run_with_input, said, written};
use te::json::Value;

/// a — b — c with 100 Mbit/s and 1 ms each way; f at b and c; 50 Mbit/s from a to c through f.
const MODEL: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"c"}],
 "links": [
  {"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":100},{"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":100},
  {"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":100},{"id":"cb","from":"c","to":"b","latency_ms":1,"bandwidth_mbps":100},
  {"id":"ca","from":"c","to":"a","latency_ms":9,"bandwidth_mbps":100},{"id":"ac","from":"a","to":"c","latency_ms":9,"bandwidth_mbps":100}],
 "sites": [{"id":"sa","node":"a","capacity":300},{"id":"sb","node":"b","capacity":200},{"id":"sc","node":"c","capacity":200}],
 "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":200},{"site":"sc","capacity":200}]}],
 "chains": [{"id":"x","ingress":"a","egress":"c","vnfs":["f"],"forward_mbps":50}]}"#;

const MATRICES: &str = r#"{"matrices":[{"name":"day","factor":1},{"name":"night","factor":0.5}]}"#;
const GRAPH: &str = "NODES 2\nlabel x y\na 1 1\nb 2 2\n\nEDGES 2\nlabel src dest weight bw delay\ne0 0 1 1 1000 0\ne1 1 0 1 1000 0\n";

/// Files that all tests need.
struct Files {
    directory: Directory,
    model: String,
    too_much: String,
    matrices: String,
    graph: String,
}

impl Files {
    fn new(name: &str) -> Files {
        let directory = Directory::new(name);
        let demand = r#""forward_mbps":50"#;
        let must = r#""minimum_share":1,"forward_mbps":500"#;
        Files {
            model: directory.file("model.json", MODEL),
            too_much: directory.file("too-much.json", &MODEL.replace(demand, must)),
            matrices: directory.file("matrices.json", MATRICES),
            graph: directory.file("a.graph", GRAPH),
            directory,
        }
    }

    /// Every way of the command that ends with an answer of its own, reading `model` and `graph`.
    fn commands(&self, model: &str, graph: &str) -> Vec<String> {
        let matrices = &self.matrices;
        vec![
            format!("solve --model {model} --algorithm lp --objective scale"),
            format!("solve --model {model} --algorithm dp --objective latency"),
            format!("solve --model {model}"),
            format!("solve --model {model} --survive link"),
            format!("solve --model {model} --demands {matrices}"),
            format!("plan cloud --model {model} --add-capacity 100"),
            format!("plan placement --model {model} --new-sites f=1"),
            format!("import --repetita {graph}"),
            format!("generate --backbone {graph} --vnfs 5 --chains 3"),
        ]
    }
}

/// An answer without what differs from run to run.
fn timeless(text: &str) -> String {
    let Some((before, after)) = text.split_once("\"seconds\":") else {
        return text.to_owned();
    };
    let end = after.find([',', '}']).expect("it goes on");
    format!("{before}{}", &after[end..])
}

#[test]
fn every_command_ends_with_0_and_its_answer_on_standard_output_or_in_a_file() {
    let files = Files::new("answers");
    for line in files.commands(&files.model, &files.graph) {
        let plain = run(&line);
        let text = answer(&plain, &line);
        json(&text);
        assert!(plain.stderr.is_empty(), "{line}: {}", said(&plain));
        assert_eq!(timeless(&written(&format!("{line} -o -"))), timeless(&text));
        let path = files.directory.path("answer.json");
        let into = run(&format!("{line} -o {path}"));
        assert_eq!(answer(&into, &line), "", "{line}");
        let kept = files.directory.read("answer.json");
        assert_eq!(timeless(&kept), timeless(&text), "{line}");
    }
    let names = files.directory.names();
    assert!(names.iter().all(|n| !n.contains("partial")), "{names:?}");
}

#[test]
fn a_dash_is_standard_input() {
    let files = Files::new("dash");
    let named = files.commands(&files.model, &files.graph);
    for (line, named) in files.commands("-", "-").iter().zip(named) {
        let input = if line.contains("--model") {
            MODEL
        } else {
            GRAPH
        };
        let from_input = answer(&run_with_input(line, input), line);
        assert_eq!(timeless(&from_input), timeless(&written(&named)), "{line}");
    }
    let result = written(&format!("solve --model {}", files.model));
    let line = format!("check --model {} --result -", files.model);
    let output = run_with_input(&line, &result);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let path = files.directory.file("result.json", &result);
    let line = format!("check --model - --result {path}");
    assert_eq!(run_with_input(&line, MODEL).status.code(), Some(0));
    let line = format!("solve --model {} --demands -", files.model);
    answer(&run_with_input(&line, MATRICES), &line);
    let refused = run_with_input("solve --model -", "{");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said(&refused).starts_with("switchboard-te: -: "),
        "{}",
        said(&refused)
    );
}

#[test]
fn check_says_what_holds_or_names_each_violation_with_1() {
    let files = Files::new("check");
    let (model, directory) = (&files.model, &files.directory);
    let result = directory.path("result.json");
    written(&format!(
        "solve --model {model} --algorithm lp --objective scale -o {result}"
    ));
    let line = format!("check --model {model} --result {result}");
    let holds = run(&line);
    assert_eq!(answer(&holds, &line), "");
    assert!(said(&holds).contains("holds; value 2"), "{}", said(&holds));
    for quiet in ["-q", "--quiet"] {
        let output = run(&format!("{line} {quiet}"));
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{}", said(&output));
    }

    // The same routes do not carry what the result states on a model with half the bandwidth and compute.
    let small = MODEL.replace(":100}", ":50}").replace(":200}", ":60}");
    let small = directory.file("small.json", &small);
    for options in ["", "-q"] {
        let output = run(&format!(
            "check --model {small} --result {result} {options}"
        ));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(output.stdout.is_empty());
        assert!(said.contains("/value: "), "{said}");
        let last = said.lines().last().expect("a word");
        let count: usize = last
            .split(' ')
            .nth(1)
            .expect("a count")
            .parse()
            .expect("a number");
        assert!(last.ends_with("violations"), "{said}");
        assert_eq!(said.lines().count(), count + 1, "{said}");
    }
}

#[test]
fn bad_input_of_every_command_ends_with_2_and_the_file() {
    let files = Files::new("bad");
    let bad = files
        .directory
        .file("bad.json", &MODEL.replace("\"to\":\"b\"", "\"to\":\"z\""));
    let cut = files.directory.file("cut.json", &MODEL[..300]);
    let absent = files.directory.path("absent.json");
    let here = files.directory.path(".");
    let (model, matrices) = (&files.model, &files.matrices);
    for (path, says) in [
        (&bad, "/links/0/to: "),
        (&cut, "cut short"),
        (&absent, "cannot open"),
        (&here, "directory"),
    ] {
        let mut lines = files.commands(path, path);
        if path == &bad || path == &cut {
            lines.retain(|l| !l.starts_with("import") && !l.starts_with("generate"));
        }
        lines.push(format!("check --model {path} --result {matrices}"));
        for line in lines {
            let output = run(&line);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{line}: {said}");
            assert!(output.stdout.is_empty(), "{line}");
            assert!(
                said.contains(path.as_str()) && said.contains(says),
                "{line}: {said}"
            );
        }
    }
    for line in [
        format!("check --model {model} --result {absent}"),
        format!("check --model {model} --result {cut}"),
        format!("check --model {model} --result {matrices}"),
        format!("solve --model {model} --demands {absent}"),
        format!("import --repetita {} --demands {absent}", files.graph),
        format!("solve --model {model} -o {absent}/result.json"),
        format!(
            "plan cloud --model {model} --add-capacity 1 --planned-model {absent}/planned.json"
        ),
    ] {
        let output = run(&line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(output.stdout.is_empty(), "{line}");
        assert_eq!(
            said(&output).lines().count(),
            1,
            "{line}: {}",
            said(&output)
        );
    }
}

#[test]
fn what_cannot_be_carried_ends_with_3_and_writes_nothing() {
    let files = Files::new("infeasible");
    let path = files.directory.path("none.json");
    let model = &files.too_much;
    for line in [
        format!("solve --model {model}"),
        format!("solve --model {model} --algorithm lp --objective latency"),
        format!("plan placement --model {model} --new-sites f=1"),
    ] {
        let output = run(&format!("{line} -q -o {path}"));
        assert_eq!(output.status.code(), Some(3), "{line}: {}", said(&output));
        assert!(
            said(&output).contains("switchboard-te: constraint: "),
            "{line}"
        );
        assert!(!std::path::Path::new(&path).exists(), "{line}");
    }
}

/// Nothing limits a chain that stays at its node and costs no compute: every factor is beaten, and the demand as it is fits.
#[test]
fn demands_that_nothing_limits_have_no_largest_factor() {
    let directory = Directory::new("line-unlimited");
    let ends = r#""ingress":"a","egress":"c","vnfs":["f"]"#;
    let stays = r#""ingress":"b","egress":"b","vnfs":["f"]"#;
    let free = MODEL
        .replace(ends, stays)
        .replace(r#""load_per_mbps":1"#, r#""load_per_mbps":0"#);
    let model = directory.file("free.json", &free);
    let matrices = directory.file("matrices.json", MATRICES);
    for line in [
        "solve --algorithm lp --objective scale".to_owned(),
        "solve --algorithm dp --objective scale".to_owned(),
        "solve --algorithm anycast --objective scale".to_owned(),
        "solve --survive link".to_owned(),
        format!("solve --demands {matrices}"),
        "plan cloud --add-capacity 100".to_owned(),
    ] {
        let output = run(&format!("{line} --model {model}"));
        let error = said(&output);
        assert_eq!(output.status.code(), Some(3), "{line}: {error}");
        let scarce =
            "constraint: all chains (/chains): cross no link and visit no VNF that costs compute";
        assert!(
            error.contains("no factor on them is the largest") && error.contains(scarce),
            "{line}: {error}"
        );
        assert!(output.stdout.is_empty(), "{line}");
    }
    for objective in ["throughput", "latency"] {
        let solved = written(&format!(
            "solve -q --model {model} --algorithm lp --objective {objective}"
        ));
        assert_eq!(number(&json(&solved), "carried_mbps"), 50.0, "{solved}");
    }
}

#[test]
fn options_that_no_command_can_mean_are_refused_by_name() {
    let files = Files::new("options");
    let (model, matrices) = (&files.model, &files.matrices);
    let solve = format!("solve --model {model}");
    let placement = format!("plan placement --model {model}");
    let import = format!("import --repetita {}", files.graph);
    for (line, says) in [
        (format!("{solve} --threads 65"), ["--threads", "64"]),
        (format!("{solve} --threads 0"), ["--threads", "1"]),
        (
            format!("{solve} --gap 0"),
            ["--gap", "at least 0.000000001"],
        ),
        (format!("{solve} --time-limit -1"), ["--time-limit", "-1"]),
        (
            format!("{solve} --algorithm best"),
            ["--algorithm", "compute-aware"],
        ),
        (
            format!("{solve} --objective best"),
            ["--objective", "throughput"],
        ),
        (format!("{solve} --survive node"), ["--survive", "site"]),
        (
            format!("{solve} --survive link --algorithm dp"),
            ["--survive", "lp"],
        ),
        (
            format!("{solve} --survive link --demands {matrices}"),
            ["--survive", "--demands"],
        ),
        (
            format!("{solve} --max-change 0.5"),
            ["--max-change", "--demands"],
        ),
        (
            format!("{solve} --demands {matrices} --max-change 2"),
            ["--max-change", "at most 1"],
        ),
        (format!("{solve} --demands="), ["--demands", "empty"]),
        (
            format!("{solve} --demands {matrices},"),
            ["--demands", "empty"],
        ),
        ("solve --model=".into(), ["--model", "empty"]),
        (format!("{solve} -o"), ["-o", "value"]),
        (format!("{solve} --model {model}"), ["--model", "twice"]),
        (
            format!("{placement} --new-sites f"),
            ["--new-sites", "vnf=N"],
        ),
        (
            format!("{placement} --new-sites f=x"),
            ["--new-sites", "'x'"],
        ),
        (
            format!("{placement} --new-sites g=1"),
            ["--new-sites", "'g'"],
        ),
        (
            format!("{placement} --new-sites f=1,f=1"),
            ["--new-sites", "'f' is given twice"],
        ),
        (
            format!("{placement} --new-sites *=1,*=1"),
            ["--new-sites", "'*' is given twice"],
        ),
        (
            format!("plan cloud --model {model} --add-capacity 0"),
            ["--add-capacity", "0"],
        ),
        (
            format!("{import} --graphml {model}"),
            ["--graphml", "exactly one"],
        ),
        (
            format!("{import} --default-bandwidth 0"),
            ["--default-bandwidth", "above 0"],
        ),
        (
            format!("{import} --default-latency -1"),
            ["--default-latency", "-1"],
        ),
        // It replaces all bandwidths.
        (
            format!("generate --backbone {model} --default-bandwidth 5"),
            ["--default-bandwidth", "unknown here"],
        ),
        ("serve".into(), ["--credentials", "optimiser.default.json"]),
    ] {
        let output = run(&line);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(
            said.starts_with("switchboard-te: command line: "),
            "{line}: {said}"
        );
        assert!(says.iter().all(|s| said.contains(s)), "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    let absent = files.directory.path("absent.json");
    let output = run(&format!("serve --credentials {absent}"));
    let expected = format!("switchboard-te: {absent}: ");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).starts_with(&expected), "{}", said(&output));
    assert!(!said(&output).contains("(document)"), "{}", said(&output));
}

#[test]
fn a_name_in_new_sites_goes_before_the_star() {
    let files = Files::new("star");
    for order in ["*=0,f=1", "f=1,*=0"] {
        let line = format!("plan placement --model {} --new-sites {order}", files.model);
        let plan = json(&written(&line));
        assert!(matches!(member(&plan, "placed"), Value::List(placed) if placed.len() == 1));
    }
}

#[test]
fn a_planned_model_is_the_model_with_the_plan_carried_out() {
    let files = Files::new("planned");
    let path = files.directory.path("planned.json");
    let old = model(MODEL);
    let before = written(&format!(
        "solve --model {} --algorithm lp --objective scale",
        files.model
    ));
    assert!((number(&json(&before), "value") - 2.0).abs() < 1e-3);

    let cloud = "plan cloud --add-capacity 100";
    let plan = json(&written(&format!(
        "{cloud} --model {} --planned-model {path}",
        files.model
    )));
    let planned = model(&files.directory.read("planned.json"));
    let compute = |model: &te::model::Model| model.sites.iter().map(|s| s.capacity).sum::<f64>();
    assert!((compute(&planned) - compute(&old) - 100.0).abs() < 1e-6);
    assert_eq!((&planned.links, &planned.chains), (&old.links, &old.chains));
    let after = written(&format!(
        "solve --model {path} --algorithm lp --objective scale"
    ));
    let (after, value) = (number(&json(&after), "value"), number(&plan, "value"));
    assert!((after / value - 1.0).abs() < 1e-3, "{after} {value}");

    let placement = "plan placement --new-sites f=1";
    let plan = json(&written(&format!(
        "{placement} --model {} --planned-model {path}",
        files.model
    )));
    let planned = model(&files.directory.read("planned.json"));
    assert_eq!((&planned.sites, &planned.links), (&old.sites, &old.links));
    assert_eq!(planned.vnfs[0].deployments.len(), 3);
    let after = written(&format!(
        "solve --model {path} --algorithm lp --objective latency"
    ));
    let (after, value) = (number(&json(&after), "value"), number(&plan, "value"));
    assert!(after <= value * (1.0 + 1e-3), "{after} {value}");
}
