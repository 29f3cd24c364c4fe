//! Ctrl-C and `--time-limit`: every command ends soon, with an answer that `check` takes, and says meanwhile how far it is.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use te::generate::{self, Division};
use te::model::{Link, Model, Node, Routing};

/// How long anything may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A directory of the test's own, removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("te-stop-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn interrupt(&self) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -INT {}", self.0.id())])
            .status();
        assert!(sent.expect("a shell").success(), "the signal is sent");
    }

    /// The exit code; the process must end by itself.
    fn code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be asked") {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-te"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    program(arguments).output().expect("the program runs")
}

/// A ring of nodes with chords.
fn backbone(count: usize) -> Model {
    let nodes = (0..count)
        .map(|i| Node {
            id: format!("n{i}"),
            coordinates: None,
        })
        .collect();
    let ring = (0..count).map(|i| (i, (i + 1) % count));
    let chords = (0..count / 2).map(|i| (i, (5 * i + count / 3) % count));
    let mut links = Vec::new();
    for (a, b) in ring.chain(chords.filter(|(a, b)| a != b)) {
        for (from, to) in [(a, b), (b, a)] {
            links.push(Link {
                id: format!("l{}", links.len()),
                from,
                to,
                latency_ms: 1.0 + (a % 5) as f64,
                bandwidth_mbps: 10_000.0,
                background_mbps: 0.0,
            });
        }
    }
    Model {
        nodes,
        links,
        max_link_utilization: 1.0,
        routing: Routing::ShortestPath,
        sites: Vec::new(),
        vnfs: Vec::new(),
        customers: Default::default(),
        chains: Vec::new(),
    }
}

/// Writes a model and two demand matrices.
fn write_model(directory: &Directory, nodes: usize, chains: usize) {
    let options = generate::Options {
        vnfs: 20,
        coverage: 0.6,
        chains,
        cpu_per_byte: 0.4,
        division: Division::Proportional,
        ..Default::default()
    };
    let mut model = generate::generate(&backbone(nodes), &options).expect("a workload");
    for (i, chain) in model.chains.iter_mut().enumerate() {
        match i % 16 {
            3 => chain.limits.avoid_sites = vec![i % nodes],
            7 => chain.limits.max_routes = Some(2),
            _ => {}
        }
    }
    fs::write(directory.path("limited.json"), model.to_json()).expect("written");
    // A series takes no limits on the number of routes.
    model
        .chains
        .iter_mut()
        .for_each(|c| c.limits.max_routes = None);
    fs::write(directory.path("model.json"), model.to_json()).expect("written");
    let matrices = r#"{"matrices":[{"name":"day","factor":1},{"name":"night","factor":0.5},{"name":"peak","factor":1.2}]}"#;
    fs::write(directory.path("matrices.json"), matrices).expect("written");
}

/// Every way to solve: its words, and what `check` needs beside the model and the result.
fn solves(directory: &Directory) -> Vec<(Vec<String>, Vec<String>)> {
    let (model, limited) = (directory.path("model.json"), directory.path("limited.json"));
    let matrices = directory.path("matrices.json");
    let mut all = Vec::new();
    for algorithm in [
        "lp",
        "dp",
        "one-hop",
        "dp-latency",
        "anycast",
        "compute-aware",
    ] {
        for objective in ["throughput", "scale", "latency"] {
            all.push((
                format!("solve --model {limited} --algorithm {algorithm} --objective {objective}"),
                format!("--model {limited}"),
            ));
        }
    }
    for kind in ["link", "site"] {
        all.push((
            format!("solve --model {limited} --survive {kind}"),
            format!("--model {limited}"),
        ));
    }
    for change in ["0", "0.1"] {
        all.push((
            format!("solve --model {model} --demands {matrices} --max-change {change}"),
            format!("--model {model} --demands {matrices}"),
        ));
    }
    for plan in ["placement --new-sites *=1", "cloud --add-capacity 100000"] {
        all.push((
            format!("plan {plan} --model {model}"),
            format!("--model {model}"),
        ));
    }
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect();
    all.into_iter().map(|(a, b)| (words(a), words(b))).collect()
}

fn assert_checks(check: &[String], result: &str, what: &str) {
    let mut words = vec!["check", "-q", "--result", result];
    words.extend(check.iter().map(String::as_str));
    let output = run(&words);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{what}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_solve_whose_time_is_up_has_an_answer_that_checks() {
    let directory = Directory::new("time");
    write_model(&directory, 16, 200);
    let result = directory.path("result.json");
    let all = solves(&directory);
    let mut stopped = 0;
    for (solve, check) in &all {
        let what = solve.join(" ");
        let mut words: Vec<&str> = solve.iter().map(String::as_str).collect();
        words.extend(["--time-limit", "0", "--gap", "1e-9", "-o", &result]);
        let output = run(&words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{what}: {error}");
        assert_checks(check, &result, &what);
        let text = fs::read_to_string(&result).expect("a result");
        stopped += usize::from(text.contains("\"status\":\"time-limit\""));
    }
    assert_eq!(stopped, all.len());
}

/// Starts a solve, interrupts it at its first word of progress, and checks what it answers.
fn interrupted(directory: &Directory, solve: &[String], check: &[String], number: usize) {
    let what = solve.join(" ");
    let result = directory.path(&format!("result-{number}.json"));
    let words: Vec<&str> = solve.iter().map(String::as_str).collect();
    let child = program(&words)
        .args(["--time-limit", "600", "--gap", "1e-9", "-o", &result])
        .stderr(Stdio::piped())
        .spawn();
    let mut running = Running(child.expect("the program runs"));
    let mut lines = BufReader::new(running.0.stderr.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("text");
    if !first.is_empty() {
        assert!(first.contains(" s  "), "{what}: {first}");
        running.interrupt();
    }
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert_eq!(running.code(), Some(0), "{what}: {first}{rest}");
    assert_checks(check, &result, &what);
}

#[test]
fn every_solve_that_is_interrupted_has_an_answer_that_checks() {
    let directory = Directory::new("signal");
    write_model(&directory, 20, 1500);
    for (number, (solve, check)) in solves(&directory).iter().enumerate() {
        // The heuristics differ in how they route, not in how they stop.
        let words = solve.join(" ");
        let some = [
            " lp ",
            " dp --objective throughput",
            "compute-aware --objective scale",
        ];
        if words.contains("--objective") && !some.iter().any(|s| words.contains(s)) {
            continue;
        }
        interrupted(&directory, solve, check, number);
    }
}

#[test]
fn a_signal_while_the_model_is_read_ends_the_command_with_a_word() {
    for command in [
        "solve --algorithm lp --objective scale",
        "check --result none",
    ] {
        let mut words: Vec<&str> = command.split(' ').collect();
        words.extend(["--model", "-"]);
        let child = program(&words)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut running = Running(child.expect("the program runs"));
        let mut input = running.0.stdin.take().expect("a pipe");
        // More than a pipe holds: once it is written, the program reads, and listens for signals.
        input.write_all(&vec![b' '; 4 << 20]).expect("it reads");
        running.interrupt();
        assert_eq!(running.code(), Some(130), "{command}");
        let mut text = String::new();
        let mut error = running.0.stderr.take().expect("a pipe");
        error.read_to_string(&mut text).expect("text");
        assert!(text.contains("interrupted"), "{text}");
        drop(input);
    }
}
