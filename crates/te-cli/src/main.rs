//! The command `switchboard-te`. The contract is in `docs/traffic-engineering.md`.
//!
//! Exit codes: 0 solved, 1 a check found violations, 2 bad input, 3 infeasible, 4 neither an answer nor a
//! proof that there is none, 130 interrupted before there was an answer.

mod arguments;
mod check;
mod commands;
mod files;
mod import;
mod interruption;
mod plan;
mod progress;
mod series;
mod serve;
mod solve;
mod survive;

use std::process::ExitCode;

use arguments::Arguments;
use commands::{COMMANDS, Command};
use te::error::{Error, InputError, Reason};

type Run = fn(&Arguments) -> Result<ExitCode, Error>;

/// What carries each command out.
const RUNS: [(&str, Run); 7] = [
    ("solve", solve::run),
    ("plan cloud", plan::cloud),
    ("plan placement", plan::placement),
    ("check", check::run),
    ("import", import::run),
    ("generate", import::run_generate),
    ("serve", serve::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(text) = help(&words) {
        return match files::write(None, &text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => bad_input(&e),
        };
    }
    match run(&words) {
        Ok(code) => code,
        Err(Error::Input(e)) => bad_input(&e),
        Err(Error::Infeasible(e)) => {
            eprintln!("switchboard-te: {e}");
            for constraint in &e.constraints {
                eprintln!("switchboard-te: constraint: {constraint}");
            }
            ExitCode::from(3)
        }
        Err(Error::NotFound(e)) => {
            eprintln!("switchboard-te: {e}");
            ExitCode::from(4)
        }
    }
}

fn bad_input(error: &InputError) -> ExitCode {
    eprintln!("switchboard-te: {error}");
    ExitCode::from(2)
}

/// The command that words begin with, and how many of them it takes.
fn command(words: &[String]) -> Result<(&'static Command, usize), InputError> {
    for taken in [2, 1] {
        if let Some(command) = words
            .get(..taken)
            .and_then(|w| Command::named(&w.join(" ")))
        {
            return Ok((command, taken));
        }
    }
    let first = words.first().map_or("", String::as_str);
    let known: Vec<&str> = COMMANDS.iter().map(|c| c.name).collect();
    let what = match (first, words.get(1)) {
        ("", _) => "no command is given".into(),
        ("plan", Some(second)) => format!("'plan {second}' is no plan"),
        ("plan", None) => "plan what".into(),
        _ => format!("'{first}' is no command"),
    };
    let message = format!("{what}; known: {}", known.join(", "));
    Err(InputError::new("command", Reason::UnknownChoice, message).in_source("command line"))
}

/// The help that words ask for: `help`, `help COMMAND` or `COMMAND ... --help`, where `plan` stands for both plans.
fn help(words: &[String]) -> Option<String> {
    let asks = |word: &String| matches!(word.as_str(), "--help" | "-h");
    let about = match words.first()?.as_str() {
        "help" | "--help" | "-h" => &words[1..],
        _ if words.iter().any(asks) => words,
        _ => return None,
    };
    match (command(about), about.first().map(String::as_str)) {
        (Ok((command, _)), _) => Some(command.help()),
        (Err(_), None) => Some(commands::overview()),
        (Err(_), Some("plan")) => {
            let plans = COMMANDS.iter().filter(|c| c.name.starts_with("plan "));
            Some(plans.map(Command::help).collect::<Vec<_>>().join("\n"))
        }
        // Carrying the words out refuses them with what is known.
        (Err(_), Some(_)) => None,
    }
}

fn run(words: &[String]) -> Result<ExitCode, Error> {
    let words = match words.first().map(String::as_str) {
        Some("help") => &words[1..],
        _ => words,
    };
    let (command, taken) = command(words)?;
    let arguments = Arguments::parse(&words[taken..], command)?;
    if command.name != "serve" {
        interruption::listen();
    }
    let run = RUNS.iter().find(|(name, _)| *name == command.name);
    run.expect("every command is carried out by something").1(&arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_carried_out_and_has_no_option_twice() {
        let names: Vec<&str> = RUNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, COMMANDS.iter().map(|c| c.name).collect::<Vec<_>>());
        for command in &COMMANDS {
            let mut options: Vec<&str> = command.all_options().map(|o| o.name).collect();
            options.sort_unstable();
            let count = options.len();
            options.dedup();
            assert_eq!(options.len(), count, "{}", command.name);
        }
    }
}
