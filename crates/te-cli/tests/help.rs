//! `--help` as a person meets it: on standard output, with every option that the command takes.

use std::process::{Command, Output};

/// Each command with an option that must be given, one with a default, and a word of what the latter's default is.
const COMMANDS: [(&str, &str, &str); 7] = [
    ("solve", "--model", "--gap SHARE|1e-4"),
    ("plan cloud", "--add-capacity", "--time-limit SECONDS|60"),
    ("plan placement", "--new-sites", "--ignore-capacity|fastest"),
    ("check", "--result", "--demands M1|the model's own"),
    ("import", "--graphml", "--default-latency MS|an error"),
    ("generate", "--backbone", "--chains N|10000"),
    ("serve", "--credentials", "--name NAME|process id"),
];

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_switchboard-te"))
        .args(line.split_whitespace())
        .output()
        .expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The lines of help that begin with an option, each with the lines that go on with it.
fn described(help: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for line in help.lines() {
        if line.starts_with("  -") {
            options.push(line.trim().to_owned());
        } else if line.starts_with("            ")
            && let Some(last) = options.last_mut()
        {
            *last = format!("{last} {}", line.trim());
        }
    }
    options
}

#[test]
fn every_way_of_asking_prints_the_same_on_standard_output_and_succeeds() {
    for (command, ..) in COMMANDS {
        let lines = [
            format!("{command} --help"),
            format!("{command} -h"),
            format!("help {command}"),
            format!("{command} -q --gap 7 --help"),
        ];
        let outputs: Vec<Output> = lines.iter().map(|line| run(line)).collect();
        for (line, output) in lines.iter().zip(&outputs) {
            assert_eq!(output.status.code(), Some(0), "{line}");
            assert!(output.stderr.is_empty(), "{line}: {}", text(&output.stderr));
            assert_eq!(output.stdout, outputs[0].stdout, "{line}");
        }
        let help = text(&outputs[0].stdout);
        assert!(
            help.contains(&format!("switchboard-te {command} ")),
            "{help}"
        );
        assert!(help.lines().all(|l| l.chars().count() <= 120), "{help}");
    }
}

#[test]
fn help_describes_every_option_that_is_taken_with_its_default() {
    for (command, needed, standard) in COMMANDS {
        let help = text(&run(&format!("{command} --help")).stdout);
        let options = described(&help);
        let refusal = text(&run(&format!("{command} --nonsense")).stderr);
        let (_, known) = refusal
            .split_once("known: ")
            .expect("a refusal says what is known");
        let mut names: Vec<&str> = known.trim().split(", ").collect();
        let mut listed: Vec<&str> = options
            .iter()
            .map(|o| o.split(' ').next().unwrap_or(""))
            .collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, names, "{command}");
        let find = |start: &str| {
            let option = options.iter().find(|o| o.starts_with(start));
            option.unwrap_or_else(|| panic!("{command} has no {start}: {help}"))
        };
        assert!(find(needed).contains("needed"), "{}", find(needed));
        let (start, default) = standard.split_once('|').expect("two parts");
        assert!(find(start).contains(default), "{}", find(start));
        for option in &options {
            assert!(
                option.split_whitespace().count() >= 4,
                "says too little: {option}"
            );
        }
    }
}

#[test]
fn what_help_calls_needed_is_refused_by_name_when_it_is_missing() {
    for (command, needed, _) in COMMANDS {
        let output = run(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        let help = text(&run(&format!("help {command}")).stdout);
        let options = described(&help);
        let mut missing = options.iter().filter(|o| o.contains("needed"));
        let is_named = |o: &String| said.contains(o.split(' ').next().unwrap_or(""));
        assert!(missing.any(is_named), "{command}, {needed}: {said}");
    }
}

#[test]
fn the_overview_names_every_command_and_an_unknown_one_is_refused() {
    for line in ["help", "--help", "-h"] {
        let output = run(line);
        let overview = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{line}");
        for (command, ..) in COMMANDS {
            assert!(overview.contains(command), "{line}: {overview}");
        }
    }
    let both = text(&run("help plan").stdout);
    assert!(both.contains("--add-capacity") && both.contains("--new-sites"));
    for line in ["", "plan", "help solv", "solv --help", "plan nothing"] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "'{line}'");
        assert!(text(&output.stderr).contains("plan placement"), "'{line}'");
        assert!(output.stdout.is_empty(), "'{line}'");
    }
}
