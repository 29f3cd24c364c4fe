//! What an entry may say by itself, and which entries refer to something that is not there.
//!
//! The first is decided when an entry comes: a wrong one is refused, and what was in force stays in force. The second may
//! change with every other entry, in any order, so it is looked up anew each time: what waits for something counts as
//! absent until that comes.

use std::collections::BTreeSet;

use super::held::{Claim, OWN};
use super::{CHAIN, CUSTOMER, KINDS, LINK, NETWORK, NODE, OF_NETWORK, SITE, VNF, Worker};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::Model;

/// An entry that is not in force, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// Key of the entry.
    pub key: String,
    /// Why, with the field's pointer where it is a field.
    pub reason: String,
}

/// A node and a site that no entry names: bodies for the ends and deployments that an entry refers to.
const STAND_IN: &str = "\u{0}stand-in";

/// Whether an entry is right by itself, whatever it refers to.
///
/// # Errors
/// The first mistake, with its pointer in the entry.
pub(super) fn check(kind: usize, value: &Value) -> Result<(), InputError> {
    match kind {
        NETWORK => Fields::of(Place::ROOT, value, &OF_NETWORK).map(|_| ())?,
        CHAIN => {
            Claim::read(Place::ROOT, value)?;
            if member(value, "ingress").is_none() {
                return Fields::of(Place::ROOT, value, &RESERVING).map(|_| ());
            }
        }
        _ if !matches!(member(value, "id"), Some(Value::Text(_))) => {
            let message = "an entry needs an 'id', a text";
            return Err(Place::ROOT.error(Reason::MissingField, message));
        }
        _ => {}
    }
    let (document, place) = alone(kind, value);
    Model::of_parts(&document).map(|_| ()).map_err(|mut e| {
        e.pointer = e.pointer.replacen(place, "", 1);
        e
    })
}

/// Fields of a chain's entry that says only what is reserved for it.
const RESERVING: [&str; 7] = [
    "id",
    "vnfs",
    "forward_mbps",
    "reverse_mbps",
    "customer",
    OWN[0],
    OWN[1],
];

/// A model of one entry and bodies for all that it refers to, and the entry's place in it.
fn alone(kind: usize, value: &Value) -> (Value, &'static str) {
    let own = |name: &str| OWN.contains(&name);
    let entry = match (kind, value) {
        (CHAIN, Value::Object(members)) => {
            Value::Object(members.iter().filter(|(n, _)| !own(n)).cloned().collect())
        }
        _ => value.clone(),
    };
    let mut names = Names::of(kind, value);
    names.nodes.insert(STAND_IN);
    let mut lists: [(&str, Vec<Value>); 6] = [
        ("nodes", names.nodes.iter().map(|id| node(id)).collect()),
        ("links", names.links.iter().map(|id| link(id)).collect()),
        ("sites", names.sites.iter().map(|id| site(id)).collect()),
        ("vnfs", names.vnfs.iter().map(|id| vnf(id)).collect()),
        (
            "customers",
            names.customers.iter().map(|id| customer(id)).collect(),
        ),
        ("chains", Vec::new()),
    ];
    if !names.links.is_empty() {
        lists[0].1.push(node(OTHER_END));
    }
    if !names.vnfs.is_empty() {
        lists[2].1.push(site(STAND_IN));
    }
    let place = match kind {
        NODE => "/nodes/0",
        LINK => "/links/0",
        SITE => "/sites/0",
        VNF => "/vnfs/0",
        CUSTOMER => "/customers/0",
        CHAIN => "/chains/0",
        _ => "",
    };
    let list = lists
        .iter_mut()
        .find(|(name, _)| place.get(1..).and_then(|p| p.strip_suffix("/0")) == Some(*name));
    match list {
        // Of nodes it is the only one, so that none can have the same name.
        Some((name, list)) if *name == "nodes" => *list = vec![entry.clone()],
        Some((_, list)) => list.push(entry.clone()),
        None => {}
    }
    let mut members: Vec<(String, Value)> = lists
        .map(|(name, list)| (name.to_owned(), Value::List(list)))
        .into();
    if let (NETWORK, Value::Object(fields)) = (kind, entry) {
        members.extend(fields);
    }
    (Value::Object(members), place)
}

/// The far end of the links that stand in.
const OTHER_END: &str = "\u{0}other-end";

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.map(|(name, value)| (name.to_owned(), value)).into())
}

fn node(id: &str) -> Value {
    let zero = Value::Number(0.0);
    object([
        ("id", text(id)),
        ("latitude", zero.clone()),
        ("longitude", zero),
    ])
}

fn link(id: &str) -> Value {
    object([
        ("id", text(id)),
        ("from", text(STAND_IN)),
        ("to", text(OTHER_END)),
        ("bandwidth_mbps", Value::Number(1.0)),
    ])
}

fn site(id: &str) -> Value {
    object([
        ("id", text(id)),
        ("node", text(STAND_IN)),
        ("capacity", Value::Number(1.0)),
    ])
}

fn vnf(id: &str) -> Value {
    let deployment = object([("site", text(STAND_IN)), ("capacity", Value::Number(1.0))]);
    object([
        ("id", text(id)),
        ("load_per_mbps", Value::Number(1.0)),
        ("deployments", Value::List(vec![deployment])),
    ])
}

fn customer(id: &str) -> Value {
    object([("id", text(id)), ("priority", Value::Number(1.0))])
}

/// What an entry refers to. Values of a wrong type are not collected; the reader names them.
#[derive(Default)]
struct Names<'a> {
    nodes: BTreeSet<&'a str>,
    links: BTreeSet<&'a str>,
    sites: BTreeSet<&'a str>,
    vnfs: BTreeSet<&'a str>,
    customers: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn of(kind: usize, value: &'a Value) -> Names<'a> {
        let mut names = Names::default();
        let of = |name: &str| texts(member(value, name));
        match kind {
            LINK => names.nodes.extend(of("from").chain(of("to"))),
            SITE => names.nodes.extend(of("node")),
            VNF => {
                let deployments = items(member(value, "deployments"));
                names
                    .sites
                    .extend(deployments.flat_map(|d| texts(member(d, "site"))));
            }
            NETWORK => {
                let routing = member(value, "routing").and_then(|r| member(r, "entries"));
                for entry in items(routing) {
                    let of = |name: &str| texts(member(entry, name));
                    names.nodes.extend(of("from").chain(of("to")));
                    names.links.extend(of("link"));
                }
            }
            CHAIN => {
                names.nodes.extend(of("ingress").chain(of("egress")));
                names.vnfs.extend(of("vnfs"));
                names.customers.extend(of("customer"));
                for choice in ["avoid", "use"]
                    .iter()
                    .filter_map(|name| member(value, name))
                {
                    names.sites.extend(texts(member(choice, "sites")));
                    names.links.extend(texts(member(choice, "links")));
                }
            }
            _ => {}
        }
        names
    }
}

/// A member of an object.
pub(super) fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
        _ => None,
    }
}

/// The items of a list.
fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    match value {
        Some(Value::List(items)) => items.iter(),
        _ => [].iter(),
    }
}

/// The texts of a text, or of a list of texts or of objects with a `node`; empty ones are nobody's names.
fn texts(value: Option<&Value>) -> impl Iterator<Item = &str> {
    let one = match value {
        Some(Value::Text(text)) => Some(&text[..]),
        _ => None,
    };
    let several = items(value).filter_map(|item| match (item, member(item, "node")) {
        (Value::Text(text), _) | (_, Some(Value::Text(text))) => Some(&text[..]),
        _ => None,
    });
    one.into_iter()
        .chain(several)
        .filter(|text| !text.is_empty())
}

impl Worker {
    /// Entries that wait for others, in part or as a whole: links and sites at nodes that are not there, deployments at sites
    /// that are not.
    pub fn waiting(&self) -> Vec<Notice> {
        self.in_force().1
    }

    /// The model without its chains as far as what it refers to is there, and what is not in force for the lack of that.
    pub(super) fn in_force(&self) -> (Value, Vec<Notice>) {
        let mut waiting = Vec::new();
        let mut wait = |kind: &str, key: &str, reason: String| {
            waiting.push(Notice {
                key: format!("{kind}.{key}"),
                reason,
            });
        };
        let nodes: BTreeSet<&str> = ids(self.entries[NODE].values()).collect();
        let with_place = |node: &&Value| member(node, "latitude").is_some();
        let placed: BTreeSet<&str> = ids(self.entries[NODE].values().filter(with_place)).collect();
        let lacks = |value: &Value, fields: &[&'static str]| {
            let named = |field: &&'static str| {
                texts(member(value, field))
                    .next()
                    .map(|id| (*field, id.to_owned()))
            };
            fields
                .iter()
                .filter_map(named)
                .find(|(_, id)| !nodes.contains(&id[..]))
        };
        let mut links = Vec::new();
        for (key, value) in &self.entries[LINK] {
            let bare = || {
                ["from", "to"]
                    .into_iter()
                    .flat_map(|f| texts(member(value, f)))
                    .find(|id| !placed.contains(id))
            };
            if let Some((field, id)) = lacks(value, &["from", "to"]) {
                wait(
                    "link",
                    key,
                    format!("/{field}: there is no node '{id}' yet"),
                );
            } else if let (None, Some(id)) = (member(value, "latency_ms"), bare()) {
                wait(
                    "link",
                    key,
                    format!(
                        "/latency_ms: is missing, and the node '{id}' has no coordinates to compute it from yet"
                    ),
                );
            } else {
                links.push(value.clone());
            }
        }
        let mut sites = Vec::new();
        for (key, value) in &self.entries[SITE] {
            match lacks(value, &["node"]) {
                Some((field, id)) => wait(
                    "site",
                    key,
                    format!("/{field}: there is no node '{id}' yet"),
                ),
                None => sites.push(value.clone()),
            }
        }
        let known: BTreeSet<&str> = ids(&sites).collect();
        let mut vnfs = Vec::new();
        for (key, value) in &self.entries[VNF] {
            vnfs.push(deployed(value, &known, |i, site| {
                wait(
                    "vnf",
                    key,
                    format!("/deployments/{i}/site: there is no site '{site}' yet"),
                );
            }));
        }
        let list = |values: Vec<Value>| Value::List(values);
        let all = |kind: usize| self.entries[kind].values().cloned().collect::<Vec<Value>>();
        let mut members = vec![
            ("nodes".to_owned(), list(all(NODE))),
            ("links".to_owned(), list(links)),
            ("sites".to_owned(), list(sites)),
            ("vnfs".to_owned(), list(vnfs)),
            ("customers".to_owned(), list(all(CUSTOMER))),
            ("chains".to_owned(), list(Vec::new())),
        ];
        for entry in self.entries[NETWORK].values() {
            if let Value::Object(fields) = entry {
                members.extend(fields.iter().cloned());
            }
        }
        let mut document = Value::Object(members);
        if let Some(reason) = routing_lacks(&document)
            && let Value::Object(members) = &mut document
        {
            members.retain(|(name, _)| name != ROUTING);
            waiting.push(Notice {
                key: KINDS[NETWORK].0.to_owned(),
                reason,
            });
        }
        (document, waiting)
    }
}

/// The field of a model that says how the network routes.
const ROUTING: &str = OF_NETWORK[1];

/// Why a stated routing cannot be used with the nodes and links that there are.
fn routing_lacks(document: &Value) -> Option<String> {
    member(document, ROUTING)?;
    let wrong = Model::from_value(document).err()?;
    wrong
        .pointer
        .starts_with("/routing")
        .then(|| format!("{wrong}; shortest paths hold meanwhile"))
}

fn ids<'a>(values: impl IntoIterator<Item = &'a Value>) -> impl Iterator<Item = &'a str> {
    values
        .into_iter()
        .flat_map(|value| texts(member(value, "id")))
}

/// A VNF without its deployments at sites that are not there.
fn deployed(vnf: &Value, sites: &BTreeSet<&str>, mut absent: impl FnMut(usize, &str)) -> Value {
    let Value::Object(members) = vnf else {
        return vnf.clone();
    };
    let of = |(name, value): &(String, Value)| match (&name[..], value) {
        ("deployments", Value::List(items)) => {
            let mut there = Vec::with_capacity(items.len());
            for (i, item) in items.iter().enumerate() {
                match texts(member(item, "site")).next() {
                    Some(site) if !sites.contains(site) => absent(i, site),
                    _ => there.push(item.clone()),
                }
            }
            (name.clone(), Value::List(there))
        }
        _ => (name.clone(), value.clone()),
    };
    Value::Object(members.iter().map(of).collect())
}
