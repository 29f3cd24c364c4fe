//! Model to JSON, for `import`, `generate` and the worker.

use super::{Chain, Ends, Model, Routing};
use crate::json::Writer;

impl Model {
    /// The model as the contract's JSON; reading it back gives an equal model.
    pub fn to_json(&self) -> String {
        let mut writer = Writer::new();
        writer.object(|w| {
            self.write_network(w);
            self.write_clouds(w);
            w.line().name("chains").list(|w| {
                for chain in &self.chains {
                    w.line();
                    self.write_chain(w, chain);
                }
            });
        });
        writer.finish()
    }

    fn write_network(&self, w: &mut Writer) {
        w.name("nodes").list(|w| {
            for node in &self.nodes {
                w.line().object(|w| {
                    w.name("id").text(&node.id);
                    if let Some((latitude, longitude)) = node.coordinates {
                        w.name("latitude")
                            .number(latitude)
                            .name("longitude")
                            .number(longitude);
                    }
                });
            }
        });
        w.line().name("links").list(|w| {
            for link in &self.links {
                w.line().object(|w| {
                    w.name("id").text(&link.id);
                    w.name("from")
                        .text(&self.nodes[link.from].id)
                        .name("to")
                        .text(&self.nodes[link.to].id);
                    w.name("latency_ms")
                        .number(link.latency_ms)
                        .name("bandwidth_mbps")
                        .number(link.bandwidth_mbps);
                    if link.background_mbps > 0.0 {
                        w.name("background_mbps").number(link.background_mbps);
                    }
                });
            }
        });
        w.line()
            .name("max_link_utilization")
            .number(self.max_link_utilization);
        w.line().name("routing").object(|w| match &self.routing {
            Routing::ShortestPath => {
                w.name("kind").text("shortest-path");
            }
            Routing::Fractions(entries) => {
                w.name("kind").text("fractions").name("entries").list(|w| {
                    for entry in entries {
                        w.line().object(|w| {
                            w.name("from")
                                .text(&self.nodes[entry.from].id)
                                .name("to")
                                .text(&self.nodes[entry.to].id);
                            w.name("link")
                                .text(&self.links[entry.link].id)
                                .name("fraction")
                                .number(entry.fraction);
                        });
                    }
                });
            }
        });
    }

    fn write_clouds(&self, w: &mut Writer) {
        w.line().name("sites").list(|w| {
            for site in &self.sites {
                w.line().object(|w| {
                    w.name("id")
                        .text(&site.id)
                        .name("node")
                        .text(&self.nodes[site.node].id);
                    w.name("capacity").number(site.capacity);
                });
            }
        });
        w.line().name("vnfs").list(|w| {
            for vnf in &self.vnfs {
                w.line().object(|w| {
                    w.name("id")
                        .text(&vnf.id)
                        .name("load_per_mbps")
                        .number(vnf.load_per_mbps);
                    w.name("deployments").list(|w| {
                        for deployment in &vnf.deployments {
                            w.object(|w| {
                                w.name("site").text(&self.sites[deployment.site].id);
                                w.name("capacity").number(deployment.capacity);
                            });
                        }
                    });
                });
            }
        });
        if self.customers.is_empty() {
            return;
        }
        let mut customers: Vec<_> = self.customers.iter().collect();
        customers.sort_by_key(|(id, _)| *id);
        w.line().name("customers").list(|w| {
            for (id, priority) in customers {
                w.object(|w| {
                    w.name("id").text(id).name("priority").number(*priority);
                });
            }
        });
    }

    fn write_chain(&self, w: &mut Writer, chain: &Chain) {
        w.object(|w| {
            w.name("id").text(&chain.id);
            w.name("ingress");
            self.write_ends(w, &chain.ingress);
            w.name("egress");
            self.write_ends(w, &chain.egress);
            w.name("vnfs")
                .texts(chain.vnfs.iter().map(|&f| self.vnfs[f].id.as_str()));
            w.name("forward_mbps");
            write_traffic(w, &chain.forward_mbps);
            w.name("reverse_mbps");
            write_traffic(w, &chain.reverse_mbps);
            if let Some(customer) = &chain.customer {
                w.name("customer").text(customer);
            }
            let customer = chain
                .customer
                .as_ref()
                .and_then(|c| self.customers.get(c))
                .copied();
            if chain.priority != customer.unwrap_or(1.0) {
                w.name("priority").number(chain.priority);
            }
            if let Some(share) = chain.minimum_share {
                w.name("minimum_share").number(share);
            }
            if let Some(share) = chain.survive_share {
                w.name("survive_share").number(share);
            }
            self.write_limits(w, chain);
        });
    }

    fn write_limits(&self, w: &mut Writer, chain: &Chain) {
        let limits = &chain.limits;
        if let Some(latency) = limits.max_latency_ms {
            w.name("max_latency_ms").number(latency);
        }
        if let Some(routes) = limits.max_routes {
            w.name("max_routes").number(routes as f64);
        }
        let choices = [
            ("avoid", &limits.avoid_sites, &limits.avoid_links),
            ("use", &limits.use_sites, &limits.use_links),
        ];
        for (name, sites, links) in choices {
            if !sites.is_empty() || !links.is_empty() {
                w.name(name).object(|w| {
                    w.name("sites")
                        .texts(sites.iter().map(|&s| self.sites[s].id.as_str()));
                    w.name("links")
                        .texts(links.iter().map(|&l| self.links[l].id.as_str()));
                });
            }
        }
    }

    fn write_ends(&self, w: &mut Writer, ends: &Ends) {
        match ends {
            Ends::Any(nodes) if nodes.len() == 1 => {
                w.text(&self.nodes[nodes[0]].id);
            }
            Ends::Any(nodes) => {
                w.texts(nodes.iter().map(|&n| self.nodes[n].id.as_str()));
            }
            Ends::Shares(shares) => {
                w.list(|w| {
                    for &(node, share) in shares {
                        w.object(|w| {
                            w.name("node")
                                .text(&self.nodes[node].id)
                                .name("share")
                                .number(share);
                        });
                    }
                });
            }
        }
    }
}

fn write_traffic(w: &mut Writer, stages: &[f64]) {
    if stages.iter().all(|&mbps| mbps == stages[0]) {
        w.number(stages[0]);
    } else {
        w.numbers(stages);
    }
}
