//! `switchboard-te import` and `switchboard-te generate`.

use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::generate::{Division, Options, generate};
use te::import::{
    Defaults, Notes, add_demands, graphml, note_nodes_without_demand, repetita, repetita_demands,
    sndlib,
};
use te::model::Model;

use crate::arguments::Arguments;
use crate::files;

const FORMATS: [&str; 3] = ["--graphml", "--sndlib", "--repetita"];

/// Converts a topology, with its demands as chains without VNFs.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let is_given = |n: &&str| arguments.given(n).is_some();
    let given: Vec<&str> = FORMATS.into_iter().filter(is_given).collect();
    let [format] = given[..] else {
        let message = "give exactly one of --graphml, --sndlib and --repetita";
        return Err(InputError::new("import", Reason::Contradiction, message)
            .in_source("command line")
            .into());
    };
    let defaults = Defaults {
        bandwidth_mbps: arguments.optional_positive("--default-bandwidth")?,
        latency_ms: default_latency(arguments)?,
    };
    let path = arguments.required(format)?;
    let mut notes = Notes::default();
    let model = read(
        format,
        path,
        &defaults,
        arguments.given("--demands"),
        &mut notes,
    )?;
    tell(arguments, path, &notes);
    files::write(arguments.given("-o"), &model.to_json())?;
    Ok(ExitCode::SUCCESS)
}

/// Says what was left out or changed, a line for each kind.
fn tell(arguments: &Arguments, path: &str, notes: &Notes) {
    if !arguments.is_quiet() {
        notes.lines().for_each(|line| eprintln!("{path}: {line}"));
    }
}

fn default_latency(arguments: &Arguments) -> Result<Option<f64>, InputError> {
    arguments.optional_number("--default-latency", 0.0)
}

fn read(
    format: &str,
    path: &str,
    defaults: &Defaults,
    demands: Option<&str>,
    notes: &mut Notes,
) -> Result<Model, InputError> {
    let text = files::text(path)?;
    let (mut model, mut traffic) = match format {
        "--graphml" => (graphml(&text, defaults, notes), Vec::new()),
        "--repetita" => (repetita(&text, defaults, notes), Vec::new()),
        _ => match sndlib(&text, defaults, notes) {
            Ok((model, traffic)) => (Ok(model), traffic),
            Err(e) => (Err(e), Vec::new()),
        },
    };
    if let (Ok(model), Some(file)) = (&model, demands) {
        let text = files::text(file)?;
        traffic = repetita_demands(&text, model.nodes.len()).map_err(|e| e.in_source(file))?;
        note_nodes_without_demand(model, &traffic, notes);
    }
    if let Ok(model) = &mut model {
        add_demands(model, &traffic, notes);
    }
    model.map_err(|e| e.in_source(path))
}

/// Generates a model on a backbone: GraphML, Repetita, SNDlib or a model, told apart by the text.
pub fn run_generate(arguments: &Arguments) -> Result<ExitCode, Error> {
    let divisions = [
        ("equal", Division::Equal),
        ("overbooked", Division::Overbooked),
        ("proportional", Division::Proportional),
    ];
    let options = Options {
        vnfs: arguments.count("--vnfs", 1)? as usize,
        coverage: arguments.number("--coverage", 0.0)?,
        chains: arguments.count("--chains", 1)? as usize,
        cpu_per_byte: arguments.number("--cpu-per-byte", 0.0)?,
        division: arguments.choice("--division", &divisions)?,
        demand: arguments.number("--demand", 1e-9)?,
        seed: arguments.count("--seed", 0)?,
    };
    let path = arguments.required("--backbone")?;
    let defaults = Defaults {
        // Capacities are replaced by invented ones, whatever they are.
        bandwidth_mbps: Some(10_000.0),
        // A node without coordinates must not stop a whole backbone.
        latency_ms: default_latency(arguments)?.or(Some(1.0)),
    };
    let text = files::text(path)?;
    let start = text.trim_start();
    let mut words = start.split_whitespace();
    // An SNDlib section begins with a bracket, a Repetita one with a count.
    let is_repetita = words.next() == Some("NODES") && words.next() != Some("(");
    let mut notes = Notes::default();
    let backbone = if start.starts_with('{') {
        Model::read(text.as_bytes())
    } else if is_repetita {
        repetita(&text, &defaults, &mut notes)
    } else if start.starts_with('<') && text.contains("graphml") {
        graphml(&text, &defaults, &mut notes)
    } else {
        sndlib(&text, &defaults, &mut notes).map(|(model, _)| model)
    };
    let backbone = backbone.map_err(|e| e.in_source(path))?;
    tell(arguments, path, &notes);
    let model = generate(&backbone, &options).map_err(|e| e.in_source("command line"))?;
    files::write(arguments.given("-o"), &model.to_json())?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Absent, Command};

    #[test]
    fn defaults_of_generate_are_those_of_the_library() {
        let command = Command::named("generate").expect("it is a command");
        let default = |name: &str| {
            let opt = command.all_options().find(|o| o.name == name);
            match opt.expect(name).absent {
                Absent::Default(text) => text.to_owned(),
                other => panic!("{name}: {other:?}"),
            }
        };
        let standard = Options::default();
        let expected = [
            ("--vnfs", standard.vnfs.to_string()),
            ("--coverage", standard.coverage.to_string()),
            ("--chains", standard.chains.to_string()),
            ("--cpu-per-byte", standard.cpu_per_byte.to_string()),
            ("--demand", standard.demand.to_string()),
            ("--seed", standard.seed.to_string()),
        ];
        for (name, value) in expected {
            assert_eq!(default(name), value, "{name}");
        }
        assert_eq!(
            (default("--division"), standard.division),
            ("equal".into(), Division::Equal)
        );
    }
}
