//! Results read back.

use std::collections::HashMap;

use super::verdict::Verdict;
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::{Ends, Model};
use crate::result::{Figures, RouteEntry};

/// The members of a plain result; plans have more.
pub const HEAD: [&str; 12] = [
    "status",
    "partial",
    "objective",
    "value",
    "bound",
    "gap",
    "bound_ignores",
    "seconds",
    "carried_mbps",
    "mean_latency_ms",
    "max_link_utilization",
    "routes",
];

/// What a result states of one routing.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFile {
    /// How it ended.
    pub verdict: Verdict,
    /// What the bound leaves out of account, where that is stated.
    pub bound_ignores: Option<Vec<String>>,
    /// Figures beside the value.
    pub figures: Figures,
    /// The routes.
    pub routes: Vec<RouteEntry>,
}

/// Reads what every result of one routing has.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn result(root: &Fields<'_>, model: &Model) -> Result<ResultFile, InputError> {
    let list = root.place.name("bound_ignores");
    let words = |value| {
        let words = list.list(value)?.iter().enumerate();
        let word = |(i, word)| list.index(i).text(word).map(str::to_owned);
        words.map(word).collect::<Result<Vec<String>, InputError>>()
    };
    let bound_ignores = root.optional("bound_ignores").map(words).transpose()?;
    Ok(ResultFile {
        verdict: Verdict::read(root)?,
        bound_ignores,
        figures: Figures::read(root)?,
        routes: routes(root, model)?,
    })
}

/// Indexes by identifier.
struct Names<'a> {
    kind: &'static str,
    index: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn new(kind: &'static str, ids: impl Iterator<Item = &'a String>) -> Names<'a> {
        let index = ids.enumerate().map(|(i, id)| (id.as_str(), i)).collect();
        Names { kind, index }
    }

    fn find(&self, place: Place<'_>, value: &Value) -> Result<usize, InputError> {
        let id = place.text(value)?;
        self.index.get(id).copied().ok_or_else(|| {
            let message = format!("there is no {} '{id}' in the model", self.kind);
            place.error(Reason::DanglingReference, message)
        })
    }
}

/// The index of the site that a member names.
///
/// # Errors
/// One that the model does not have.
pub fn site(fields: &Fields<'_>, name: &str, model: &Model) -> Result<usize, InputError> {
    let sites = Names::new("site", model.sites.iter().map(|s| &s.id));
    sites.find(fields.place.name(name), fields.required(name)?)
}

/// The index of the VNF that a member names.
///
/// # Errors
/// One that the model does not have.
pub fn vnf(fields: &Fields<'_>, name: &str, model: &Model) -> Result<usize, InputError> {
    let vnfs = Names::new("VNF", model.vnfs.iter().map(|v| &v.id));
    vnfs.find(fields.place.name(name), fields.required(name)?)
}

/// Reads the member `routes`.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn routes(root: &Fields<'_>, model: &Model) -> Result<Vec<RouteEntry>, InputError> {
    let chains = Names::new("chain", model.chains.iter().map(|c| &c.id));
    let sites = Names::new("site", model.sites.iter().map(|s| &s.id));
    let nodes = Names::new("node", model.nodes.iter().map(|n| &n.id));
    let list = root.place.name("routes");
    let known = ["chain", "fraction", "sites", "ingress", "egress"];
    let mut entries = Vec::new();
    for (i, value) in root.list("routes")?.iter().enumerate() {
        let place = list.index(i);
        let fields = Fields::of(place, value, &known)?;
        let chain = chains.find(place.name("chain"), fields.required("chain")?)?;
        let site_list = place.name("sites");
        let mut visited = Vec::new();
        for (k, site) in fields.list("sites")?.iter().enumerate() {
            visited.push(sites.find(site_list.index(k), site)?);
        }
        let end = |name: &str, ends: &Ends| match fields.optional(name) {
            Some(value) => nodes.find(place.name(name), value),
            None if ends.nodes().count() == 1 => Ok(ends.nodes().next().unwrap_or(0)),
            None => {
                let message = format!("the chain has several ends: '{name}' is missing");
                Err(place.error(Reason::MissingField, message))
            }
        };
        entries.push(RouteEntry {
            chain,
            fraction: fields.positive("fraction")?,
            sites: visited,
            ingress: end("ingress", &model.chains[chain].ingress)?,
            egress: end("egress", &model.chains[chain].egress)?,
        });
    }
    Ok(entries)
}
