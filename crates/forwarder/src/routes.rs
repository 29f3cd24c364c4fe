//! Routes of a service path: a connection without an entry draws one of them, the same wherever the route passes.
//!
//! Each end of a stage draws from those routes that have this site where packets come from, and somebody to choose where they go.
//! The route that wins among all of a path wins in every such list that it is in: so a connection's packets take one route through
//! all of its sites, in either direction. Routes of other ingresses than the connection's take no part; its source tells which
//! that is.

use crate::prefix::{Prefix, longest};
use crate::targets::{identity_hash, seed_for};
use flow::consistent_hash::{Chooser, Member};
use std::net::IpAddr;
use std::sync::Arc;

/// Routes that a path may have; it has no more ingresses either.
pub const ROUTE_LIMIT: usize = 1024;

/// The number that routes have among the elements of a path, for the seed of their draws.
const ELEMENT: u32 = u32::MAX;

/// A way through a path's sites.
#[derive(Clone, Debug)]
pub struct Route {
    /// Share relative to the path's other routes.
    pub weight: u16,
    /// The site of each element: ingress, VNFs, egress.
    pub sites: Vec<String>,
    /// Where it begins: position in [`Routes::ingresses`].
    pub ingress: usize,
}

/// The routes of a path that pass this site.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// In any order, at most [`ROUTE_LIMIT`].
    pub list: Vec<Route>,
    /// Sources of connections that enter there, for each site where routes begin; empty for all.
    pub ingresses: Arc<[Vec<Prefix>]>,
}

/// What an end of a stage knows of its path's routes.
#[derive(Clone, Copy)]
pub struct Leg<'a> {
    /// The path's routes.
    pub routes: &'a Routes,
    /// This site.
    pub here: &'a str,
    /// The element that packets come from.
    pub from: usize,
    /// The element that they go to.
    pub to: usize,
}

/// Routes of one leg, to be drawn from.
pub struct RouteDraw {
    chooser: Chooser,
    /// Of each route, the site where it leads and its ingress.
    routes: Vec<(usize, usize)>,
    /// Nothing where all routes begin at one site.
    ingresses: Option<Arc<[Vec<Prefix>]>>,
}

impl RouteDraw {
    /// Those of the leg's routes that come from here and lead to one of `sites` where somebody can be chosen. Nothing where none does.
    pub fn new(
        selection_seed: [u8; 16],
        leg: Leg<'_>,
        sites: &[(&str, bool)],
    ) -> Option<RouteDraw> {
        let seed = seed_for(selection_seed, ELEMENT);
        let (mut members, mut routes) = (Vec::new(), Vec::new());
        for route in &leg.routes.list {
            let [from, to] = [leg.from, leg.to].map(|element| route.sites[element].as_str());
            let Some(towards) = sites.iter().position(|site| *site == (to, true)) else {
                continue;
            };
            if from == leg.here {
                routes.push((towards, route.ingress));
                members.push(Member {
                    id: identity_hash(seed, &route.sites.join("/")),
                    weight: route.weight,
                });
            }
        }
        let (_, first) = *routes.first()?;
        let several = routes.iter().any(|(_, ingress)| *ingress != first);
        Some(RouteDraw {
            chooser: Chooser::compared(seed, &members).ok()?,
            routes,
            ingresses: several.then(|| leg.routes.ingresses.clone()),
        })
    }

    /// Whether there is a route that can be drawn.
    pub fn leads_on(&self) -> bool {
        self.chooser.choose(0).is_some()
    }

    /// The site, by its position in the list given, to which the route of a connection leads. `source` is the connection's in
    /// forward direction.
    #[inline]
    pub fn choose(&self, connection: u64, source: impl FnOnce() -> IpAddr) -> Option<usize> {
        let route = match &self.ingresses {
            Some(ingresses) => self.choose_by_ingress(connection, ingresses, source()),
            None => self.chooser.choose(connection),
        };
        Some(self.routes[route?].0)
    }

    fn choose_by_ingress(
        &self,
        connection: u64,
        ingresses: &[Vec<Prefix>],
        source: IpAddr,
    ) -> Option<usize> {
        let entered = Entered::new(ingresses, source);
        self.chooser
            .choose_among(connection, |route| entered.at(self.routes[route].1))
            .or_else(|| self.chooser.choose(connection))
    }
}

/// The ingresses at which a connection can have entered.
struct Entered([u64; ROUTE_LIMIT / 64]);

impl Entered {
    /// Those with the longest prefix that holds the source; all where none holds it.
    fn new(ingresses: &[Vec<Prefix>], source: IpAddr) -> Entered {
        let mut entered = Entered([0; ROUTE_LIMIT / 64]);
        let mut most = None;
        for (ingress, prefixes) in ingresses.iter().enumerate() {
            let length = match prefixes.is_empty() {
                true => Some(0),
                false => longest(prefixes, source),
            };
            if length > most {
                (entered.0, most) = ([0; ROUTE_LIMIT / 64], length);
            }
            if length == most {
                entered.0[ingress / 64] |= 1 << (ingress % 64);
            }
        }
        entered
    }

    fn at(&self, ingress: usize) -> bool {
        self.0[ingress / 64] >> (ingress % 64) & 1 == 1
    }
}
