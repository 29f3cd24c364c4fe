//! `switchboard-te import` and `switchboard-te generate`.

use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::generate::{Division, Options, generate};
use te::import::{Defaults, add_demands, graphml, repetita, repetita_demands, sndlib};
use te::model::Model;

use crate::arguments::Arguments;
use crate::files;

const VALUED: [&str; 7] = [
    "--graphml",
    "--sndlib",
    "--repetita",
    "--demands",
    "--default-bandwidth",
    "--default-latency",
    "-o",
];

/// Converts a topology, with its demands as chains without VNFs.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    let arguments = Arguments::parse(words, &VALUED, &["-q", "--quiet"])?;
    let given: Vec<&str> = VALUED[..3]
        .iter()
        .copied()
        .filter(|n| arguments.get(n).is_some())
        .collect();
    let [format] = given[..] else {
        let message = "give exactly one of --graphml, --sndlib and --repetita";
        return Err(InputError::new("import", Reason::Contradiction, message)
            .in_source("command line")
            .into());
    };
    let defaults = defaults(&arguments)?;
    let path = arguments.required(format)?;
    let model = read(format, path, &defaults, arguments.get("--demands"))?;
    files::write(arguments.get("-o"), &model.to_json())?;
    Ok(ExitCode::SUCCESS)
}

fn defaults(arguments: &Arguments) -> Result<Defaults, InputError> {
    let optional = |name: &str| {
        arguments
            .get(name)
            .map(|_| arguments.number(name, 0.0, 0.0))
            .transpose()
    };
    Ok(Defaults {
        bandwidth_mbps: optional("--default-bandwidth")?.filter(|b| *b > 0.0),
        latency_ms: optional("--default-latency")?,
    })
}

fn read(
    format: &str,
    path: &str,
    defaults: &Defaults,
    demands: Option<&str>,
) -> Result<Model, InputError> {
    let text = files::text(path)?;
    let (mut model, mut traffic) = match format {
        "--graphml" => (graphml(&text, defaults), Vec::new()),
        "--repetita" => (repetita(&text, defaults), Vec::new()),
        _ => match sndlib(&text, defaults) {
            Ok((model, traffic)) => (Ok(model), traffic),
            Err(e) => (Err(e), Vec::new()),
        },
    };
    if let (Ok(model), Some(file)) = (&model, demands) {
        let text = files::text(file)?;
        traffic = repetita_demands(&text, model.nodes.len()).map_err(|e| e.in_source(file))?;
    }
    if let Ok(model) = &mut model {
        add_demands(model, &traffic);
    }
    model.map_err(|e| e.in_source(path))
}

const GENERATE: [&str; 11] = [
    "--backbone",
    "--vnfs",
    "--coverage",
    "--chains",
    "--cpu-per-byte",
    "--division",
    "--demand",
    "--seed",
    "--default-bandwidth",
    "--default-latency",
    "-o",
];

/// Generates a model on a backbone: GraphML, Repetita, SNDlib or a model, told apart by the text.
pub fn run_generate(words: &[String]) -> Result<ExitCode, Error> {
    let arguments = Arguments::parse(words, &GENERATE, &["-q", "--quiet"])?;
    let standard = Options::default();
    let divisions = [
        ("equal", Division::Equal),
        ("overbooked", Division::Overbooked),
        ("proportional", Division::Proportional),
    ];
    let options = Options {
        vnfs: arguments.count("--vnfs", standard.vnfs as u64, 1)? as usize,
        coverage: arguments.number("--coverage", standard.coverage, 0.0)?,
        chains: arguments.count("--chains", standard.chains as u64, 1)? as usize,
        cpu_per_byte: arguments.number("--cpu-per-byte", standard.cpu_per_byte, 0.0)?,
        division: arguments.choice("--division", standard.division, &divisions)?,
        demand: arguments.number("--demand", standard.demand, 1e-9)?,
        seed: arguments.count("--seed", standard.seed, 0)?,
    };
    let path = arguments.required("--backbone")?;
    let mut defaults = defaults(&arguments)?;
    // Capacities are invented anyway, and a node without coordinates must not stop a whole backbone.
    defaults.bandwidth_mbps = defaults.bandwidth_mbps.or(Some(10_000.0));
    defaults.latency_ms = defaults.latency_ms.or(Some(1.0));
    let text = files::text(path)?;
    let start = text.trim_start();
    let backbone = if start.starts_with('{') {
        Model::read(text.as_bytes())
    } else if start.starts_with("NODES") {
        repetita(&text, &defaults)
    } else if start.starts_with('<') && text.contains("graphml") {
        graphml(&text, &defaults)
    } else {
        sndlib(&text, &defaults).map(|(model, _)| model)
    };
    let backbone = backbone.map_err(|e| e.in_source(path))?;
    let model = generate(&backbone, &options)?;
    files::write(arguments.get("-o"), &model.to_json())?;
    Ok(ExitCode::SUCCESS)
}
