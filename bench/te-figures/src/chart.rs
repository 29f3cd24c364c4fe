//! Figures as SVG.

use std::error::Error;
use std::path::Path;

use plotters::coord::ranged1d::ValueFormatter;
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
    /// The paper's number.
    pub name: &'static str,
    /// The backbone's name.
    pub backbone: &'static str,
    /// Title.
    pub title: String,
    /// What the horizontal axis is.
    pub x: &'static str,
    /// What the vertical axis is.
    pub y: &'static str,
    /// Unit of the vertical axis.
    pub unit: &'static str,
    /// Whether the horizontal axis is logarithmic.
    pub log_x: bool,
    /// Whether the vertical axis is logarithmic.
    pub log_y: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// Colours that people of any colour vision tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
];

const WIDTH: u32 = 560;
const HEIGHT: u32 = 360;

impl Figure {
    /// The numbers, for whoever watches the run.
    pub fn print(&self) {
        for series in &self.series {
            let points: Vec<String> = series
                .points
                .iter()
                .map(|(x, y)| format!("{x}: {y:.4}"))
                .collect();
            eprintln!("  {}: {}", series.name, points.join(", "));
        }
    }

    fn range(&self, of: fn(&(f64, f64)) -> f64, log: bool) -> (f64, f64) {
        let all = || self.series.iter().flat_map(|s| &s.points).map(of);
        let (low, high) = (
            all().fold(f64::INFINITY, f64::min),
            all().fold(f64::NEG_INFINITY, f64::max),
        );
        if log {
            (low / 1.3, high * 1.3)
        } else {
            (low.min(0.0), high + 0.08 * (high - low.min(0.0)))
        }
    }
}

/// Draws a figure into a file.
pub fn draw(figure: &Figure, path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let (x, y) = (
        figure.range(|p| p.0, figure.log_x),
        figure.range(|p| p.1, figure.log_y),
    );
    let mut chart = ChartBuilder::on(&area);
    chart
        .caption(&figure.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58);
    // The four kinds of axes are four types.
    match (figure.log_x, figure.log_y) {
        (false, false) => lines(chart.build_cartesian_2d(x.0..x.1, y.0..y.1)?, figure)?,
        (true, false) => lines(
            chart.build_cartesian_2d((x.0..x.1).log_scale(), y.0..y.1)?,
            figure,
        )?,
        (false, true) => lines(
            chart.build_cartesian_2d(x.0..x.1, (y.0..y.1).log_scale())?,
            figure,
        )?,
        (true, true) => {
            lines(
                chart.build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?,
                figure,
            )?;
        }
    }
    area.present()?;
    Ok(())
}

fn lines<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    figure: &Figure,
) -> Result<(), Box<dyn Error>>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(figure.x)
        .y_desc(figure.y)
        .light_line_style(WHITE)
        .x_label_formatter(&|v| tick(*v))
        .y_label_formatter(&|v| tick(*v))
        .draw()?;
    for (series, colour) in figure.series.iter().zip(COLOURS) {
        chart
            .draw_series(LineSeries::new(
                series.points.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let dots = series
            .points
            .iter()
            .map(|&at| Circle::new(at, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

/// A number on an axis, without the digits that rounding leaves.
fn tick(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}
