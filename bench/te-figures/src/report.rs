//! The numbers of a figure, as a table for programs.

use std::fmt::Write;

use crate::chart::Figure;

/// Digits kept: what the exact solver's gap leaves meaningful, and the same on every processor.
const DIGITS: i32 = 5;

/// The numbers as CSV: a line for each point, the axes' names as heading.
pub fn csv(figure: &Figure) -> String {
    let mut text = format!("series,\"{}\",\"{}\"\n", figure.x, figure.y);
    for series in &figure.series {
        for (x, y) in &series.points {
            writeln!(text, "{},{x},{}", series.name, round(*y)).expect("a string takes all");
        }
    }
    text
}

fn round(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let digits = DIGITS - 1 - value.abs().log10().floor() as i32;
    let text = format!("{:.*}", digits.max(0) as usize, value);
    text.parse().unwrap_or(value)
}
