//! Routes of a service path.

use crate::prefix::Prefix;
use crate::routes::{ROUTE_LIMIT, Route, Routes};
use crate::rules::error::RuleError;
use crate::rules::fields::{Result, each, prefix};
use contracts::forwarder as contract;
use foldhash::{HashMap, HashSet};

/// Where routes begin, with positions in the list.
type Positions<'a> = HashMap<&'a str, usize>;

/// Checks the routes of a path that were given, and where they begin.
pub(super) fn routes(field: &str, path: &contract::ServicePath) -> Result<Routes> {
    if path.routes.len() > ROUTE_LIMIT {
        let problem = format!("{} routes; give at most {ROUTE_LIMIT}", path.routes.len());
        return Err(RuleError::new(format!("{field}.routes"), problem));
    }
    let (positions, ingresses) = ingresses(field, path)?;
    let mut known = HashSet::default();
    let mut list = Vec::with_capacity(path.routes.len());
    for (index, given) in path.routes.iter().enumerate() {
        let field = format!("{field}.routes[{index}]");
        let route = route(&field, path, given, &positions)?;
        if !known.insert(&given.sites) {
            return Err(RuleError::new(
                field + ".sites",
                "another route has these sites; add up their weights",
            ));
        }
        list.push(route);
    }
    Ok(Routes {
        list,
        ingresses: ingresses.into(),
    })
}

/// The sites where routes begin, with their positions, and the sources that enter there.
fn ingresses<'a>(
    field: &str,
    path: &'a contract::ServicePath,
) -> Result<(Positions<'a>, Vec<Vec<Prefix>>)> {
    let (mut positions, mut sources) = (Positions::default(), Vec::new());
    for (index, ingress) in path.ingresses.iter().enumerate() {
        let field = format!("{field}.ingresses[{index}]");
        if ingress.site.is_empty() || positions.insert(&*ingress.site, index).is_some() {
            let problem = format!("{:?} is no site, or listed twice", ingress.site);
            return Err(RuleError::new(field + ".site", problem));
        }
        if !path
            .routes
            .iter()
            .any(|r| r.sites.first() == Some(&ingress.site))
        {
            let problem = format!("no route begins at {:?}; leave it out", ingress.site);
            return Err(RuleError::new(field + ".site", problem));
        }
        sources.push(each(&field, "prefixes", &ingress.prefixes, prefix)?);
    }
    Ok((positions, sources))
}

fn route(
    field: &str,
    path: &contract::ServicePath,
    given: &contract::Route,
    ingresses: &Positions<'_>,
) -> Result<Route> {
    let weight = u16::try_from(given.weight)
        .ok()
        .filter(|&weight| weight > 0);
    let weight =
        weight.ok_or_else(|| RuleError::new(format!("{field}.weight"), "give 1 to 65535"))?;
    let elements = path.vnf_count as usize + 2;
    if given.sites.len() != elements || given.sites.iter().any(String::is_empty) {
        let problem = format!("give {elements} sites: of the ingress, each VNF and the egress");
        return Err(RuleError::new(format!("{field}.sites"), problem));
    }
    let ingress = *ingresses.get(&*given.sites[0]).ok_or_else(|| {
        let problem = format!("{:?} is not in the path's ingresses", given.sites[0]);
        RuleError::new(format!("{field}.sites[0]"), problem)
    })?;
    Ok(Route {
        weight,
        sites: given.sites.clone(),
        ingress,
    })
}
