//! The results file.

use serde_json::{Value, json};

use crate::measure::Repetitions;
use crate::subject::Subject;

/// Figures collected so far.
pub struct Results {
    bench: &'static str,
    load_before: String,
    figures: Vec<Value>,
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        info.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(": ").nth(1))
            .unwrap_or("unknown")
    };
    let processors = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    format!(
        "{} family {} model {}, {processors} CPUs",
        field("model name"),
        field("cpu family"),
        field("model\t")
    )
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Results {
    /// No figures yet.
    pub fn new(bench: &'static str) -> Self {
        Self {
            bench,
            load_before: load_average(),
            figures: Vec::new(),
        }
    }

    /// Adds a figure without a peer.
    pub fn figure(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:28} {value:9.2} {unit}");
        self.figures
            .push(json!({"name": name, "value": rounded(value), "unit": unit}));
    }

    /// Adds the first subject's median once against each of the others'; the ratio is how many times better it is.
    pub fn against_peers(
        &mut self,
        name: &str,
        unit: &str,
        subjects: &[Box<dyn Subject>],
        measured: &Repetitions,
        convert: impl Fn(f64) -> f64,
    ) {
        let value = convert(measured.median(0));
        for (index, peer) in subjects.iter().enumerate().skip(1) {
            let peer_value = convert(measured.median(index));
            let ratio = if unit == "ns" {
                peer_value / value
            } else {
                value / peer_value
            };
            println!(
                "{name:28} {value:9.2} {unit}, {} {peer_value:.2}: {ratio:.2} times as good",
                peer.name()
            );
            self.figures.push(json!({
                "name": name, "value": rounded(value), "unit": unit,
                "peer": peer.name(), "peer_value": rounded(peer_value), "ratio": rounded(ratio),
            }));
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &str) {
        let commit = std::process::Command::new("git")
            .args(["describe", "--always", "--dirty", "--abbrev=12"])
            .output()
            .map_or_else(
                |_| "unknown".into(),
                |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            );
        let document = json!({
            "bench": self.bench,
            "commit": commit,
            "machine": machine(),
            "load_average": {"before": self.load_before, "after": load_average()},
            "figures": self.figures,
        });
        let text = serde_json::to_string_pretty(&document).expect("plain values") + "\n";
        std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
    }
}
