//! A chain without a route: the smallest set of constraints that excludes all of them.

use super::conflict;
use super::probe::Probe;
use super::rows::{figure, row};
use crate::error::{Constraint, Infeasible};
use crate::instance::Instance;
use crate::model::{Limits, Model};

/// One constraint on a chain's routes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Excluding {
    Latency,
    /// By position in the chain's list, as the three after it.
    AvoidSite(usize),
    AvoidLink(usize),
    UseSite(usize),
    UseLink(usize),
    /// A row without any capacity left.
    Empty(usize),
}

/// The proof that a commodity has no route.
pub fn no_route(model: &Model, instance: &Instance, commodity: usize) -> Infeasible {
    let index = instance.commodities[commodity].chain as usize;
    let chain = &model.chains[index];
    let search = Search {
        instance,
        commodity,
        limits: &chain.limits,
    };
    let found = search.smallest();
    let name = format!("chain {}", chain.id);
    let mut constraints: Vec<Constraint> = Vec::new();
    let mut message = format!("the chain '{}' has no possible route", chain.id);
    if found.is_empty() {
        // Nothing but the network and the deployments is left to exclude it.
        let unreachable = model.check_reachable(&instance.network, index, chain).err();
        let (pointer, scarce) = unreachable.map_or_else(
            || {
                let scarce = "its ends and the sites of its VNFs are not joined".to_owned();
                (format!("/chains/{index}"), scarce)
            },
            |e| (e.pointer, e.message),
        );
        message += &format!(": {scarce}");
        constraints.push(Constraint {
            name,
            pointer,
            scarce,
        });
    } else {
        let of_chain = |excluding: &Excluding| !matches!(excluding, Excluding::Empty(_));
        if !found.iter().any(of_chain) {
            constraints.push(Constraint {
                name,
                pointer: format!("/chains/{index}"),
                scarce: "every route needs one of the following, which have nothing left".into(),
            });
        }
        let listed = found
            .iter()
            .map(|&e| search.constraint(model, index, e, &found));
        constraints.extend(listed);
        message += match constraints.len() {
            1 => ": this constraint excludes all",
            _ => ": these constraints together exclude all, and none of them can be left out",
        };
    }
    Infeasible {
        constraints,
        message,
    }
}

struct Search<'a> {
    instance: &'a Instance,
    commodity: usize,
    limits: &'a Limits,
}

impl Search<'_> {
    /// The smallest set of constraints that excludes every route; empty where there is none without any.
    fn smallest(&self) -> Vec<Excluding> {
        let limits = self.limits;
        let rows = 0..self.instance.rows();
        let empty = rows.filter(|&row| self.instance.capacity[row] <= 0.0);
        let all: Vec<Excluding> = empty
            .map(Excluding::Empty)
            .chain((0..limits.avoid_sites.len()).map(Excluding::AvoidSite))
            .chain((0..limits.avoid_links.len()).map(Excluding::AvoidLink))
            .chain((0..limits.use_sites.len()).map(Excluding::UseSite))
            .chain((0..limits.use_links.len()).map(Excluding::UseLink))
            .chain(limits.max_latency_ms.map(|_| Excluding::Latency))
            .collect();
        conflict::smallest(&all, &|part| self.latency(part).is_none())
    }

    /// Latency of the fastest route when only some of the constraints hold.
    fn latency(&self, part: &[Excluding]) -> Option<f64> {
        let holds = |excluding: Excluding| part.contains(&excluding);
        let kept = |list: &[usize], of: fn(usize) -> Excluding| -> Vec<usize> {
            let kept = list.iter().enumerate().filter(|(i, _)| holds(of(*i)));
            kept.map(|(_, &index)| index).collect()
        };
        let limits = Limits {
            max_latency_ms: self
                .limits
                .max_latency_ms
                .filter(|_| holds(Excluding::Latency)),
            avoid_sites: kept(&self.limits.avoid_sites, Excluding::AvoidSite),
            avoid_links: kept(&self.limits.avoid_links, Excluding::AvoidLink),
            use_sites: kept(&self.limits.use_sites, Excluding::UseSite),
            use_links: kept(&self.limits.use_links, Excluding::UseLink),
            max_routes: None,
        };
        let counts = |row: usize| holds(Excluding::Empty(row));
        let commodity = &self.instance.commodities[self.commodity];
        Probe::new(self.instance, commodity, 0.0, &counts).latency(limits)
    }

    fn constraint(
        &self,
        model: &Model,
        chain: usize,
        excluding: Excluding,
        all: &[Excluding],
    ) -> Constraint {
        let site = |i: usize, list: &[usize]| model.sites[list[i]].id.as_str();
        let link = |i: usize, list: &[usize]| model.links[list[i]].id.as_str();
        let limits = self.limits;
        let (field, scarce) = match excluding {
            Excluding::Empty(empty) => return row(model, self.instance, empty),
            Excluding::Latency => {
                let others: Vec<Excluding> =
                    all.iter().copied().filter(|e| *e != excluding).collect();
                let fastest = self.latency(&others).map_or("unknown".into(), figure);
                let limit = figure(limits.max_latency_ms.unwrap_or(f64::INFINITY));
                let scarce = format!("the limit is {limit} ms, the fastest route takes {fastest}");
                ("max_latency_ms".into(), scarce)
            }
            Excluding::AvoidSite(i) => (
                format!("avoid/sites/{i}"),
                format!("must avoid site {}", site(i, &limits.avoid_sites)),
            ),
            Excluding::AvoidLink(i) => (
                format!("avoid/links/{i}"),
                format!("must avoid link {}", link(i, &limits.avoid_links)),
            ),
            Excluding::UseSite(i) => (
                format!("use/sites/{i}"),
                format!("must use site {}", site(i, &limits.use_sites)),
            ),
            Excluding::UseLink(i) => (
                format!("use/links/{i}"),
                format!("must use link {}", link(i, &limits.use_links)),
            ),
        };
        Constraint {
            name: format!("chain {}", model.chains[chain].id),
            pointer: format!("/chains/{chain}/{field}"),
            scarce,
        }
    }
}
