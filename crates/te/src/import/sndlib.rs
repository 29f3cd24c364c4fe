//! SNDlib networks, native text and XML. Coordinates are x = longitude, y = latitude.
//!
//! A link line stands for both directions; where both directions are listed apart, each counts as itself.
//! Pre-installed capacity is often zero; then the largest module is taken.

use std::collections::{HashMap, HashSet};

use super::graphml::{Local, Places, document, place};
use super::{
    Change, Defaults, Notes, Traffic, backbone, bounds, latency, note_parallels, note_places,
    unique,
};
use crate::error::{InputError, Reason};
use crate::model::{Link, Model, Node};
use roxmltree::Node as Element;

/// A link as the file states it.
struct Stated {
    id: String,
    from: usize,
    to: usize,
    /// Capacity that is there, Mbit/s; often zero.
    installed: f64,
    /// Capacity of the largest module, Mbit/s; zero without any.
    largest: f64,
    place: String,
}

/// Reads a network and its demands, in either form.
///
/// # Errors
/// The first mistake, with its line.
pub fn sndlib(
    text: &str,
    defaults: &Defaults,
    notes: &mut Notes,
) -> Result<(Model, Vec<Traffic>), InputError> {
    if text.trim_start().starts_with('<') {
        xml(text, defaults, notes)
    } else {
        native(text, defaults, notes)
    }
}

struct Names(HashMap<String, usize>);

impl Names {
    fn of(nodes: &[Node], place: &str) -> Result<Names, InputError> {
        let mut index = HashMap::new();
        for (i, node) in nodes.iter().enumerate() {
            if index.insert(node.id.clone(), i).is_some() {
                return Err(InputError::new(
                    place,
                    Reason::Duplicate,
                    format!("the node '{}' appears twice", node.id),
                ));
            }
        }
        if nodes.is_empty() {
            return Err(InputError::new(
                place,
                Reason::WrongLength,
                "the network has no nodes",
            ));
        }
        Ok(Names(index))
    }

    fn find(&self, id: &str, place: &str) -> Result<usize, InputError> {
        self.0.get(id).copied().ok_or_else(|| {
            InputError::new(
                place,
                Reason::DanglingReference,
                format!("there is no node '{id}'"),
            )
        })
    }
}

fn node(id: String, x: f64, y: f64, notes: &mut Notes) -> Node {
    let geographic = x.abs() <= 180.0 && y.abs() <= 90.0;
    if !geographic {
        notes.add(Change::PlaneCoordinates, &id);
    }
    Node {
        id,
        coordinates: geographic.then_some((y, x)),
    }
}

fn number(text: &str, place: &str, name: &str) -> Result<f64, InputError> {
    text.parse::<f64>()
        .ok()
        .filter(|n| n.is_finite() && (*n >= 0.0 || name == "coordinate"))
        .ok_or_else(|| InputError::new(place, Reason::WrongType, format!("'{text}' is no {name}")))
}

/// The words of a section `NAME ( … )`, line by line; brackets are words of their own.
fn section<'a>(text: &'a str, name: &str) -> Result<Vec<(String, Vec<&'a str>)>, InputError> {
    let mut lines = text.lines().enumerate().skip_while(|(_, l)| {
        let mut words = l.split_whitespace();
        words.next() != Some(name) || words.next() != Some("(")
    });
    let Some((start, _)) = lines.next() else {
        return Err(InputError::new(
            "line 1",
            Reason::MissingField,
            format!("there is no section {name}"),
        ));
    };
    let mut found = Vec::new();
    for (i, line) in lines {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or("")
            .split_whitespace()
            .collect();
        if words.first() == Some(&")") {
            return Ok(found);
        }
        if !words.is_empty() {
            found.push((format!("line {}", i + 1), words));
        }
    }
    let message = format!("the section {name} does not end; is the file cut short?");
    Err(InputError::new(
        format!("line {}", start + 1),
        Reason::Syntax,
        message,
    ))
}

fn word<'a>(words: &[&'a str], at: usize, place: &str) -> Result<&'a str, InputError> {
    words.get(at).copied().ok_or_else(|| {
        InputError::new(
            place,
            Reason::Syntax,
            format!("{} words, at least {} needed", words.len(), at + 1),
        )
    })
}

fn native(
    text: &str,
    defaults: &Defaults,
    notes: &mut Notes,
) -> Result<(Model, Vec<Traffic>), InputError> {
    bounds::lines(text)?;
    let mut nodes = Vec::new();
    for (place, words) in section(text, "NODES")? {
        let x = number(word(&words, 2, &place)?, &place, "coordinate")?;
        let y = number(word(&words, 3, &place)?, &place, "coordinate")?;
        nodes.push(node(words[0].to_owned(), x, y, notes));
    }
    let names = Names::of(&nodes, "section NODES")?;
    let mut stated = Vec::new();
    // id ( from to ) capacity cost routing setup ( {module cost}* )
    for (place, words) in section(text, "LINKS")? {
        let installed = number(word(&words, 5, &place)?, &place, "capacity")?;
        let modules: Vec<&str> = words
            .iter()
            .skip(10)
            .copied()
            .take_while(|w| *w != ")")
            .collect();
        let mut largest: f64 = 0.0;
        for pair in modules.chunks(2) {
            largest = largest.max(number(pair[0], &place, "module capacity")?);
        }
        stated.push(Stated {
            id: words[0].to_owned(),
            from: names.find(word(&words, 2, &place)?, &place)?,
            to: names.find(word(&words, 3, &place)?, &place)?,
            installed,
            largest,
            place,
        });
    }
    let mut demands = Vec::new();
    // id ( from to ) unit value length
    for (place, words) in section(text, "DEMANDS")? {
        let unit = number(word(&words, 5, &place)?, &place, "routing unit")?;
        demands.push(Traffic {
            from: names.find(word(&words, 2, &place)?, &place)?,
            to: names.find(word(&words, 3, &place)?, &place)?,
            mbps: unit * number(word(&words, 6, &place)?, &place, "demand")?,
        });
    }
    Ok((assemble(nodes, stated, defaults, notes)?, demands))
}

fn child<'a>(element: &Element<'a, 'a>, path: &[&str]) -> Option<Element<'a, 'a>> {
    path.iter().try_fold(*element, |e, name| {
        e.children().find(|c| c.has_tag_name_local(name))
    })
}

fn text_at<'a>(element: &Element<'a, 'a>, path: &[&str]) -> Result<&'a str, InputError> {
    child(element, path)
        .and_then(|e| e.text())
        .map(str::trim)
        .ok_or_else(|| {
            InputError::new(
                place(element),
                Reason::MissingField,
                format!("there is no <{}>", path.join("><")),
            )
        })
}

fn xml(
    text: &str,
    defaults: &Defaults,
    notes: &mut Notes,
) -> Result<(Model, Vec<Traffic>), InputError> {
    let document = document(text)?;
    let root = document.root_element();
    let places = Places::of(&root);
    let list = |path: &[&str], name: &'static str| -> Result<Vec<Element<'_, '_>>, InputError> {
        let parent = child(&root, path).ok_or_else(|| {
            InputError::new(
                place(&root),
                Reason::MissingField,
                format!("there is no <{}>", path.join("><")),
            )
        })?;
        Ok(parent
            .children()
            .filter(move |c| c.has_tag_name_local(name))
            .collect())
    };
    let id = |e: &Element<'_, '_>| {
        e.attribute("id")
            .map(str::to_owned)
            .ok_or_else(|| InputError::new(place(e), Reason::MissingField, "needs an id"))
    };
    let mut nodes = Vec::new();
    for element in list(&["networkStructure", "nodes"], "node")? {
        let at = places.place(&element);
        let x = number(text_at(&element, &["coordinates", "x"])?, &at, "coordinate")?;
        let y = number(text_at(&element, &["coordinates", "y"])?, &at, "coordinate")?;
        nodes.push(node(id(&element)?, x, y, notes));
    }
    let names = Names::of(&nodes, "<nodes>")?;
    let mut stated = Vec::new();
    for element in list(&["networkStructure", "links"], "link")? {
        let at = places.place(&element);
        let installed = match child(&element, &["preInstalledModule", "capacity"]) {
            Some(capacity) => number(capacity.text().unwrap_or("").trim(), &at, "capacity")?,
            None => 0.0,
        };
        let mut largest: f64 = 0.0;
        let modules = child(&element, &["additionalModules"]);
        for module in modules
            .iter()
            .flat_map(|m| m.children())
            .filter(|m| m.has_tag_name_local("addModule"))
        {
            largest = largest.max(number(
                text_at(&module, &["capacity"])?,
                &at,
                "module capacity",
            )?);
        }
        stated.push(Stated {
            id: id(&element)?,
            from: names.find(text_at(&element, &["source"])?, &at)?,
            to: names.find(text_at(&element, &["target"])?, &at)?,
            installed,
            largest,
            place: at,
        });
    }
    let mut demands = Vec::new();
    for element in list(&["demands"], "demand")? {
        let at = places.place(&element);
        demands.push(Traffic {
            from: names.find(text_at(&element, &["source"])?, &at)?,
            to: names.find(text_at(&element, &["target"])?, &at)?,
            mbps: number(text_at(&element, &["demandValue"])?, &at, "demand")?,
        });
    }
    Ok((assemble(nodes, stated, defaults, notes)?, demands))
}

fn assemble(
    nodes: Vec<Node>,
    stated: Vec<Stated>,
    defaults: &Defaults,
    notes: &mut Notes,
) -> Result<Model, InputError> {
    note_places(&nodes, notes);
    let loops = stated.iter().filter(|l| l.from == l.to);
    loops.for_each(|l| notes.add(Change::SelfLoop, &l.id));
    let listed: HashSet<(usize, usize)> = stated.iter().map(|s| (s.from, s.to)).collect();
    let mut links = Vec::new();
    for link in stated.iter().filter(|l| l.from != l.to) {
        let bandwidth_mbps = bandwidth(link, defaults, notes)?;
        let ends = (&nodes[link.from], &nodes[link.to]);
        let latency_ms = latency(ends, defaults, &link.place, notes)?;
        let mut push = |id: String, from: usize, to: usize| {
            links.push(Link {
                id,
                from,
                to,
                latency_ms,
                bandwidth_mbps,
                background_mbps: 0.0,
            });
        };
        push(link.id.clone(), link.from, link.to);
        if !listed.contains(&(link.to, link.from)) {
            push(format!("{}-reverse", link.id), link.to, link.from);
        }
    }
    let ids = links.iter().map(|l: &Link| l.id.clone()).collect();
    let ids = unique(ids, Change::RepeatedLink, notes);
    links
        .iter_mut()
        .zip(ids)
        .for_each(|(link, id)| link.id = id);
    note_parallels(&links, notes);
    Ok(backbone(nodes, links))
}

/// What is installed, else the largest module, else the default.
fn bandwidth(link: &Stated, defaults: &Defaults, notes: &mut Notes) -> Result<f64, InputError> {
    if link.installed > 0.0 {
        return Ok(link.installed);
    }
    if link.largest > 0.0 {
        notes.add(Change::LargestModule, &link.id);
        return Ok(link.largest);
    }
    let message = "the link has no capacity and no module; give --default-bandwidth in Mbit/s";
    let missing = || InputError::new(&link.place, Reason::MissingField, message);
    let bandwidth = defaults.bandwidth_mbps.ok_or_else(missing)?;
    notes.add(Change::DefaultBandwidth, &link.id);
    Ok(bandwidth)
}
