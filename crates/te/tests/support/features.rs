//! Random models in which everything that a model may ask comes together: a defect hides where two features meet.

use super::random_model;
use te::model::*;
use te::network::Network;
use te::random::Random;

/// A random model whose chains have limits, numbers of routes and shares at the same time, with traffic that is missing in
/// one direction or at some stages; every third has a routing by fractions.
pub fn full_model(seed: u64) -> Model {
    let mut model = random_model(seed);
    let mut random = Random::new(seed ^ 0xf);
    let (sites, links) = (model.sites.len(), model.links.len());
    for chain in &mut model.chains {
        ask(&mut random, chain, sites, links);
    }
    if seed.is_multiple_of(3) {
        model.routing = fractions(&model, &mut random);
    }
    model
}

fn ask(random: &mut Random, chain: &mut Chain, sites: usize, links: usize) {
    let limits = &mut chain.limits;
    match random.below(8) {
        0 => limits.max_latency_ms = Some(random.between(3.0, 15.0)),
        1 => limits.avoid_sites = vec![random.below(sites)],
        2 => limits.avoid_links = vec![random.below(links)],
        3 if !chain.vnfs.is_empty() => limits.use_sites = vec![random.below(sites)],
        4 => limits.use_links = vec![random.below(links)],
        _ => {}
    }
    if random.below(3) == 0 {
        let fixed = |ends: &Ends| match ends {
            Ends::Any(_) => 1,
            Ends::Shares(shares) => shares.len(),
        };
        let pairs = fixed(&chain.ingress) * fixed(&chain.egress);
        limits.max_routes = Some(pairs + random.below(2));
    }
    if random.below(3) == 0 {
        chain.minimum_share = Some([0.0, 0.2, 0.5, 1.0][random.below(4)]);
    }
    if random.below(3) == 0 {
        chain.survive_share = Some([0.0, 0.3, 0.8][random.below(3)]);
    }
    match random.below(5) {
        0 => chain.reverse_mbps.fill(0.0),
        1 => chain.reverse_mbps[0] = 0.0,
        2 if chain.vnfs.len() > 1 => chain.forward_mbps[1] = 0.0,
        _ => {}
    }
}

/// A routing by fractions: of every pair a mixture of the shortest paths and of those by other latencies.
pub fn fractions(model: &Model, random: &mut Random) -> Routing {
    let mut other = model.clone();
    let latencies = other.links.iter_mut().map(|l| &mut l.latency_ms);
    latencies.for_each(|latency| *latency = random.between(1.0, 5.0));
    let (first, second) = (Network::of(model), Network::of(&other));
    let mut entries = Vec::new();
    for from in 0..model.nodes.len() {
        for to in (0..model.nodes.len()).filter(|to| *to != from) {
            let mixture = [0.0, 1.0, random.unit()][random.below(3)];
            let mut shares = vec![0.0; model.links.len()];
            for (part, network) in [(mixture, &first), (1.0 - mixture, &second)] {
                for (link, fraction) in network.path(from, to) {
                    shares[link] += part * fraction;
                }
            }
            let used = shares.into_iter().enumerate().filter(|(_, f)| *f > 0.0);
            entries.extend(used.map(|(link, fraction)| Fraction {
                from,
                to,
                link,
                fraction: f64::min(fraction, 1.0),
            }));
        }
    }
    Routing::Fractions(entries)
}
