//! Model from JSON: one function for each section of the contract.

use std::collections::HashMap;
use std::io::Read;

use super::geography::{KM_PER_MS, great_circle_km};
use super::{Deployment, Fraction, Link, Model, Node, Routing, Site, Vnf, ranges};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value, parse};

/// Names of one kind of thing, for references.
pub(super) struct Names {
    kind: &'static str,
    index: HashMap<String, usize>,
}

impl Names {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            index: HashMap::new(),
        }
    }

    /// Adds a name; a second time is an error at `place`.
    pub(super) fn add(&mut self, place: Place<'_>, id: &str) -> Result<(), InputError> {
        let next = self.index.len();
        if let Some(first) = self.index.insert(id.to_owned(), next) {
            let message = format!(
                "the {} '{id}' is already entry {first} of this list",
                self.kind
            );
            return Err(place.error(Reason::Duplicate, message));
        }
        Ok(())
    }

    /// The index of the thing named by the string `value`.
    pub(super) fn find(&self, place: Place<'_>, value: &Value) -> Result<usize, InputError> {
        let id = place.text(value)?;
        self.index.get(id).copied().ok_or_else(|| {
            place.error(
                Reason::DanglingReference,
                format!("there is no {} '{id}' in this model", self.kind),
            )
        })
    }
}

/// All names that chains may refer to.
pub(super) struct Catalogue {
    pub(super) nodes: Names,
    pub(super) links: Names,
    pub(super) sites: Names,
    pub(super) vnfs: Names,
    /// Customers by name, with their priority.
    pub(super) customers: HashMap<String, f64>,
}

impl Model {
    /// Reads and validates a model.
    ///
    /// # Errors
    /// The first mistake found, with its JSON pointer.
    pub fn read(reader: impl Read) -> Result<Model, InputError> {
        Self::from_value(&parse(reader)?)
    }

    /// Validates a parsed document.
    ///
    /// # Errors
    /// As [`Model::read`].
    pub fn from_value(document: &Value) -> Result<Model, InputError> {
        let model = Self::of_parts(document)?;
        model.validate()?;
        Ok(model)
    }

    /// Reads a document whose parts are each right and refer to each other, without the checks that need all of them.
    ///
    /// # Errors
    /// As [`Model::read`].
    pub(crate) fn of_parts(document: &Value) -> Result<Model, InputError> {
        let (mut model, catalogue) = Self::skeleton(document)?;
        let root = Fields::of(Place::ROOT, document, &TOP_LEVEL)?;
        model.chains = super::chains::read(&root, &catalogue, &model)?;
        Ok(model)
    }

    fn skeleton(document: &Value) -> Result<(Model, Catalogue), InputError> {
        let root = Fields::of(Place::ROOT, document, &TOP_LEVEL)?;
        let mut catalogue = Catalogue {
            nodes: Names::new("node"),
            links: Names::new("link"),
            sites: Names::new("site"),
            vnfs: Names::new("VNF"),
            customers: customers(&root)?,
        };
        let nodes = nodes(&root, &mut catalogue.nodes)?;
        let links = links(&root, &nodes, &mut catalogue)?;
        let max_link_utilization = ranges::UTILIZATION
            .optional(&root, "max_link_utilization")?
            .unwrap_or(1.0);
        let routing = routing(&root, &catalogue)?;
        let sites = sites(&root, &mut catalogue)?;
        let vnfs = vnfs(&root, &mut catalogue)?;
        let model = Model {
            nodes,
            links,
            max_link_utilization,
            routing,
            sites,
            vnfs,
            customers: catalogue.customers.clone(),
            chains: Vec::new(),
        };
        Ok((model, catalogue))
    }

    /// Reads chains that refer to this model's nodes, links, sites and VNFs, such as a worker's increment.
    ///
    /// # Errors
    /// As [`Model::read`], with pointers relative to `document`, an object with the one field `chains`.
    pub fn read_chains(&self, document: &Value) -> Result<Vec<super::Chain>, InputError> {
        let root = Fields::of(Place::ROOT, document, &["chains"])?;
        let names = |kind, ids: &mut dyn Iterator<Item = &String>| Names {
            kind,
            index: ids.enumerate().map(|(i, id)| (id.clone(), i)).collect(),
        };
        let catalogue = Catalogue {
            nodes: names("node", &mut self.nodes.iter().map(|n| &n.id)),
            links: names("link", &mut self.links.iter().map(|l| &l.id)),
            sites: names("site", &mut self.sites.iter().map(|s| &s.id)),
            vnfs: names("VNF", &mut self.vnfs.iter().map(|v| &v.id)),
            customers: self.customers.clone(),
        };
        super::chains::read(&root, &catalogue, self)
    }
}

const TOP_LEVEL: [&str; 8] = [
    "nodes",
    "links",
    "max_link_utilization",
    "routing",
    "sites",
    "vnfs",
    "customers",
    "chains",
];

fn customers(root: &Fields<'_>) -> Result<HashMap<String, f64>, InputError> {
    let Some(value) = root.optional("customers") else {
        return Ok(HashMap::new());
    };
    let list = root.place.name("customers");
    let mut customers = HashMap::new();
    for (i, value) in list.list(value)?.iter().enumerate() {
        let customer = Fields::of(list.index(i), value, &["id", "priority"])?;
        let id = customer.text("id")?;
        if customers
            .insert(id.to_owned(), ranges::PRIORITY.of(&customer, "priority")?)
            .is_some()
        {
            let message = format!("the customer '{id}' is already in this list");
            return Err(list.index(i).name("id").error(Reason::Duplicate, message));
        }
    }
    Ok(customers)
}

fn nodes(root: &Fields<'_>, names: &mut Names) -> Result<Vec<Node>, InputError> {
    let list = root.place.name("nodes");
    let values = root.list("nodes")?;
    if values.is_empty() {
        return Err(list.error(Reason::WrongLength, "a model needs at least one node"));
    }
    let mut nodes = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let node = Fields::of(list.index(i), value, &["id", "latitude", "longitude"])?;
        let id = node.text("id")?;
        names.add(node.place.name("id"), id)?;
        nodes.push(Node {
            id: id.to_owned(),
            coordinates: coordinates(&node)?,
        });
    }
    Ok(nodes)
}

fn coordinates(node: &Fields<'_>) -> Result<Option<(f64, f64)>, InputError> {
    let degrees = |name: &str, most: f64| -> Result<Option<f64>, InputError> {
        let Some(value) = node.optional(name) else {
            return Ok(None);
        };
        let place = node.place.name(name);
        let number = place.number(value)?;
        if number.abs() > most {
            let message = format!("{number} is outside -{most} to {most} degrees");
            return Err(place.error(Reason::OutOfRange, message));
        }
        Ok(Some(number))
    };
    match (degrees("latitude", 90.0)?, degrees("longitude", 180.0)?) {
        (Some(latitude), Some(longitude)) => Ok(Some((latitude, longitude))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(node
            .place
            .error(Reason::MissingField, "latitude needs a longitude too")),
        (None, Some(_)) => Err(node
            .place
            .error(Reason::MissingField, "longitude needs a latitude too")),
    }
}

fn links(
    root: &Fields<'_>,
    nodes: &[Node],
    catalogue: &mut Catalogue,
) -> Result<Vec<Link>, InputError> {
    const KNOWN: [&str; 6] = [
        "id",
        "from",
        "to",
        "latency_ms",
        "bandwidth_mbps",
        "background_mbps",
    ];
    let list = root.place.name("links");
    let mut links = Vec::new();
    for (i, value) in root.list("links")?.iter().enumerate() {
        let link = Fields::of(list.index(i), value, &KNOWN)?;
        let id = link.text("id")?;
        catalogue.links.add(link.place.name("id"), id)?;
        let from = catalogue
            .nodes
            .find(link.place.name("from"), link.required("from")?)?;
        let to = catalogue
            .nodes
            .find(link.place.name("to"), link.required("to")?)?;
        if from == to {
            let message = "a link from a node to itself carries nothing; remove it";
            return Err(link.place.name("to").error(Reason::Contradiction, message));
        }
        let latency_ms = match link.optional("latency_ms") {
            Some(value) => ranges::LATENCY.at(link.place.name("latency_ms"), value)?,
            None => distance_ms(&link, &nodes[from], &nodes[to])?,
        };
        links.push(Link {
            id: id.to_owned(),
            from,
            to,
            latency_ms,
            bandwidth_mbps: ranges::BANDWIDTH.of(&link, "bandwidth_mbps")?,
            background_mbps: ranges::TRAFFIC
                .optional(&link, "background_mbps")?
                .unwrap_or(0.0),
        });
    }
    Ok(links)
}

fn distance_ms(link: &Fields<'_>, from: &Node, to: &Node) -> Result<f64, InputError> {
    match (from.coordinates, to.coordinates) {
        (Some(a), Some(b)) => Ok(great_circle_km(a, b) / KM_PER_MS),
        _ => {
            let bare = if from.coordinates.is_none() {
                &from.id
            } else {
                &to.id
            };
            let message = format!(
                "latency_ms is missing and the node '{bare}' has no coordinates to compute it from"
            );
            Err(link.place.error(Reason::MissingField, message))
        }
    }
}

fn routing(root: &Fields<'_>, catalogue: &Catalogue) -> Result<Routing, InputError> {
    let Some(value) = root.optional("routing") else {
        return Ok(Routing::ShortestPath);
    };
    let place = root.place.name("routing");
    let routing = Fields::of(place, value, &["kind", "entries"])?;
    match routing.text("kind")? {
        "shortest-path" => match routing.optional("entries") {
            None => Ok(Routing::ShortestPath),
            Some(_) => {
                let message = "entries belong to the kind 'fractions'";
                Err(place.name("entries").error(Reason::Contradiction, message))
            }
        },
        "fractions" => {
            let list = place.name("entries");
            let mut fractions = Vec::new();
            for (i, value) in routing.list("entries")?.iter().enumerate() {
                fractions.push(fraction(list.index(i), value, catalogue)?);
            }
            Ok(Routing::Fractions(fractions))
        }
        other => {
            let message =
                format!("'{other}' is no kind of routing; known: shortest-path, fractions");
            Err(place.name("kind").error(Reason::UnknownChoice, message))
        }
    }
}

fn fraction(
    place: Place<'_>,
    value: &Value,
    catalogue: &Catalogue,
) -> Result<Fraction, InputError> {
    let entry = Fields::of(place, value, &["from", "to", "link", "fraction"])?;
    let fraction = ranges::SHARE.of(&entry, "fraction")?;
    Ok(Fraction {
        from: catalogue
            .nodes
            .find(place.name("from"), entry.required("from")?)?,
        to: catalogue
            .nodes
            .find(place.name("to"), entry.required("to")?)?,
        link: catalogue
            .links
            .find(place.name("link"), entry.required("link")?)?,
        fraction,
    })
}

fn sites(root: &Fields<'_>, catalogue: &mut Catalogue) -> Result<Vec<Site>, InputError> {
    let list = root.place.name("sites");
    let mut sites = Vec::new();
    for (i, value) in root.list("sites")?.iter().enumerate() {
        let site = Fields::of(list.index(i), value, &["id", "node", "capacity"])?;
        let id = site.text("id")?;
        catalogue.sites.add(site.place.name("id"), id)?;
        sites.push(Site {
            id: id.to_owned(),
            node: catalogue
                .nodes
                .find(site.place.name("node"), site.required("node")?)?,
            capacity: ranges::CAPACITY.of(&site, "capacity")?,
        });
    }
    Ok(sites)
}

fn vnfs(root: &Fields<'_>, catalogue: &mut Catalogue) -> Result<Vec<Vnf>, InputError> {
    let list = root.place.name("vnfs");
    let mut vnfs = Vec::new();
    for (i, value) in root.list("vnfs")?.iter().enumerate() {
        let vnf = Fields::of(
            list.index(i),
            value,
            &["id", "load_per_mbps", "deployments"],
        )?;
        let id = vnf.text("id")?;
        catalogue.vnfs.add(vnf.place.name("id"), id)?;
        let load_per_mbps = ranges::LOAD.of(&vnf, "load_per_mbps")?;
        let deployments = deployments(&vnf, catalogue)?;
        vnfs.push(Vnf {
            id: id.to_owned(),
            load_per_mbps,
            deployments,
        });
    }
    Ok(vnfs)
}

fn deployments(vnf: &Fields<'_>, catalogue: &Catalogue) -> Result<Vec<Deployment>, InputError> {
    let list = vnf.place.name("deployments");
    let mut deployments: Vec<Deployment> = Vec::new();
    for (i, value) in vnf.list("deployments")?.iter().enumerate() {
        let entry = Fields::of(list.index(i), value, &["site", "capacity"])?;
        let place = entry.place.name("site");
        let site = catalogue.sites.find(place, entry.required("site")?)?;
        if deployments.iter().any(|d| d.site == site) {
            let message =
                "this VNF is already deployed at this site; add the capacities up in one entry";
            return Err(place.error(Reason::Duplicate, message));
        }
        deployments.push(Deployment {
            site,
            capacity: ranges::CAPACITY.of(&entry, "capacity")?,
        });
    }
    Ok(deployments)
}
