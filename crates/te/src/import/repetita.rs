//! Repetita graphs and demands: `NODES n`, `EDGES m`, `DEMANDS k`, each followed by a heading and its lines.
//!
//! Bandwidth is in kbit/s. A node without coordinates is written `0.0 0.0`. The delays of the published files come
//! to a third of real fibre delay, so latency is taken from the coordinates; where an end has none, the ratio does
//! not help and the stated delay (µs) is used if it is above zero, else the default.

use super::{
    Change, Defaults, Notes, Traffic, backbone, bounds, latency, note_parallels, note_places,
    unique,
};
use crate::error::{InputError, Reason};
use crate::model::{Link, Model, Node};

struct Lines<'a> {
    lines: Vec<(usize, Vec<&'a str>)>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        let lines = text
            .lines()
            .enumerate()
            .map(|(i, l)| (i + 1, l.split_whitespace().collect::<Vec<_>>()));
        Lines {
            lines: lines.filter(|(_, words)| !words.is_empty()).collect(),
        }
    }

    /// The lines of a section, without its heading; as many as its first line announces.
    fn section(&self, name: &str) -> Result<&[(usize, Vec<&'a str>)], InputError> {
        let start = self
            .lines
            .iter()
            .position(|(_, words)| words[0] == name)
            .ok_or_else(|| {
                InputError::new(
                    "line 1",
                    Reason::MissingField,
                    format!("there is no section {name}"),
                )
            })?;
        let (number, words) = &self.lines[start];
        let count: usize = words.get(1).and_then(|w| w.parse().ok()).ok_or_else(|| {
            InputError::new(
                format!("line {number}"),
                Reason::Syntax,
                format!("{name} needs a count"),
            )
        })?;
        let rest = &self.lines[(start + 2).min(self.lines.len())..];
        if rest.len() < count {
            let message = format!(
                "{name} announces {count} lines, only {} follow; is the file cut short?",
                rest.len()
            );
            return Err(InputError::new(
                format!("line {number}"),
                Reason::WrongLength,
                message,
            ));
        }
        Ok(&rest[..count])
    }
}

fn number(line: usize, words: &[&str], column: usize, name: &str) -> Result<f64, InputError> {
    let parsed = words
        .get(column)
        .and_then(|w| w.parse::<f64>().ok())
        .filter(|n| n.is_finite());
    parsed.ok_or_else(|| {
        InputError::new(
            format!("line {line}"),
            Reason::WrongType,
            format!("column {} ({name}) is no number", column + 1),
        )
    })
}

fn node(line: usize, words: &[&str], column: usize, nodes: usize) -> Result<usize, InputError> {
    let index = number(line, words, column, "node")?;
    if index < 0.0 || index.fract() != 0.0 || index >= nodes as f64 {
        let message = format!("there is no node {index}; the file has {nodes}");
        return Err(InputError::new(
            format!("line {line}"),
            Reason::DanglingReference,
            message,
        ));
    }
    Ok(index as usize)
}

/// Reads a `.graph` file.
///
/// # Errors
/// The first mistake, with its line.
pub fn repetita(text: &str, defaults: &Defaults, notes: &mut Notes) -> Result<Model, InputError> {
    bounds::lines(text)?;
    let lines = Lines::of(text);
    let mut labels = Vec::new();
    let mut coordinates = Vec::new();
    for (line, words) in lines.section("NODES")? {
        labels.push(words[0].to_owned());
        let (x, y) = (
            number(*line, words, 1, "longitude")?,
            number(*line, words, 2, "latitude")?,
        );
        if x.abs() > 180.0 || y.abs() > 90.0 {
            let message = format!("({x}, {y}) is no longitude and latitude");
            return Err(InputError::new(
                format!("line {line}"),
                Reason::OutOfRange,
                message,
            ));
        }
        coordinates.push((x != 0.0 || y != 0.0).then_some((y, x)));
    }
    let nodes: Vec<Node> = unique(labels, Change::RepeatedLabel, notes)
        .into_iter()
        .zip(coordinates)
        .map(|(id, coordinates)| Node { id, coordinates })
        .collect();
    note_places(&nodes, notes);
    let mut links = Vec::new();
    let mut ids = Vec::new();
    for (line, words) in lines.section("EDGES")? {
        let place = format!("line {line}");
        let (from, to) = (
            node(*line, words, 1, nodes.len())?,
            node(*line, words, 2, nodes.len())?,
        );
        if from == to {
            notes.add(Change::SelfLoop, format!("{} ({place})", words[0]));
            continue;
        }
        let kbps = number(*line, words, 4, "bandwidth")?;
        if kbps <= 0.0 {
            return Err(InputError::new(
                place,
                Reason::OutOfRange,
                "the bandwidth must be above zero",
            ));
        }
        let stated = number(*line, words, 5, "delay")?;
        let known = nodes[from].coordinates.is_some() && nodes[to].coordinates.is_some();
        let latency_ms = if stated > 0.0 && !known {
            notes.add(Change::StatedDelay, words[0]);
            stated / 1000.0
        } else {
            if stated > 0.0 {
                notes.add(Change::ReplacedDelay, words[0]);
            }
            latency((&nodes[from], &nodes[to]), defaults, &place, notes)?
        };
        ids.push(words[0].to_owned());
        links.push(Link {
            id: String::new(),
            from,
            to,
            latency_ms,
            bandwidth_mbps: kbps / 1000.0,
            background_mbps: 0.0,
        });
    }
    let ids = unique(ids, Change::RepeatedLink, notes);
    for (link, id) in links.iter_mut().zip(ids) {
        link.id = id;
    }
    note_parallels(&links, notes);
    Ok(backbone(nodes, links))
}

/// Reads a `.demands` file that belongs to a graph of `nodes` nodes.
///
/// # Errors
/// As [`repetita`].
pub fn repetita_demands(text: &str, nodes: usize) -> Result<Vec<Traffic>, InputError> {
    bounds::lines(text)?;
    let lines = Lines::of(text);
    let mut demands = Vec::new();
    for (line, words) in lines.section("DEMANDS")? {
        let kbps = number(*line, words, 3, "demand")?;
        if kbps < 0.0 {
            return Err(InputError::new(
                format!("line {line}"),
                Reason::OutOfRange,
                "a demand must not be negative",
            ));
        }
        let (from, to) = (node(*line, words, 1, nodes)?, node(*line, words, 2, nodes)?);
        demands.push(Traffic {
            from,
            to,
            mbps: kbps / 1000.0,
        });
    }
    Ok(demands)
}
