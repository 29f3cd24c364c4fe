//! Stages of a plan's paths, as a Local Switchboard gives them to each forwarder: who can be chosen at their ends, and who was there.

use super::{Chain, Edge, Instance, Route, SIBLING, identifier, peer_name, site_name};
use contract::local_target::Target;
use contracts::forwarder as contract;
use std::collections::BTreeMap;

impl Chain {
    /// Who can be chosen at an element of the path: the ingress edges, a VNF's instances, or the egress edge.
    fn choices(&self, element: usize) -> Vec<Choice> {
        let at_edge = |edge: &Edge| Choice {
            site: edge.site,
            passing: None,
            target: Target::Edge(format!("{}-{}", self.customer, edge.name)),
            weight: 100,
            prefixes: Vec::new(),
            serves: true,
        };
        if element == self.vnfs.len() + 1 {
            return vec![at_edge(&self.egress)];
        }
        let Some(position) = element.checked_sub(1) else {
            let several = !self.more_ingresses.is_empty();
            let own = |edge: &Edge| Choice {
                prefixes: if several {
                    edge.prefixes.to_vec()
                } else {
                    vec![]
                },
                ..at_edge(edge)
            };
            return self.ingresses().map(own).collect();
        };
        let beside = |one: &Instance| (one.site + SIBLING) % (2 * SIBLING);
        let instance = |instance: &Instance| Choice {
            site: instance.site,
            passing: Some(beside(instance)).filter(|&other| instance.is_served(other)),
            target: Target::Attachment(self.attachment_id(position, instance)),
            weight: match instance.state {
                contract::AttachmentState::Active => instance.weight,
                _ => 0,
            },
            prefixes: Vec::new(),
            serves: instance.state != contract::AttachmentState::Dead,
        };
        self.vnfs[position].iter().map(instance).collect()
    }

    /// The choices of an element for packets from another one at a site: by the routes that come from there.
    fn choices_from(&self, site: usize, from: usize, element: usize) -> Vec<Choice> {
        let mut choices = self.choices(element);
        if self.routes.is_empty() || element == 0 || element > self.vnfs.len() {
            return choices;
        }
        let passes = |(_, sites): &&Route| sites[from] == site % SIBLING;
        let anywhere = !self.routes.iter().any(|route| passes(&route));
        let share = |to: usize| -> u32 {
            let here = self.routes.iter().filter(|r| anywhere || passes(r));
            here.filter(|(_, sites)| sites[element] == to % SIBLING)
                .map(|(weight, _)| weight)
                .sum()
        };
        let total: u32 = self
            .routes
            .iter()
            .filter(|r| anywhere || passes(r))
            .map(|r| r.0)
            .sum();
        let wholes = choices.clone();
        for choice in choices.iter_mut().filter(|choice| choice.weight > 0) {
            let of_site = wholes
                .iter()
                .filter(|other| other.site % SIBLING == choice.site % SIBLING);
            let whole: u32 = of_site.map(|other| other.weight).sum();
            let floor = u32::from(choice.site == site || choice.passing == Some(site));
            choice.weight =
                (60_000 * share(choice.site) / total * choice.weight / whole).max(floor);
        }
        choices
    }

    /// The stages that a forwarder takes part in: those with somebody here, and those where others may still send it what is for
    /// somebody who was here, as long as its sibling has anybody there.
    pub fn path(&self, site: usize) -> Option<contract::ServicePath> {
        let here = |choice: &Choice| choice.site == site || choice.passing == Some(site);
        let beside = |choice: &Choice| choice.site != site && is_same_site(choice.site, site);
        let mut stages = Vec::new();
        for stage in 1..=self.vnfs.len() + 1 {
            let upstream = self.choices_from(site, stage, stage - 1);
            let downstream = self.choices_from(site, stage - 1, stage);
            let both = || upstream.iter().chain(&downstream);
            let is_former =
                [stage - 1, stage].map(|element| self.former.contains(&(element, site)));
            let nothing_here = !both().any(here);
            if nothing_here && !(is_former.contains(&true) && both().any(beside)) {
                continue;
            }
            // What comes over a tunnel goes to nobody elsewhere.
            let end = |element, choices: &[Choice], from: &[Choice]| {
                let remotes = nothing_here || from.iter().any(here);
                self.end(site, element, choices, remotes)
            };
            stages.push(contract::Stage {
                number: stage as u32,
                downstream: Some(end(stage, &downstream, &upstream)),
                upstream: Some(end(stage - 1, &upstream, &downstream)),
            });
        }
        let passing = self
            .routes
            .iter()
            .filter(|(_, sites)| sites.contains(&(site % SIBLING)));
        let routes: Vec<_> = passing.map(route).collect();
        let begins = |edge: &&Edge| routes.iter().any(|r| r.sites[0] == site_name(edge.site));
        let ingresses = self.ingresses().filter(begins).map(ingress).collect();
        (!stages.is_empty()).then(|| contract::ServicePath {
            chain_label: self.label,
            egress_label: self.egress_label,
            customer: self.customer.clone(),
            chain: "chain".into(),
            vnf_count: self.vnfs.len() as u32,
            stages,
            nsh_forward_path: identifier(self.label, false),
            nsh_reverse_path: identifier(self.label, true),
            ingresses,
            routes,
        })
    }

    fn end(
        &self,
        site: usize,
        element: usize,
        choices: &[Choice],
        remotes: bool,
    ) -> contract::StageEnd {
        let mut end = contract::StageEnd::default();
        let mut remote: BTreeMap<usize, contract::RemoteTarget> = BTreeMap::new();
        for choice in choices {
            if choice.site == site || choice.passing == Some(site) {
                end.local.push(contract::LocalTarget {
                    target: Some(choice.target.clone()),
                    weight: choice.weight,
                    prefixes: choice.prefixes.clone(),
                });
            }
            if choice.site != site && remotes {
                let target = remote
                    .entry(choice.site)
                    .or_insert_with(|| contract::RemoteTarget {
                        withdrawn: true,
                        ..Default::default()
                    });
                target.withdrawn &= !choice.serves;
                target.peer = peer_name(choice.site);
                target.weight += choice.weight;
                target.prefixes.extend(choice.prefixes.clone());
            }
        }
        let former = self.former.iter().filter(|(at, _)| *at == element);
        for &(_, before) in former.filter(|&&(_, before)| before != site) {
            let of_site = |choice: &&Choice| is_same_site(choice.site, before);
            let served = choices.iter().filter(of_site).any(|choice| choice.serves);
            remote
                .entry(before)
                .or_insert_with(|| contract::RemoteTarget {
                    peer: peer_name(before),
                    withdrawn: !served,
                    ..Default::default()
                });
        }
        end.remote = remote.into_values().collect();
        end
    }
}

fn is_same_site(one: usize, other: usize) -> bool {
    one % SIBLING == other % SIBLING
}

fn route((weight, sites): &Route) -> contract::Route {
    contract::Route {
        weight: *weight,
        sites: sites.iter().map(|&site| site_name(site)).collect(),
    }
}

fn ingress(edge: &Edge) -> contract::Ingress {
    contract::Ingress {
        site: site_name(edge.site),
        prefixes: edge.prefixes.to_vec(),
    }
}

/// Somebody to choose at an end of a stage.
#[derive(Clone)]
struct Choice {
    site: usize,
    /// The other forwarder of the site, where that serves it too.
    passing: Option<usize>,
    target: Target,
    weight: u32,
    prefixes: Vec<String>,
    /// Whether it serves the connections that it has.
    serves: bool,
}
