//! Figures 7 and 8 of the paper with our numbers beside its own, as drawings and as data.

use crate::results::Results;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// One bar: what it is, and its height.
struct Bar {
    label: String,
    paper: f64,
    /// Nothing where it was not measured in this run.
    ours: Option<f64>,
}

struct Chart {
    title: &'static str,
    unit: &'static str,
    bars: Vec<Bar>,
    /// What differs between the two.
    note: &'static str,
}

/// Writes `…-figure7.svg`, `…-figure8.svg` and the same as JSON beside the results file; nothing for what was not measured.
pub fn draw(results: &Results, path: &str) {
    for (number, chart) in [(7, figure7(results)), (8, figure8(results))] {
        if chart.bars.iter().all(|bar| bar.ours.is_none()) {
            continue;
        }
        let stem = Path::new(path).with_extension("");
        let stem = format!("{}-figure{number}", stem.display());
        let data = serde_json::to_string_pretty(&chart.data()).expect("plain values") + "\n";
        for (path, text) in [
            (format!("{stem}.svg"), chart.drawing()),
            (format!("{stem}.json"), data),
        ] {
            std::fs::write(&path, text)
                .unwrap_or_else(|error| panic!("cannot write {path}: {error}"));
        }
    }
}

fn figure7(results: &Results) -> Chart {
    let overhead = |what: &str, flows: u32| {
        let ns = |part: &str| results.value(&format!("figure7_{part}_{flows}_ns"));
        Some(100.0 * (1.0 - ns("bridge")? / ns(what)?))
    };
    let bar = |label: &str, paper, what: &str, flows| Bar {
        label: label.into(),
        paper,
        ours: overhead(what, flows),
    };
    Chart {
        title: "Overhead over a plain bridge (paper: figure 7)",
        unit: "% of throughput",
        bars: vec![
            bar("labels, 1 flow", 29.0, "labels", 1),
            bar("labels, 50 flows", 19.0, "labels", 50),
            bar("+ affinity, 1 flow", 44.0, "affinity", 1),
            bar("+ affinity, 50 flows", 33.0, "affinity", 50),
        ],
        note: "Paper: Open vSwitch, the rate between two VNFs. Ours: this forwarder, time per packet from \
               receiving to sending over shared-memory ports, both included.",
    }
}

fn figure8(results: &Results) -> Chart {
    let bar = |label: &str, paper, name: &str| Bar {
        label: label.into(),
        paper,
        ours: results.value(name),
    };
    Chart {
        title: "Packets through one core by connections (paper: figure 8)",
        unit: "Mpps",
        bars: vec![
            bar("few", 7.0, "mpps_1k"),
            bar("512 K", 20.0 / 6.0, "mpps_512k"),
            bar("30 M", 3.0, "mpps_30m"),
        ],
        note: "Paper: Xeon E5-2470 behind a 40 GbE card, 64-byte frames; 512 K is a sixth of six forwarders' 20 Mpps, 30 M \
               its \"in excess of 3\". Ours: the pipeline with frames in memory, no port.",
    }
}

impl Chart {
    fn data(&self) -> Value {
        let bars = self.bars.iter().map(|bar| {
            json!({"name": bar.label, "unit": self.unit, "paper": bar.paper, "value": bar.ours})
        });
        json!({"title": self.title, "bars": bars.collect::<Vec<_>>(), "note": self.note})
    }

    fn drawing(&self) -> String {
        const WIDTH: f64 = 640.0;
        const LEFT: f64 = 50.0;
        const TOP: f64 = 60.0;
        const HEIGHT: f64 = 210.0;
        let heights = self
            .bars
            .iter()
            .flat_map(|bar| [bar.paper, bar.ours.unwrap_or(0.0)]);
        let largest = heights.fold(1.0, f64::max);
        let step = (WIDTH - 2.0 * LEFT) / self.bars.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} 340\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"340\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}, {}</text>\n",
            self.title, self.unit
        );
        for (x, colour, name) in [
            (LEFT, "#9aa5b1", "paper"),
            (LEFT + 80.0, "#1f6feb", "Switchboard"),
        ] {
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"31\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"40\">{name}</text>",
                x + 14.0
            );
        }
        for (index, bar) in self.bars.iter().enumerate() {
            let x = LEFT + step * index as f64;
            for (offset, value, colour) in [
                (0.15, Some(bar.paper), "#9aa5b1"),
                (0.5, bar.ours, "#1f6feb"),
            ] {
                let Some(value) = value else { continue };
                let height = (HEIGHT * value / largest).max(0.0);
                let (left, top) = (x + step * offset, TOP + HEIGHT - height);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>\
                     <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.1}</text>",
                    step * 0.33,
                    left + step * 0.165,
                    top - 4.0
                );
            }
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                x + step * 0.49,
                TOP + HEIGHT + 16.0,
                bar.label
            );
        }
        let (first, second) = self.note.split_at(
            self.note[..self.note.len() / 2 + 20]
                .rfind(' ')
                .unwrap_or(0),
        );
        let _ = write!(
            svg,
            "<text x=\"{LEFT}\" y=\"306\" font-size=\"9\">{first}</text>\n\
             <text x=\"{LEFT}\" y=\"320\" font-size=\"9\">{}</text>\n</svg>\n",
            second.trim_start()
        );
        svg.replace("& ", "&amp; ")
    }
}
