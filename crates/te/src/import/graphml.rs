//! GraphML as the Internet Topology Zoo writes it.
//!
//! Attribute ids differ from file to file and are resolved through the `<key>` table by name and by what they are
//! for. Nodes are known by their `id` attribute; labels repeat and may be missing, so a label names a node only when
//! it is unique. An edge is one full-duplex link, hence two directed ones; parallel edges stay apart; self-loops
//! carry nothing and are left out.

use std::collections::HashMap;

use super::{
    Change, Defaults, Notes, backbone, bounds, latency, note_parallels, note_places, unique,
};
use crate::error::{InputError, Reason};
use crate::model::{Link, Model, Node};
use roxmltree::{Document, Node as Element, ParsingOptions};

/// Elements and texts that a topology may have; one of ten thousand nodes and links has some hundred thousand.
const MOST_ELEMENTS: u32 = 2_000_000;

/// Where the lines of a text begin, so that every element's place is found without reading from the start.
pub(super) struct Places(Vec<usize>);

impl Places {
    /// The lines of the text that an element is of.
    pub(super) fn of(element: &Element<'_, '_>) -> Places {
        let ends = element.document().input_text().bytes().enumerate();
        let starts = ends.filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1);
        Places(std::iter::once(0).chain(starts).collect())
    }

    /// Place of an element, as line and column in bytes.
    pub(super) fn place(&self, element: &Element<'_, '_>) -> String {
        let at = element.range().start;
        let line = self.0.partition_point(|&start| start <= at);
        format!("line {line} column {}", at - self.0[line - 1] + 1)
    }
}

/// Place of one element, for an error that ends the import.
pub(super) fn place(element: &Element<'_, '_>) -> String {
    Places::of(element).place(element)
}

/// Parses XML without entities, so that none can expand without end, and without nesting or lists beyond reason.
pub(super) fn document(text: &str) -> Result<Document<'_>, InputError> {
    bounds::xml(text)?;
    let options = ParsingOptions {
        nodes_limit: MOST_ELEMENTS,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, options).map_err(|e| {
        if let roxmltree::Error::NodesLimitReached = e {
            let message =
                format!("more than {MOST_ELEMENTS} elements and texts: this is no topology");
            return InputError::new("(document)", Reason::TooDeep, message);
        }
        let at = e.pos();
        InputError::new(
            format!("line {} column {}", at.row, at.col),
            Reason::Syntax,
            format!("not XML: {e}"),
        )
    })
}

/// The values of an element's `<data>` children by attribute name.
fn data<'a>(
    element: &Element<'a, 'a>,
    keys: &HashMap<&'a str, &'a str>,
) -> HashMap<&'a str, &'a str> {
    let children = element.children().filter(|c| c.has_tag_name_local("data"));
    children
        .filter_map(|c| Some((*keys.get(c.attribute("key")?)?, c.text()?.trim())))
        .collect()
}

/// Tag names regardless of namespace.
pub(super) trait Local {
    /// Whether the element has this name in any namespace.
    fn has_tag_name_local(&self, name: &str) -> bool;
}

impl Local for Element<'_, '_> {
    fn has_tag_name_local(&self, name: &str) -> bool {
        self.is_element() && self.tag_name().name() == name
    }
}

/// Reads a backbone.
///
/// # Errors
/// The first mistake, with its line and column.
pub fn graphml(text: &str, defaults: &Defaults, notes: &mut Notes) -> Result<Model, InputError> {
    let document = document(text)?;
    let root = document.root_element();
    let graph = root
        .children()
        .find(|c| c.has_tag_name_local("graph"))
        .ok_or_else(|| {
            InputError::new(
                place(&root),
                Reason::MissingField,
                "there is no <graph> element",
            )
        })?;
    let keys = |kind: &str| -> HashMap<&str, &str> {
        let all = root.children().filter(|c| c.has_tag_name_local("key"));
        let mine = all.filter(|k| matches!(k.attribute("for"), Some(f) if f == kind || f == "all"));
        mine.filter_map(|k| Some((k.attribute("id")?, k.attribute("attr.name")?)))
            .collect()
    };
    let (nodes, index) = nodes(&graph, &keys("node"), notes)?;
    if nodes.is_empty() {
        return Err(InputError::new(
            place(&graph),
            Reason::WrongLength,
            "the graph has no nodes",
        ));
    }
    let directed = graph.attribute("edgedefault") == Some("directed");
    let names = Names {
        keys: keys("edge"),
        nodes: &nodes,
        index: &index,
    };
    let links = edges(&graph, &names, directed, defaults, notes)?;
    Ok(backbone(nodes, links))
}

fn nodes<'a>(
    graph: &Element<'a, 'a>,
    keys: &HashMap<&'a str, &'a str>,
    notes: &mut Notes,
) -> Result<(Vec<Node>, HashMap<&'a str, usize>), InputError> {
    let mut index = HashMap::new();
    let mut nodes = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    let mut ids: Vec<&str> = Vec::new();
    for element in graph.children().filter(|c| c.has_tag_name_local("node")) {
        let id = element.attribute("id").ok_or_else(|| {
            InputError::new(place(&element), Reason::MissingField, "a node needs an id")
        })?;
        if index.insert(id, nodes.len()).is_some() {
            let message = format!("the node id '{id}' appears twice");
            return Err(InputError::new(place(&element), Reason::Duplicate, message));
        }
        let data = data(&element, keys);
        let degrees = |name: &str, most: f64| match data.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && number.abs() <= most => Ok(Some(number)),
                _ => {
                    let message = format!("{name} '{text}' is no angle of at most {most} degrees");
                    Err(InputError::new(
                        place(&element),
                        Reason::OutOfRange,
                        message,
                    ))
                }
            },
        };
        let coordinates = degrees("Latitude", 90.0)?.zip(degrees("Longitude", 180.0)?);
        let label = data.get("label").filter(|l| !l.is_empty());
        if label.is_none() {
            notes.add(Change::MissingLabel, id);
        }
        labels.push((*label.unwrap_or(&id)).to_owned());
        ids.push(id);
        nodes.push(Node {
            id: String::new(),
            coordinates,
        });
    }
    // A repeated label would merge nodes; it gets the node's own id added.
    let mut count: HashMap<&str, usize> = HashMap::new();
    labels
        .iter()
        .for_each(|l| *count.entry(l).or_default() += 1);
    let mut names = Vec::with_capacity(labels.len());
    for (label, id) in labels.iter().zip(&ids) {
        let repeated = count[label.as_str()] > 1;
        let name = if repeated {
            format!("{label}-{id}")
        } else {
            label.clone()
        };
        if repeated {
            notes.add(Change::RepeatedLabel, &name);
        }
        names.push(name);
    }
    let names = unique(names, Change::RepeatedLabel, notes);
    for (node, name) in nodes.iter_mut().zip(names) {
        node.id = name;
    }
    note_places(&nodes, notes);
    Ok((nodes, index))
}

/// What edges refer to.
struct Names<'a, 'n> {
    keys: HashMap<&'a str, &'a str>,
    nodes: &'n [Node],
    index: &'n HashMap<&'a str, usize>,
}

fn edges<'a>(
    graph: &Element<'a, 'a>,
    names: &Names<'a, '_>,
    directed: bool,
    defaults: &Defaults,
    notes: &mut Notes,
) -> Result<Vec<Link>, InputError> {
    let (nodes, index) = (names.nodes, names.index);
    let mut links = Vec::new();
    let places = Places::of(graph);
    for element in graph.children().filter(|c| c.has_tag_name_local("edge")) {
        let at = places.place(&element);
        let end = |name: &str| -> Result<usize, InputError> {
            let id = element.attribute(name).ok_or_else(|| {
                InputError::new(&at, Reason::MissingField, format!("an edge needs a {name}"))
            })?;
            index.get(id).copied().ok_or_else(|| {
                InputError::new(
                    &at,
                    Reason::DanglingReference,
                    format!("there is no node '{id}'"),
                )
            })
        };
        let (from, to) = (end("source")?, end("target")?);
        if from == to {
            notes.add(Change::SelfLoop, format!("{} ({at})", nodes[from].id));
            continue;
        }
        let data = data(&element, &names.keys);
        let stated = speed(&data, &at)?;
        let bandwidth_mbps = stated.or(defaults.bandwidth_mbps).ok_or_else(|| {
            let message = "the edge states no LinkSpeedRaw; give --default-bandwidth in Mbit/s";
            InputError::new(&at, Reason::MissingField, message)
        })?;
        if stated.is_none() {
            let link = format!("{} - {}", nodes[from].id, nodes[to].id);
            notes.add(Change::DefaultBandwidth, link);
        }
        let latency_ms = latency((&nodes[from], &nodes[to]), defaults, &at, notes)?;
        let mut push = |from: usize, to: usize| {
            let id = format!("{}>{}", nodes[from].id, nodes[to].id);
            links.push(Link {
                id,
                from,
                to,
                latency_ms,
                bandwidth_mbps,
                background_mbps: 0.0,
            });
        };
        push(from, to);
        if !directed {
            push(to, from);
        }
    }
    let ids = links.iter().map(|l: &Link| l.id.clone()).collect();
    let ids = unique(ids, Change::RepeatedLink, notes);
    links
        .iter_mut()
        .zip(ids)
        .for_each(|(link, id)| link.id = id);
    note_parallels(&links, notes);
    Ok(links)
}

/// The edge's speed in Mbit/s, from `LinkSpeedRaw` (bit/s) or `LinkSpeed` with its unit.
fn speed(data: &HashMap<&str, &str>, at: &str) -> Result<Option<f64>, InputError> {
    let number = |name: &str, text: &str| match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err(InputError::new(
            at,
            Reason::OutOfRange,
            format!("{name} '{text}' is no speed above zero"),
        )),
    };
    if let Some(raw) = data.get("LinkSpeedRaw") {
        return Ok(Some(number("LinkSpeedRaw", raw)? / 1e6));
    }
    let factor = match data.get("LinkSpeedUnits") {
        Some(&"G") => 1e3,
        Some(&"M") => 1.0,
        Some(&"K") => 1e-3,
        _ => return Ok(None),
    };
    data.get("LinkSpeed")
        .map(|text| Ok(number("LinkSpeed", text)? * factor))
        .transpose()
}
