//! Checks that need the whole model: routing that conserves flow, chains that can be joined.

use super::{Chain, Ends, Model, Routing};
use crate::error::{InputError, Reason};
use crate::network::Network;

/// How far given routing fractions may be from conserving flow.
const CONSERVATION: f64 = 1e-6;

impl Model {
    pub(super) fn validate(&self) -> Result<(), InputError> {
        if let Routing::Fractions(_) = self.routing {
            self.check_fractions()?;
        }
        let network = Network::of(self);
        if network.connects_everything() {
            return Ok(());
        }
        for (index, chain) in self.chains.iter().enumerate() {
            self.check_reachable(&network, index, chain)?;
        }
        Ok(())
    }

    /// For each pair of nodes with entries: one unit leaves the first and enters the second, and every
    /// other node passes on what it receives.
    fn check_fractions(&self) -> Result<(), InputError> {
        let Routing::Fractions(entries) = &self.routing else {
            return Ok(());
        };
        let count = self.nodes.len();
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by_key(|&i| (entries[i].from, entries[i].to, entries[i].link, i));
        let mut balance = vec![0.0; count];
        for group in order
            .chunk_by(|&a, &b| (entries[a].from, entries[a].to) == (entries[b].from, entries[b].to))
        {
            let (from, to) = (entries[group[0]].from, entries[group[0]].to);
            let pointer = |i: usize| format!("/routing/entries/{i}");
            if from == to {
                let message = "traffic from a node to itself crosses no link; remove the entry";
                return Err(InputError::new(
                    pointer(group[0]),
                    Reason::Contradiction,
                    message,
                ));
            }
            balance.fill(0.0);
            for pair in group.windows(2) {
                if entries[pair[0]].link == entries[pair[1]].link {
                    let message = format!("the same pair and link as entry {}", pair[0]);
                    return Err(InputError::new(
                        pointer(pair[1]),
                        Reason::Duplicate,
                        message,
                    ));
                }
            }
            for &i in group {
                let link = &self.links[entries[i].link];
                balance[link.from] += entries[i].fraction;
                balance[link.to] -= entries[i].fraction;
            }
            balance[from] -= 1.0;
            balance[to] += 1.0;
            if let Some(node) = (0..count).find(|&n| balance[n].abs() > CONSERVATION) {
                let message = format!(
                    "the fractions from '{}' to '{}' do not conserve traffic at node '{}' (off by {:+.6})",
                    self.nodes[from].id, self.nodes[to].id, self.nodes[node].id, balance[node]
                );
                return Err(InputError::new(
                    pointer(group[0]),
                    Reason::Contradiction,
                    message,
                ));
            }
        }
        Ok(())
    }

    /// Whether some sequence of sites joins the chain's ends in both directions that carry traffic.
    ///
    /// # Errors
    /// The stage at which no route goes on, with its JSON pointer.
    pub(crate) fn check_reachable(
        &self,
        network: &Network,
        index: usize,
        chain: &Chain,
    ) -> Result<(), InputError> {
        let ends = |ends: &Ends| match ends {
            Ends::Any(nodes) => vec![nodes.clone()],
            Ends::Shares(shares) => shares.iter().map(|(n, _)| vec![*n]).collect(),
        };
        for from in ends(&chain.ingress) {
            for to in ends(&chain.egress) {
                let mut reached = from.clone();
                for stage in 0..=chain.vnfs.len() {
                    let targets: Vec<usize> = match chain.vnfs.get(stage) {
                        Some(&vnf) => self.vnfs[vnf]
                            .deployments
                            .iter()
                            .map(|d| self.sites[d.site].node)
                            .collect(),
                        None => to.clone(),
                    };
                    let joined = |a: usize, b: usize| {
                        network.latency_ms(a, b).is_finite()
                            && (chain.reverse_mbps[stage] == 0.0
                                || network.latency_ms(b, a).is_finite())
                    };
                    let next: Vec<usize> = targets
                        .iter()
                        .copied()
                        .filter(|&b| reached.iter().any(|&a| joined(a, b)))
                        .collect();
                    if next.is_empty() {
                        return Err(self.unreachable(index, chain, stage, &from, &to));
                    }
                    reached = next;
                }
            }
        }
        Ok(())
    }

    fn unreachable(
        &self,
        index: usize,
        chain: &Chain,
        stage: usize,
        from: &[usize],
        to: &[usize],
    ) -> InputError {
        let target = match chain.vnfs.get(stage) {
            Some(&vnf) => format!("no site of the VNF '{}'", self.vnfs[vnf].id),
            None => format!("not the egress '{}'", self.nodes[to[0]].id),
        };
        let message = format!(
            "stage {} of the chain '{}', which enters at '{}', reaches {target}: no route joins them{}",
            stage + 1,
            chain.id,
            self.nodes[from[0]].id,
            if chain.reverse_mbps[stage] > 0.0 {
                " in both directions"
            } else {
                ""
            }
        );
        let field = if stage < chain.vnfs.len() {
            format!("vnfs/{stage}")
        } else {
            "egress".into()
        };
        InputError::new(
            format!("/chains/{index}/{field}"),
            Reason::Unreachable,
            message,
        )
    }
}
