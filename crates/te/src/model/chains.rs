//! The chains section of the model.

use super::read::{Catalogue, Names};
use super::{Chain, Ends, Limits, Model, ranges};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use std::collections::HashSet;

const KNOWN: [&str; 14] = [
    "id",
    "ingress",
    "egress",
    "vnfs",
    "forward_mbps",
    "reverse_mbps",
    "priority",
    "minimum_share",
    "survive_share",
    "max_latency_ms",
    "max_routes",
    "avoid",
    "use",
    "customer",
];

/// A chain visits each required site or link; more than this many would make its dynamic program explode.
const MAX_USES: usize = 6;

pub(super) fn read(
    root: &Fields<'_>,
    catalogue: &Catalogue,
    model: &Model,
) -> Result<Vec<Chain>, InputError> {
    let list = root.place.name("chains");
    let values = root.list("chains")?;
    let mut chains = Vec::with_capacity(values.len());
    let mut ids: HashSet<&str> = HashSet::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let fields = Fields::of(list.index(i), value, &KNOWN)?;
        let id = fields.text("id")?;
        if !ids.insert(id) {
            let message = format!("the chain '{id}' is already in this list");
            return Err(fields.place.name("id").error(Reason::Duplicate, message));
        }
        chains.push(chain(&fields, id, catalogue, model)?);
    }
    Ok(chains)
}

fn chain(
    fields: &Fields<'_>,
    id: &str,
    catalogue: &Catalogue,
    model: &Model,
) -> Result<Chain, InputError> {
    let place = &fields.place;
    let vnf_list = place.name("vnfs");
    let mut vnfs = Vec::new();
    for (i, value) in fields.list("vnfs")?.iter().enumerate() {
        let vnf = catalogue.vnfs.find(vnf_list.index(i), value)?;
        if model.vnfs[vnf].deployments.is_empty() {
            let message = format!(
                "the VNF '{}' is deployed nowhere; deploy it or take it out",
                model.vnfs[vnf].id
            );
            return Err(vnf_list.index(i).error(Reason::NowhereDeployed, message));
        }
        vnfs.push(vnf);
    }
    let stages = vnfs.len() + 1;
    let customer = customer(fields, catalogue)?;
    let chain = Chain {
        id: id.to_owned(),
        ingress: ends(
            place.name("ingress"),
            fields.required("ingress")?,
            &catalogue.nodes,
        )?,
        egress: ends(
            place.name("egress"),
            fields.required("egress")?,
            &catalogue.nodes,
        )?,
        forward_mbps: traffic(
            place.name("forward_mbps"),
            fields.required("forward_mbps")?,
            stages,
        )?,
        reverse_mbps: match fields.optional("reverse_mbps") {
            Some(value) => traffic(place.name("reverse_mbps"), value, stages)?,
            None => vec![0.0; stages],
        },
        vnfs,
        priority: ranges::PRIORITY
            .optional(fields, "priority")?
            .unwrap_or(customer.map_or(1.0, |(_, priority)| priority)),
        customer: customer.map(|(id, _)| id.to_owned()),
        minimum_share: ranges::SHARE.optional(fields, "minimum_share")?,
        survive_share: ranges::SHARE.optional(fields, "survive_share")?,
        limits: limits(fields, catalogue)?,
    };
    let fixed = |ends: &Ends| match ends {
        Ends::Any(_) => 1,
        Ends::Shares(shares) => shares.len(),
    };
    let pairs = fixed(&chain.ingress) * fixed(&chain.egress);
    if chain.limits.max_routes.is_some_and(|most| most < pairs) {
        let message = format!("{pairs} pairs of ends with fixed shares need a route each");
        return Err(place
            .name("max_routes")
            .error(Reason::Contradiction, message));
    }
    if chain.demand_mbps() == 0.0 {
        let message =
            "forward and reverse traffic are both zero where they enter; leave the chain out";
        return Err(place.error(Reason::OutOfRange, message));
    }
    Ok(chain)
}

fn customer<'a>(
    fields: &Fields<'a>,
    catalogue: &Catalogue,
) -> Result<Option<(&'a str, f64)>, InputError> {
    let Some(value) = fields.optional("customer") else {
        return Ok(None);
    };
    let place = fields.place.name("customer");
    let id = place.text(value)?;
    match catalogue.customers.get(id) {
        Some(priority) => Ok(Some((id, *priority))),
        None => {
            let message = format!("there is no customer '{id}' in this model");
            Err(place.error(Reason::DanglingReference, message))
        }
    }
}

fn ends(place: Place<'_>, value: &Value, nodes: &Names) -> Result<Ends, InputError> {
    let Value::List(items) = value else {
        return Ok(Ends::Any(vec![nodes.find(place, value)?]));
    };
    if items.is_empty() {
        return Err(place.error(Reason::WrongLength, "needs at least one node"));
    }
    let with_shares = matches!(items[0], Value::Object(_));
    let mut ends: Vec<(usize, f64)> = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let entry = place.index(i);
        let (node, share) = if with_shares {
            let fields = Fields::of(entry, item, &["node", "share"])?;
            (
                nodes.find(entry.name("node"), fields.required("node")?)?,
                ranges::END_SHARE.of(&fields, "share")?,
            )
        } else {
            (nodes.find(entry, item)?, 0.0)
        };
        if ends.iter().any(|(n, _)| *n == node) {
            return Err(entry.error(Reason::Duplicate, "this node is already in the list"));
        }
        ends.push((node, share));
    }
    if !with_shares {
        return Ok(Ends::Any(ends.into_iter().map(|(n, _)| n).collect()));
    }
    let total: f64 = ends.iter().map(|(_, s)| s).sum();
    if (total - 1.0).abs() > 1e-6 {
        return Err(place.error(
            Reason::Contradiction,
            format!("the shares sum to {total}, not to 1"),
        ));
    }
    Ok(Ends::Shares(
        ends.into_iter().map(|(n, s)| (n, s / total)).collect(),
    ))
}

/// Traffic of each stage: a list, or one number for all of them.
///
/// # Errors
/// A wrong length or a negative number, at `place`.
pub fn traffic(place: Place<'_>, value: &Value, stages: usize) -> Result<Vec<f64>, InputError> {
    let Value::List(items) = value else {
        return Ok(vec![ranges::TRAFFIC.at(place, value)?; stages]);
    };
    if items.len() != stages {
        let message = format!(
            "{} entries for {stages} stages; give one more than VNFs",
            items.len()
        );
        return Err(place.error(Reason::WrongLength, message));
    }
    items
        .iter()
        .enumerate()
        .map(|(i, item)| ranges::TRAFFIC.at(place.index(i), item))
        .collect()
}

fn limits(fields: &Fields<'_>, catalogue: &Catalogue) -> Result<Limits, InputError> {
    let mut limits = Limits {
        max_latency_ms: ranges::MOST_LATENCY.optional(fields, "max_latency_ms")?,
        ..Limits::default()
    };
    if let Some(value) = fields.optional("max_routes") {
        let place = fields.place.name("max_routes");
        let routes = ranges::ROUTES.at(place, value)?;
        if routes.fract() != 0.0 {
            return Err(place.error(
                Reason::OutOfRange,
                format!("{routes} is no whole number of routes"),
            ));
        }
        limits.max_routes = Some(routes as usize);
    }
    (limits.avoid_sites, limits.avoid_links) = sites_and_links(fields, "avoid", catalogue)?;
    (limits.use_sites, limits.use_links) = sites_and_links(fields, "use", catalogue)?;
    if limits.use_sites.len() + limits.use_links.len() > MAX_USES {
        let message = format!("at most {MAX_USES} sites and links together can be required");
        return Err(fields.place.name("use").error(Reason::WrongLength, message));
    }
    let both = limits
        .use_sites
        .iter()
        .any(|s| limits.avoid_sites.contains(s))
        || limits
            .use_links
            .iter()
            .any(|l| limits.avoid_links.contains(l));
    if both {
        let message = "the same site or link is both required and forbidden";
        return Err(fields
            .place
            .name("use")
            .error(Reason::Contradiction, message));
    }
    Ok(limits)
}

fn sites_and_links(
    fields: &Fields<'_>,
    name: &str,
    catalogue: &Catalogue,
) -> Result<(Vec<usize>, Vec<usize>), InputError> {
    let Some(value) = fields.optional(name) else {
        return Ok(Default::default());
    };
    let place = fields.place.name(name);
    let choice = Fields::of(place, value, &["sites", "links"])?;
    let indexes = |kind: &str, names: &Names| -> Result<Vec<usize>, InputError> {
        let Some(value) = choice.optional(kind) else {
            return Ok(Vec::new());
        };
        let list = place.name(kind);
        let mut found = Vec::new();
        for (i, item) in list.list(value)?.iter().enumerate() {
            let index = names.find(list.index(i), item)?;
            if found.contains(&index) {
                return Err(list
                    .index(i)
                    .error(Reason::Duplicate, "is already in this list"));
            }
            found.push(index);
        }
        Ok(found)
    };
    Ok((
        indexes("sites", &catalogue.sites)?,
        indexes("links", &catalogue.links)?,
    ))
}
