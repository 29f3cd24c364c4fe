//! Plans of moves: every first part of one fits, while chains move and when they have moved.

mod support;

use std::collections::BTreeMap;

use support::random_model;
use te::instance::{Demand, Instance};
use te::json::{Value, parse};
use te::lp::{self, Monitor, Options};
use te::model::{Chain, Model, Routing};
use te::network::Network;
use te::online::{Move, MovePlan, Proposed, Worker};
use te::result;
use te::solution::{Objective, Status};

/// Load above a capacity, relatively, that is a violation.
const TOLERANCE: f64 = 1e-6;

/// A chain's routes: share, ingress node, sites, egress node.
type Routes = Vec<(f64, usize, Vec<usize>, usize)>;

/// Loads by the names of what carries them, worked out from routes alone.
type Loads = BTreeMap<String, f64>;

fn loads(model: &Model, network: &Network, chain: &Chain, routes: &Routes) -> Loads {
    let mut loads = Loads::new();
    let mut add = |name: String, load: f64| *loads.entry(name).or_default() += load;
    for (fraction, ingress, sites, egress) in routes {
        let mut stops = vec![*ingress];
        stops.extend(sites.iter().map(|&s| model.sites[s].node));
        stops.push(*egress);
        for (z, hop) in stops.windows(2).enumerate() {
            for (from, to, mbps) in [
                (hop[0], hop[1], chain.forward_mbps[z]),
                (hop[1], hop[0], chain.reverse_mbps[z]),
            ] {
                for (link, share) in network.path(from, to) {
                    add(
                        format!("link {}", model.links[link].id),
                        fraction * share * mbps,
                    );
                }
            }
        }
        for (z, (&site, &vnf)) in sites.iter().zip(&chain.vnfs).enumerate() {
            let both = |z: usize| chain.forward_mbps[z] + chain.reverse_mbps[z];
            let load = fraction * model.vnfs[vnf].load_per_mbps * (both(z) + both(z + 1));
            let (vnf, site) = (&model.vnfs[vnf].id, &model.sites[site].id);
            add(format!("VNF {vnf} at site {site}"), load);
            add(format!("site {site}"), load);
        }
    }
    loads
}

fn capacities(model: &Model) -> Loads {
    let links = model.links.iter();
    let mut capacity: Loads = links
        .map(|l| {
            (
                format!("link {}", l.id),
                l.bandwidth_mbps - l.background_mbps,
            )
        })
        .collect();
    capacity.extend(
        model
            .sites
            .iter()
            .map(|s| (format!("site {}", s.id), s.capacity)),
    );
    for vnf in &model.vnfs {
        for d in &vnf.deployments {
            let site = &model.sites[d.site].id;
            capacity.insert(format!("VNF {} at site {site}", vnf.id), d.capacity);
        }
    }
    capacity
}

/// What is there more while a chain moves: the larger of its loads on links and of its VNFs, and at sites their sum.
fn more_while_moving(old: &Loads, new: &Loads) -> Loads {
    let mut more = Loads::new();
    for (name, load) in new.iter().filter(|(name, _)| !name.starts_with("site ")) {
        let rise = (load - old.get(name).unwrap_or(&0.0)).max(0.0);
        *more.entry(name.clone()).or_default() += rise;
        if let Some((_, site)) = name.split_once(" at ") {
            *more.entry(site.to_owned()).or_default() += rise;
        }
    }
    more
}

/// Chains where they are, and what they load.
struct World<'a> {
    model: &'a Model,
    network: Network,
    capacity: Loads,
    of_chain: Vec<Loads>,
    total: Loads,
}

impl<'a> World<'a> {
    fn new(model: &'a Model, routes: &[Routes]) -> World<'a> {
        let network = Network::of(model);
        let chains = model.chains.iter().zip(routes);
        let of_chain: Vec<Loads> = chains
            .map(|(chain, routes)| loads(model, &network, chain, routes))
            .collect();
        let mut total = Loads::new();
        for (name, load) in of_chain.iter().flatten() {
            *total.entry(name.clone()).or_default() += load;
        }
        World {
            model,
            network,
            capacity: capacities(model),
            of_chain,
            total,
        }
    }

    fn chain(&self, planned: &Move) -> usize {
        let found = self.model.chains.iter().position(|c| c.id == planned.chain);
        found.expect("moves are of the model's chains")
    }

    fn loads_of(&self, planned: &Move) -> Loads {
        let node = |id: &str| self.model.nodes.iter().position(|n| n.id == id).expect(id);
        let site = |id: &String| self.model.sites.iter().position(|s| s.id == *id).expect(id);
        let route = |r: &Proposed| {
            let sites = r.sites.iter().map(site).collect();
            (r.fraction, node(&r.ingress), sites, node(&r.egress))
        };
        let routes = planned.routes.iter().map(route).collect();
        let chain = &self.model.chains[self.chain(planned)];
        loads(self.model, &self.network, chain, &routes)
    }

    /// What is over its capacity while a chain moves, of what it loads more.
    fn over(&self, planned: &Move, tolerance: f64) -> Vec<String> {
        let more = more_while_moving(&self.of_chain[self.chain(planned)], &self.loads_of(planned));
        let is_over = |(name, more): &(&String, &f64)| {
            let (now, most) = (self.total.get(*name).unwrap_or(&0.0), self.capacity[*name]);
            **more > 1e-9 && now + **more > most * (1.0 + tolerance)
        };
        more.iter()
            .filter(is_over)
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn carry_out(&mut self, planned: &Move) {
        let (chain, new) = (self.chain(planned), self.loads_of(planned));
        for (loads, sign) in [(&self.of_chain[chain], -1.0), (&new, 1.0)] {
            for (name, load) in loads {
                *self.total.entry(name.clone()).or_default() += sign * load;
            }
        }
        self.of_chain[chain] = new;
    }

    fn fits_now(&self) -> bool {
        let holds =
            |(name, load): (&String, &f64)| *load <= self.capacity[name] * (1.0 + TOLERANCE) + 1e-9;
        self.total.iter().all(holds)
    }
}

/// What a plan was made of.
#[derive(Debug, Default)]
struct Count {
    moved: usize,
    made_room: usize,
    blocked: usize,
}

/// Goes through a plan move by move and holds every claim of it against the loads.
fn walk(world: &mut World<'_>, moves: &[Move], count: &mut Count, what: &str) {
    assert!(world.fits_now(), "{what}: the start is overloaded");
    let fitting = moves.iter().take_while(|m| m.full.is_empty()).count();
    let (fit, blocked) = moves.split_at(fitting);
    for (i, planned) in fit.iter().enumerate() {
        let over = world.over(planned, TOLERANCE);
        assert!(
            over.is_empty(),
            "{what}: move {i} of {} overloads {over:?}",
            planned.chain
        );
        if i == 0 || !fit[i - 1].makes_room {
            let better = |m: &&Move| !m.makes_room && (planned.makes_room || m.gain > planned.gain);
            for later in fit[i + 1..].iter().filter(better) {
                let over = world.over(later, -1e-9);
                assert!(
                    !over.is_empty(),
                    "{what}: {} should go before {}",
                    later.chain,
                    planned.chain
                );
            }
        }
        world.carry_out(planned);
        assert!(world.fits_now(), "{what}: overloaded after move {i}");
        count.moved += 1;
        count.made_room += usize::from(planned.makes_room);
    }
    assert!(
        fit.last().is_none_or(|m| !m.makes_room),
        "{what}: room for nobody"
    );
    for planned in blocked {
        assert!(
            !planned.makes_room && planned.gain > 0.0,
            "{what}: {planned:?}"
        );
        let over = world.over(planned, 0.0);
        let is_over = |name: &String| over.contains(name);
        assert!(
            !planned.full.is_empty(),
            "{what}: moves that fit come first"
        );
        assert!(
            planned.full.iter().all(is_over),
            "{what}: {:?} against {over:?}",
            planned.full
        );
        count.blocked += 1;
    }
}

/// A worker that knows a model and where its chains are.
fn worker(model: &Model, routes: &[Routes], world: &World<'_>) -> Worker {
    let mut worker = Worker::new();
    let Value::Object(members) = parse(model.to_json().as_bytes()).expect("JSON") else {
        panic!("a model is an object");
    };
    for (kind, list) in [
        ("node", "nodes"),
        ("link", "links"),
        ("site", "sites"),
        ("vnf", "vnfs"),
        ("chain", "chains"),
    ] {
        let items = members
            .iter()
            .find(|(name, _)| name == list)
            .map(|(_, v)| v);
        let Some(Value::List(items)) = items else {
            panic!("{list} is a list");
        };
        for (i, item) in items.iter().enumerate() {
            let Value::Object(mut fields) = item.clone() else {
                panic!("{list} has objects");
            };
            let Some((_, Value::Text(id))) = fields.iter().find(|(name, _)| name == "id") else {
                panic!("{list} have names");
            };
            let key = format!("{kind}.{id}");
            if kind == "chain" {
                fields.push(("routes".into(), held_routes(model, &routes[i])));
                fields.push(("reserved".into(), reserved(&world.of_chain[i])));
            }
            worker
                .set(&key, Some(Value::Object(fields)))
                .expect("an entry");
        }
    }
    worker
}

fn text(word: &str) -> Value {
    Value::Text(word.into())
}

fn held_routes(model: &Model, routes: &Routes) -> Value {
    let one = |(fraction, ingress, sites, egress): &(f64, usize, Vec<usize>, usize)| {
        let sites = sites.iter().map(|&s| text(&model.sites[s].id)).collect();
        Value::Object(vec![
            ("fraction".into(), Value::Number(*fraction)),
            ("ingress".into(), text(&model.nodes[*ingress].id)),
            ("sites".into(), Value::List(sites)),
            ("egress".into(), text(&model.nodes[*egress].id)),
        ])
    };
    Value::List(routes.iter().map(one).collect())
}

fn reserved(loads: &Loads) -> Value {
    let mut list = Vec::new();
    for (name, load) in loads {
        let placement = name
            .strip_prefix("VNF ")
            .and_then(|n| n.split_once(" at site "));
        if let Some((vnf, site)) = placement {
            list.push(Value::Object(vec![
                ("vnf".into(), text(vnf)),
                ("site".into(), text(site)),
                ("load".into(), Value::Number(*load)),
            ]));
        }
    }
    Value::List(list)
}

fn plan(worker: &mut Worker, least: f64) -> MovePlan {
    let options = Options {
        gap: 1e-6,
        ..Options::default()
    };
    worker
        .moves(Objective::Latency, least, &options, &Monitor::default())
        .expect("what is there fits, so there is an optimum")
}

/// A random model whose demands fill `load` of what can be carried, and the routes that carry them.
fn loaded(seed: u64, load: f64) -> Option<(Model, Vec<Routes>)> {
    let mut model = random_model(seed);
    model.max_link_utilization = 1.0;
    model.routing = Routing::ShortestPath;
    let instance = Instance::new(&model, Demand::Full).ok()?;
    let solution = lp::solve(
        &model,
        &instance,
        Objective::Scale,
        &Options::default(),
        &Monitor::default(),
    )
    .ok()?;
    if solution.status != Status::Optimal {
        return None;
    }
    let mut routes: Vec<Routes> = vec![Vec::new(); model.chains.len()];
    for r in result::routes(&model, &instance, &solution) {
        routes[r.chain].push((r.fraction, r.ingress, r.sites, r.egress));
    }
    for chain in &mut model.chains {
        let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
        both.for_each(|mbps| *mbps *= load * solution.value);
    }
    Some((model, routes))
}

#[test]
fn every_first_part_of_a_plan_fits_while_chains_move_and_afterwards() {
    let mut count = Count::default();
    for seed in 0..200 {
        for load in [0.7, 0.95, 1.0] {
            let Some((model, routes)) = loaded(seed, load) else {
                continue;
            };
            let mut world = World::new(&model, &routes);
            let plan = plan(&mut worker(&model, &routes, &world), 0.0);
            walk(
                &mut world,
                &plan.moves,
                &mut count,
                &format!("seed {seed}, load {load}"),
            );
        }
    }
    assert!(
        count.moved > 500 && count.made_room > 0 && count.blocked > 0,
        "{count:?}"
    );
    println!("{count:?}");
}

/// a —5 ms— m —5 ms— b, a site at a and one at b, the VNF f at both; chains from a node through f back to it.
fn line(capacity: [f64; 2], chains: &[(&str, &str)]) -> Model {
    let link = |from: &str, to: &str| {
        format!(
            r#"{{"id":"{from}{to}","from":"{from}","to":"{to}","latency_ms":5,"bandwidth_mbps":1000}}"#
        )
    };
    let chain = |(id, at): &(&str, &str)| {
        format!(
            r#"{{"id":"{id}","ingress":"{at}","egress":"{at}","vnfs":["f"],"forward_mbps":10}}"#
        )
    };
    let [a, b] = capacity;
    let text = format!(
        r#"{{"nodes":[{{"id":"a"}},{{"id":"m"}},{{"id":"b"}}],"links":[{},{},{},{}],
        "sites":[{{"id":"sa","node":"a","capacity":{a}}},{{"id":"sb","node":"b","capacity":{b}}}],
        "vnfs":[{{"id":"f","load_per_mbps":1,"deployments":[{{"site":"sa","capacity":{a}}},{{"site":"sb","capacity":{b}}}]}}],
        "chains":[{}]}}"#,
        link("a", "m"),
        link("m", "a"),
        link("m", "b"),
        link("b", "m"),
        chains.iter().map(chain).collect::<Vec<_>>().join(",")
    );
    Model::read(text.as_bytes()).expect("a model")
}

/// The plan for chains that are each at one site, held against the loads.
fn walked(model: &Model, at: &[usize]) -> Vec<Move> {
    let node = |chain: &Chain| match &chain.ingress {
        te::model::Ends::Any(nodes) => nodes[0],
        te::model::Ends::Shares(shares) => shares[0].0,
    };
    let routes: Vec<Routes> = model
        .chains
        .iter()
        .zip(at)
        .map(|(chain, site)| vec![(1.0, node(chain), vec![*site], node(chain))])
        .collect();
    let mut world = World::new(model, &routes);
    let moves = plan(&mut worker(model, &routes, &world), 0.01).moves;
    walk(&mut world, &moves, &mut Count::default(), "line");
    moves
}

fn names(moves: &[Move]) -> Vec<(&str, bool, usize)> {
    let name = |m: &Move| (m.makes_room, m.full.len());
    moves
        .iter()
        .map(|m| (m.chain.as_str(), name(m).0, name(m).1))
        .collect()
}

#[test]
fn chains_that_would_trade_places_without_room_say_what_is_full() {
    let trade = [("one", "a"), ("two", "b")];
    let moves = walked(&line([20.0, 20.0], &trade), &[1, 0]);
    assert_eq!(names(&moves), [("one", false, 2), ("two", false, 2)]);
    assert_eq!(moves[0].full, ["site sa", "VNF f at site sa"]);
    // Room on one side is enough for one after the other.
    let moves = walked(&line([40.0, 20.0], &trade), &[1, 0]);
    assert_eq!(names(&moves), [("one", false, 0), ("two", false, 0)]);
}

#[test]
fn a_chain_that_loses_nothing_makes_room_for_one_that_gains() {
    // The one in the middle is as far from both sites.
    let model = line([30.0, 40.0], &[("middle", "m"), ("outer", "a")]);
    let moves = walked(&model, &[0, 1]);
    assert_eq!(names(&moves), [("middle", true, 0), ("outer", false, 0)]);
    assert!(
        moves[0].gain.abs() < 1e-3 && moves[1].gain > 100.0,
        "{moves:?}"
    );
    // Where it is in nobody's way it stays.
    let roomy = line([40.0, 40.0], &[("middle", "m"), ("outer", "a")]);
    assert_eq!(names(&walked(&roomy, &[0, 1])), [("outer", false, 0)]);
}

/// Its site has become too small for it, and the other one costs as much. With exactly room enough there, a price can be anything; the
/// gain is no more than what all is worth.
#[test]
fn a_chain_leaves_what_is_overloaded_even_where_it_gains_nothing() {
    for room in [40.0, 20.0] {
        let model = line([15.0, room], &[("middle", "m")]);
        let routes = vec![vec![(1.0, 1, vec![0], 1)]];
        let world = World::new(&model, &routes);
        let moves = plan(&mut worker(&model, &routes, &world), 0.01).moves;
        assert_eq!(names(&moves), [("middle", false, 0)], "room {room}");
        assert!(moves[0].gain.abs() < 500.0, "{moves:?}");
    }
}
