//! What a chain holds: traffic on its routes' links, and what is reserved for it at sites.

use super::entries::member;
use crate::error::{InputError, Reason};
use crate::instance::Instance;
use crate::json::{Fields, Place, Value};
use crate::model::{Model, read_traffic};

/// The fields of a chain's entry that say what it holds; the others are the contract's.
pub const OWN: [&str; 2] = ["routes", "reserved"];

/// A route that a chain has.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// Its share of the chain's demand.
    pub fraction: f64,
    /// Names of the ingress node, the sites in order, and the egress node.
    pub ingress: String,
    /// Site of each VNF.
    pub sites: Vec<String>,
    /// Egress node.
    pub egress: String,
}

/// What a chain holds of a model's rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Held {
    /// Load on rows; a row may come several times. What is no longer in the model counts for nothing.
    pub loads: Vec<(usize, f64)>,
    /// Its routes.
    pub paths: Vec<Path>,
}

/// What a chain's entry says that it holds, in the entry's own names.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim {
    paths: Vec<Path>,
    /// Forward and reverse traffic of each path's stages.
    traffic: Vec<(Vec<f64>, Vec<f64>)>,
    /// VNF, site and load.
    reserved: Vec<(String, String, f64)>,
}

impl Claim {
    /// Reads `forward_mbps`, `reverse_mbps`, `routes` `[{fraction, ingress, sites, egress}]` and `reserved`
    /// `[{vnf, site, load}]` of a chain's entry.
    ///
    /// # Errors
    /// The first mistake, with its pointer.
    pub(super) fn read(place: Place<'_>, value: &Value) -> Result<Claim, InputError> {
        let Value::Object(_) = value else {
            return Err(place.error(Reason::WrongType, "a chain's entry must be an object"));
        };
        let mut claim = Claim::default();
        if let Some(routes) = member(value, "routes") {
            let list = place.name("routes");
            for (i, item) in list.list(routes)?.iter().enumerate() {
                claim.paths.push(path(list.index(i), item)?);
            }
        }
        for path in &claim.paths {
            let stages = path.sites.len() + 1;
            let traffic = |name: &str| match member(value, name) {
                Some(value) => read_traffic(place.name(name), value, stages),
                None => Ok(vec![0.0; stages]),
            };
            let both = (traffic("forward_mbps")?, traffic("reverse_mbps")?);
            claim.traffic.push(both);
        }
        if let Some(reserved) = member(value, "reserved") {
            claim.reserved = loads_at(place.name("reserved"), reserved)?;
        }
        Ok(claim)
    }

    /// What it is of a model's rows: routes load links, reservations VNFs and sites.
    pub(super) fn hold(self, model: &Model, instance: &Instance) -> Held {
        let mut loads = Vec::new();
        for (path, (forward, reverse)) in self.paths.iter().zip(&self.traffic) {
            carry(model, instance, path, (forward, reverse), &mut loads);
        }
        loads.extend(rows(model, instance, self.reserved));
        Held {
            loads,
            paths: self.paths,
        }
    }
}

fn path(place: Place<'_>, value: &Value) -> Result<Path, InputError> {
    let fields = Fields::of(place, value, &["fraction", "ingress", "sites", "egress"])?;
    let list = place.name("sites");
    let sites = fields.list("sites")?.iter().enumerate();
    Ok(Path {
        fraction: fields.not_negative("fraction")?,
        ingress: fields.text("ingress")?.to_owned(),
        sites: sites
            .map(|(i, s)| list.index(i).text(s).map(str::to_owned))
            .collect::<Result<_, _>>()?,
        egress: fields.text("egress")?.to_owned(),
    })
}

/// Puts a path's traffic on the links between its stops. A stop that has gone carries nothing any more.
fn carry(
    model: &Model,
    instance: &Instance,
    path: &Path,
    traffic: (&[f64], &[f64]),
    loads: &mut Vec<(usize, f64)>,
) {
    let node = |id: &str| model.nodes.iter().position(|n| n.id == id);
    let site = |id: &String| model.sites.iter().find(|s| s.id == *id).map(|s| s.node);
    let inner = path.sites.iter().map(site);
    let stops: Vec<Option<usize>> = std::iter::once(node(&path.ingress))
        .chain(inner)
        .chain([node(&path.egress)])
        .collect();
    for (stage, hop) in stops.windows(2).enumerate() {
        let (Some(from), Some(to)) = (hop[0], hop[1]) else {
            continue;
        };
        let (forward, reverse) = (
            path.fraction * traffic.0[stage],
            path.fraction * traffic.1[stage],
        );
        loads.extend(
            instance
                .network
                .path(from, to)
                .map(|(link, share)| (link, share * forward)),
        );
        loads.extend(
            instance
                .network
                .path(to, from)
                .map(|(link, share)| (link, share * reverse)),
        );
    }
}

/// Rows and loads of a list `[{vnf, site, load}]` of what is about to be held: each loads its site and the VNF there.
///
/// # Errors
/// The first mistake, with its pointer: a VNF that the model does not have is one, a site that has gone is none.
pub fn planned_at_sites(
    model: &Model,
    instance: &Instance,
    list: Place<'_>,
    value: &Value,
) -> Result<Vec<(usize, f64)>, InputError> {
    let loads = loads_at(list, value)?;
    for (i, (vnf, ..)) in loads.iter().enumerate() {
        if !model.vnfs.iter().any(|v| v.id == *vnf) {
            let message = format!("there is no VNF '{vnf}' in the model");
            let place = list.index(i);
            return Err(place.name("vnf").error(Reason::DanglingReference, message));
        }
    }
    Ok(rows(model, instance, loads))
}

fn loads_at(list: Place<'_>, value: &Value) -> Result<Vec<(String, String, f64)>, InputError> {
    let items = list.list(value)?.iter().enumerate();
    items
        .map(|(i, item)| at_site(list.index(i), item))
        .collect()
}

fn rows(model: &Model, instance: &Instance, at: Vec<(String, String, f64)>) -> Vec<(usize, f64)> {
    let mut loads = Vec::new();
    for (vnf, site, load) in at {
        let Some(site) = model.sites.iter().position(|s| s.id == site) else {
            continue;
        };
        loads.push((instance.links + site, load));
        let vnf = model.vnfs.iter().position(|v| v.id == vnf);
        if let Some(row) = vnf.and_then(|v| instance.vnf_row(v, site)) {
            loads.push((row, load));
        }
    }
    loads
}

/// Reads `{vnf, site, load}`.
///
/// # Errors
/// The first mistake, with its pointer.
pub fn at_site(place: Place<'_>, value: &Value) -> Result<(String, String, f64), InputError> {
    let fields = Fields::of(place, value, &["vnf", "site", "load"])?;
    Ok((
        fields.text("vnf")?.to_owned(),
        fields.text("site")?.to_owned(),
        fields.not_negative("load")?,
    ))
}
