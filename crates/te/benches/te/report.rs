//! What is measured, what the goals are, and the file of results.

use std::path::Path;
use std::time::Instant;

use te::json::Writer;

/// The goals, by figure: an upper limit, or a lower one of what is a ratio to a peer.
const GOALS: [(&str, Goal); 25] = [
    ("lp_10k_1pct_s", Goal::AtMost(0.2)),
    ("lp_10k_1e4_s", Goal::AtMost(0.6)),
    ("lp_10k_1e6_s", Goal::AtMost(1.2)),
    ("lp_grid_worst_s", Goal::AtMost(4.0)),
    ("lp_1k_dense_s", Goal::AtMost(10.0)),
    ("lp_1k_short_s", Goal::AtMost(1.0)),
    ("lp_100k_s", Goal::AtMost(5.0)),
    ("lp_vs_arc_300", Goal::AtLeast(100.0)),
    ("lp_vs_arc_1000", Goal::AtLeast(1000.0)),
    ("latency_10k_50_s", Goal::AtMost(1.0)),
    ("latency_10k_95_s", Goal::AtMost(4.0)),
    ("dp_10k_ms", Goal::AtMost(25.0)),
    ("dp_10k_overloaded_ms", Goal::AtMost(25.0)),
    ("dp_10k_scale_ms", Goal::AtMost(25.0)),
    ("dp_one_us", Goal::AtMost(10.0)),
    ("dp_over_lp_min", Goal::AtLeast(0.85)),
    ("dp_over_lp_median", Goal::AtLeast(0.95)),
    ("dp_over_lp_carried_min", Goal::AtLeast(0.85)),
    ("dp_over_lp_carried_median", Goal::AtLeast(0.95)),
    ("dp_over_lp_latency_95", Goal::AtMost(1.1)),
    ("placement_10k_gap", Goal::AtMost(0.02)),
    ("placement_10k_s", Goal::AtMost(10.0)),
    ("cogentco_10k_s", Goal::AtMost(15.0)),
    ("cogentco_widened_10k_s", Goal::AtMost(15.0)),
    ("peak_rss_mb", Goal::AtMost(1000.0)),
];

#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// A measured figure.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// What it is compared with: its name, its value, and how many times as good ours is.
    peer: Option<(String, f64, f64)>,
    /// What it was measured on, where the name leaves that open.
    note: Option<String>,
}

/// The figures so far.
pub struct Report {
    figures: Vec<Figure>,
    start: Instant,
    load_before: String,
}

impl Report {
    /// Nothing measured yet.
    pub fn new() -> Report {
        Report {
            figures: Vec::new(),
            start: Instant::now(),
            load_before: load_average(),
        }
    }

    /// Says what is about to be measured.
    pub fn begin(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("[{seconds:.0} s, load average {}] {what}", load_average());
    }

    /// Takes a figure, beside its goal if it has one. One that is not finite was not proved.
    pub fn say(&mut self, name: &str, value: f64, unit: &'static str) {
        self.say_of(name, value, unit, None);
    }

    /// As [`Report::say`], with a note on what it was measured.
    pub fn say_of(&mut self, name: &str, value: f64, unit: &'static str, note: Option<String>) {
        let goal = GOALS.iter().find(|(goal, _)| *goal == name);
        let peer = goal.map(|(_, goal)| match *goal {
            Goal::AtMost(most) => ("goal, at most".to_owned(), most, most / value),
            Goal::AtLeast(least) => ("goal, at least".to_owned(), least, value / least),
        });
        let missed = peer.as_ref().is_some_and(|(_, _, ratio)| *ratio < 1.0);
        let missed = if missed { ", goal missed" } else { "" };
        eprintln!("{name} {value:.6} {unit}{missed}");
        self.push(name, value, unit, peer, note);
    }

    /// Takes a time beside that of a peer.
    pub fn compare(&mut self, name: &str, seconds: f64, peer: String, theirs: f64) {
        eprintln!("{name} {seconds:.4} s against {theirs:.1} s; {peer}");
        let peer = (peer, theirs, theirs / seconds);
        self.push(name, seconds, "s", Some(peer), None);
    }

    fn push(
        &mut self,
        name: &str,
        value: f64,
        unit: &'static str,
        peer: Option<(String, f64, f64)>,
        note: Option<String>,
    ) {
        self.figures.push(Figure {
            name: name.to_owned(),
            value,
            unit,
            peer,
            note,
        });
    }

    /// Writes what was measured so far, so that a bench that is cut short leaves it.
    pub fn save(&self, path: &Path) {
        std::fs::write(path, self.text())
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    }

    fn text(&self) -> String {
        let machine = format!(
            "{}, {} cores, load average {} before and {} after, {:.0} s; lp on all cores, HiGHS on one",
            processor(),
            super::measure::cores(),
            self.load_before,
            load_average(),
            self.start.elapsed().as_secs_f64()
        );
        let mut writer = Writer::new();
        writer.object(|w| {
            w.name("bench").text("te");
            w.name("commit").text(&commit());
            w.name("machine").text(&machine);
            w.name("figures").list(|w| {
                for figure in &self.figures {
                    w.line().object(|w| figure.write(w));
                }
            });
        });
        writer.finish()
    }
}

impl Figure {
    fn write(&self, w: &mut Writer) {
        w.name("name").text(&self.name);
        if self.value.is_finite() {
            w.name("value").number(self.value);
        } else {
            w.name("missing").text("the gap was not proved");
        }
        w.name("unit").text(self.unit);
        if let Some((peer, value, ratio)) = &self.peer {
            w.name("peer").text(peer).name("peer_value").number(*value);
            if ratio.is_finite() {
                w.name("ratio").number(*ratio);
            }
        }
        if let Some(note) = &self.note {
            w.name("note").text(note);
        }
    }
}

fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = load.split_whitespace().take(3).collect();
    averages.join(" ")
}

fn processor() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|l| l.strip_prefix("model name"));
    name.unwrap_or("")
        .trim_start_matches([' ', '\t', ':'])
        .to_owned()
}

/// The commit that is measured; `-dirty` where files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let run = std::process::Command::new("git").args(arguments).output();
        run.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
            .unwrap_or_default()
    };
    let own_result = ":(top,exclude)bench/results";
    let changed = git(&["status", "--porcelain", "-uno", "--", ":(top)", own_result]);
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    git(&["rev-parse", "HEAD"]) + dirty
}
