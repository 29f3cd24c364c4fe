//! The numbers of the figures in the form of all benches.

use std::path::Path;

use te::json::Writer;

use crate::chart::Figure;

/// Digits kept: what the exact solver's gap leaves meaningful, and the same on every processor.
const DIGITS: i32 = 5;

/// The numbers as JSON. The commit is the last one that changed what is measured, so that a second run gives the same bytes.
pub fn json(root: &Path, figures: &[Figure]) -> String {
    let measured = ["crates/te", "bench/te-figures"];
    let git = std::process::Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["log", "-1", "--format=%H", "--"])
        .args(measured)
        .output();
    let commit = git
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default();
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("bench")
            .text("te-figures")
            .name("commit")
            .text(&commit);
        w.name("machine").text("none: no figure depends on time");
        w.name("figures").list(|w| {
            for figure in figures {
                for series in &figure.series {
                    for (x, y) in &series.points {
                        let name = format!("figure_{}_{}", figure.name, figure.backbone);
                        w.line().object(|w| {
                            w.name("name").text(&name).name("series").text(series.name);
                            w.name("at").number(*x).name("value").number(round(*y));
                            w.name("unit").text(figure.unit);
                        });
                    }
                }
            }
        });
    });
    writer.finish()
}

fn round(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = DIGITS - 1 - value.abs().log10().floor() as i32;
    let text = format!("{:.*}", digits.max(0) as usize, value);
    text.parse().unwrap_or(value)
}
