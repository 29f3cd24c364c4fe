//! The figures: a table on standard output, and the results file.

use serde_json::{Map, Value, json};

/// Whether a larger or a smaller figure is the better one.
#[derive(Clone, Copy)]
pub enum Better {
    /// Rates.
    Larger,
    /// Times and sizes.
    Smaller,
}

/// Figures collected so far.
pub struct Results {
    /// What is measured; each figure says it, as figures of several runs come together in the file.
    commit: String,
    load_before: String,
    figures: Vec<Value>,
    left_out: Map<String, Value>,
    notes: Map<String, Value>,
}

fn load_average() -> String {
    std::fs::read_to_string("/proc/loadavg")
        .map_or_else(|_| "unknown".into(), |text| text.trim().into())
}

fn commit() -> String {
    std::process::Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output()
        .map_or_else(
            |_| "unknown".into(),
            |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
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
    pub fn new() -> Results {
        println!(
            "{:<22} {:>10} {:<10} {:<24} {:>10} {:>8}",
            "figure", "value", "unit", "peer", "peer value", "ratio"
        );
        Results {
            commit: commit(),
            load_before: load_average(),
            figures: Vec::new(),
            left_out: Map::new(),
            notes: Map::new(),
        }
    }

    /// Adds a figure without a peer.
    pub fn figure(&mut self, name: &str, value: f64, unit: &str) {
        println!("{name:<22} {value:>10.2} {unit}");
        self.figures.push(
            json!({"name": name, "value": rounded(value), "unit": unit, "commit": self.commit}),
        );
    }

    /// Adds a figure and its peer's; the ratio is how many times better ours is.
    pub fn against(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        (peer, peer_value): (&str, f64),
        better: Better,
    ) {
        let ratio = match better {
            Better::Larger => value / peer_value,
            Better::Smaller => peer_value / value,
        };
        println!("{name:<22} {value:>10.2} {unit:<10} {peer:<24} {peer_value:>10.2} {ratio:>8.3}");
        self.figures.push(json!({
            "name": name, "value": rounded(value), "unit": unit,
            "peer": peer, "peer_value": rounded(peer_value), "ratio": rounded(ratio), "commit": self.commit,
        }));
    }

    /// A figure that was measured.
    pub fn value(&self, name: &str) -> Option<f64> {
        let figure = self.figures.iter().find(|figure| figure["name"] == name)?;
        figure["value"].as_f64()
    }

    /// Says that a figure was not measured, and why.
    pub fn leave_out(&mut self, name: &str, reason: &str) {
        println!("{name:<22} left out: {reason}");
        self.left_out.insert(name.into(), reason.into());
    }

    /// Says something about how it was measured.
    pub fn note(&mut self, name: &str, text: String) {
        println!("{name:<22} note: {text}");
        self.notes.insert(name.into(), text.into());
    }

    /// Writes the file. Where only some `rows` were measured, what it held of others stays.
    pub fn write(&mut self, path: &str, rows: Option<&[String]>) {
        let mut runs = Vec::new();
        if rows.is_some() {
            runs = self.take_over(path);
        }
        runs.push(json!({
            "rows": rows.map_or("all".to_string(), |rows| rows.join(",")),
            "commit": self.commit,
            "machine": machine(),
            "load_average": {"before": self.load_before, "after": load_average()},
        }));
        let document = json!({
            "bench": "forwarder",
            "commit": self.commit,
            "machine": machine(),
            "figures": self.figures,
            "left_out": self.left_out,
            "notes": self.notes,
            "runs": runs,
        });
        let text = serde_json::to_string_pretty(&document).expect("plain values") + "\n";
        std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
    }

    /// Takes over what a file holds and was not measured now; returns its runs.
    fn take_over(&mut self, path: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let Ok(old) = serde_json::from_str::<Value>(&text) else {
            return Vec::new();
        };
        let figures = old["figures"].as_array().cloned().unwrap_or_default();
        let is_new = |name: &Value, new: &[Value]| new.iter().any(|figure| figure["name"] == *name);
        let mut all: Vec<Value> = figures;
        all.retain(|figure| !is_new(&figure["name"], &self.figures));
        all.append(&mut self.figures);
        self.figures = all;
        for (kept, new) in [("left_out", &mut self.left_out), ("notes", &mut self.notes)] {
            for (name, text) in old[kept].as_object().into_iter().flatten() {
                let measured = is_new(&Value::from(name.as_str()), &self.figures);
                if !(measured && kept == "left_out") {
                    new.entry(name).or_insert(text.clone());
                }
            }
        }
        old["runs"].as_array().cloned().unwrap_or_default()
    }
}
