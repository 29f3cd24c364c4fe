//! Figures as SVG.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

/// A line of a figure.
pub struct Series {
    /// Its name in the legend.
    pub name: &'static str,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A figure of the paper, drawn anew.
pub struct Figure {
    /// Title.
    pub title: String,
    /// What the horizontal axis is.
    pub x: &'static str,
    /// What the vertical axis is.
    pub y: &'static str,
    /// Whether the horizontal axis is logarithmic.
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    pub log_y: bool,
    /// Whether the vertical axis begins near the lowest point instead of at zero.
    pub near: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// Colours that people of any colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];

/// Most marks of a linear vertical axis.
const MARKS: f64 = 8.0;

const WIDTH: u32 = 560;
const HEIGHT: u32 = 384;

/// Height of the strip with the lines' names.
const LEGEND: u32 = 24;

impl Figure {
    fn all(&self, of: fn(&(f64, f64)) -> f64) -> impl Iterator<Item = f64> + '_ {
        self.series.iter().flat_map(|s| &s.points).map(of)
    }

    fn ends(&self, of: fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let low = self.all(of).fold(f64::INFINITY, f64::min);
        (low, self.all(of).fold(f64::NEG_INFINITY, f64::max))
    }

    /// The horizontal axis, marked at the points.
    fn x_axis(&self) -> Axis {
        let (low, high) = self.ends(|p| p.0);
        let mut marks: Vec<f64> = self.all(|p| p.0).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let margin = 0.06 * (high - low);
        let range = match self.log_x {
            true => low / 1.2..high * 1.2,
            false => low - margin..high + margin,
        };
        Axis {
            range,
            log: self.log_x,
            marks,
        }
    }

    /// The vertical axis, marked at round numbers.
    fn y_axis(&self) -> Axis {
        let (low, high) = self.ends(|p| p.1);
        let from = if self.near { low } else { low.min(0.0) };
        let margin = 0.08 * (high - from);
        let range = match self.log_y {
            true => low / 1.3..high * 1.3,
            false if from < 0.0 || self.near => from - margin..high + margin,
            false => 0.0..high + margin,
        };
        let round =
            (-6..9).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        let marks: Vec<f64> = if self.log_y {
            round.collect()
        } else {
            let span = range.end - range.start;
            let step = round
                .into_iter()
                .find(|step| span / step <= MARKS)
                .unwrap_or(span);
            let first = (range.start / step).ceil();
            (0..=MARKS as i32)
                .map(|k| (first + f64::from(k)) * step)
                .collect()
        };
        let inside = |mark: &f64| range.start <= *mark && *mark <= range.end;
        Axis {
            log: self.log_y,
            marks: marks.into_iter().filter(inside).collect(),
            range,
        }
    }
}

/// A linear or logarithmic axis with marks where they are wanted.
struct Axis {
    range: Range<f64>,
    log: bool,
    marks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let at = |v: f64| if self.log { v.ln() } else { v };
        let (low, high) = (at(self.range.start), at(self.range.end));
        let share = (at(*value) - low) / (high - low).max(f64::MIN_POSITIVE);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.marks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Draws a figure into a file.
pub fn draw(figure: &Figure, path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let (upper, lower) = area.split_vertically(HEIGHT - LEGEND);
    legend(figure, &lower)?;
    let mut chart = ChartBuilder::on(&upper);
    chart
        .caption(&figure.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58);
    lines(
        chart.build_cartesian_2d(figure.x_axis(), figure.y_axis())?,
        figure,
    )?;
    area.present()?;
    Ok(())
}

/// The names of the lines, side by side below the axes, where they hide no line.
fn legend(
    figure: &Figure,
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn Error>> {
    let letters = |s: &Series| s.name.chars().count() as i32;
    let wide: i32 = figure.series.iter().map(|s| 52 + 7 * letters(s)).sum();
    let mut x = (WIDTH as i32 - wide) / 2;
    for (series, colour) in figure.series.iter().zip(COLOURS) {
        let line = [(x, 8), (x + 22, 8)];
        area.draw(&PathElement::new(line, colour.stroke_width(2)))?;
        area.draw(&Circle::new((x + 11, 8), 3, colour.filled()))?;
        let font = ("sans-serif", 13).into_font();
        area.draw(&Text::new(series.name, (x + 28, 2), font))?;
        x += 52 + 7 * letters(series);
    }
    Ok(())
}

fn lines(
    mut chart: ChartContext<'_, SVGBackend<'_>, Cartesian2d<Axis, Axis>>,
    figure: &Figure,
) -> Result<(), Box<dyn Error>> {
    chart
        .configure_mesh()
        .x_desc(figure.x)
        .y_desc(figure.y)
        .light_line_style(WHITE)
        .x_label_formatter(&|v| tick(*v))
        .y_label_formatter(&|v| tick(*v))
        .draw()?;
    for (series, colour) in figure.series.iter().zip(COLOURS) {
        let points = series.points.iter().copied();
        chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        chart.draw_series(points.map(|at| Circle::new(at, 3, colour.filled())))?;
    }
    Ok(())
}

/// A number on an axis, without the digits that rounding leaves.
fn tick(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}
