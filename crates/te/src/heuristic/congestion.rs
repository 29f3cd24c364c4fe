//! Loads, and prices that grow with them: what makes chains share what is scarce.
//!
//! A unit of load on a row costs `weight · exp(growth · (u − 1))`, with `u` the row's utilisation times a factor. After a
//! sweep over all chains the weights of rows that are too full rise and those of the others sink, so that prices go toward
//! those of the optimum, where rows that bind have different prices at the same utilisation.
//!
//! Prices of sites and of VNFs at sites follow a load at once; those of links, each of which many entries of the tables
//! depend on, when [`Congestion::refresh_links`] is called.

use crate::instance::Instance;
use crate::solution::loads;
use crate::tables::{BLOCKED, Tables};

/// Exponents below this count as this: the row is as good as empty.
const LOWEST: f64 = -40.0;

/// Exponents above this count as this: prices stay well below what marks the impossible.
const HIGHEST: f64 = 12.0;

/// Entries of the curve for each unit of the exponent; between them it is linear.
const RESOLUTION: f64 = 16.0;

/// A price follows a load when the exponent has changed by this: on a VNF at a site, of which one entry depends,
const OF_VNF: f64 = 0.02;

/// and on a site, on which all its VNFs depend.
const OF_SITE: f64 = 0.1;

/// A VNF at a site.
struct Deployment {
    vnf: u32,
    place: u32,
    site: u32,
}

/// Loads and prices of all rows, and the tables for the next chain's route.
pub(super) struct Congestion<'a> {
    instance: &'a Instance,
    /// Load of each row, in its own unit.
    pub load: Vec<f64>,
    /// Price of a unit of load on each row where it is full.
    pub weight: Vec<f64>,
    /// How fast prices grow with utilisation.
    pub growth: f64,
    /// What utilisations are multiplied with.
    pub factor: f64,
    /// Cost of one Mbit/s over one millisecond.
    latency: f64,
    inverse: Vec<f64>,
    price: Vec<f64>,
    /// Exponent that each price was made from.
    exponent: Vec<f64>,
    curve: Vec<f64>,
    deployments: Vec<Deployment>,
    /// Rows of the VNFs at each site.
    tenants: Vec<Vec<u32>>,
    /// Whether two sites are at one node.
    shared: bool,
    /// What the dynamic program reads.
    pub tables: Tables,
}

impl<'a> Congestion<'a> {
    /// No load but what is there already.
    pub fn new(instance: &'a Instance, latency: f64, weight: Vec<f64>) -> Self {
        let (rows, first) = (instance.rows(), instance.links + instance.sites);
        let of_none = || Deployment {
            vnf: 0,
            place: 0,
            site: 0,
        };
        let mut deployments: Vec<Deployment> = (first..rows).map(|_| of_none()).collect();
        let mut tenants = vec![Vec::new(); instance.sites];
        for (vnf, sites) in instance.vnfs.iter().enumerate() {
            for &(site, row) in &sites.deployments {
                deployments[row as usize - first] = Deployment {
                    vnf: vnf as u32,
                    place: instance.site_place[site as usize],
                    site,
                };
                tenants[site as usize].push(row);
            }
        }
        let mut places = instance.site_place.clone();
        places.sort_unstable();
        let inverse = |&c: &f64| if c > 0.0 { 1.0 / c } else { 0.0 };
        let entries = ((HIGHEST - LOWEST) * RESOLUTION) as usize + 2;
        let mut congestion = Congestion {
            instance,
            load: loads(instance, &[]),
            weight,
            growth: 0.0,
            factor: 1.0,
            latency,
            inverse: instance.capacity.iter().map(inverse).collect(),
            price: vec![0.0; rows],
            exponent: vec![0.0; rows],
            curve: (0..entries)
                .map(|at| (LOWEST + at as f64 / RESOLUTION).exp())
                .collect(),
            deployments,
            tenants,
            shared: places.windows(2).any(|w| w[0] == w[1]),
            tables: Tables::default(),
        };
        congestion.refresh();
        congestion
    }

    /// Utilisation of a row.
    pub fn utilization(&self, row: usize) -> f64 {
        self.load[row] * self.inverse[row]
    }

    /// Utilisation of the fullest row.
    pub fn tightest(&self) -> f64 {
        (0..self.load.len()).fold(0.0, |most, row| self.utilization(row).max(most))
    }

    /// What is on rows beyond their capacity, in capacities.
    pub fn excess(&self) -> f64 {
        let over = |row| (self.utilization(row) - 1.0).max(0.0);
        (0..self.load.len()).map(over).sum()
    }

    /// What all loads cost at the present prices.
    pub fn cost(&self) -> f64 {
        let used = (0..self.load.len()).filter(|&row| self.inverse[row] > 0.0);
        used.map(|row| self.load[row] * self.price[row]).sum()
    }

    /// How fast a row's price grows with its load.
    pub fn slope(&self, row: usize) -> f64 {
        self.price[row] * self.growth * self.factor * self.inverse[row]
    }

    /// The price of a VNF at a site and of the site, by the VNF's number and the site's.
    pub fn price_at(&self, vnf: usize, site: u32) -> f64 {
        let sites = &self.instance.vnfs[vnf];
        let found = sites.deployments.iter().find(|(s, _)| *s == site);
        let row = found.map_or(BLOCKED, |(_, row)| self.price[*row as usize]);
        sites.load_per_mbps * (row + self.price[self.instance.links + site as usize])
    }

    /// By which power of e a row's price changes with so much more load.
    pub fn swing(&self, row: usize, load: f64) -> f64 {
        (self.growth * self.factor * self.inverse[row] * load).abs()
    }

    /// By how much a row's price rises with so much more load.
    pub fn rise(&self, row: usize, load: f64) -> f64 {
        self.price_of(row, self.exponent_with(row, load)) - self.price[row]
    }

    fn exponent_of(&self, row: usize) -> f64 {
        self.exponent_with(row, 0.0)
    }

    fn exponent_with(&self, row: usize, more: f64) -> f64 {
        let u = (self.load[row] + more) * self.inverse[row] * self.factor;
        (self.growth * (u - 1.0)).clamp(LOWEST, HIGHEST)
    }

    fn price_of(&self, row: usize, exponent: f64) -> f64 {
        if self.inverse[row] <= 0.0 {
            return BLOCKED;
        }
        let at = (exponent - LOWEST) * RESOLUTION;
        let (entry, part) = (at as usize, at.fract());
        let value = self.curve[entry] + part * (self.curve[entry + 1] - self.curve[entry]);
        self.weight[row] * value
    }

    fn set_price(&mut self, row: usize, exponent: f64) {
        self.exponent[row] = exponent;
        self.price[row] = self.price_of(row, exponent);
        self.tables.set_price(row, self.price[row]);
    }

    /// Brings all prices and tables up to date.
    pub fn refresh(&mut self) {
        if self.tables.forward.is_empty() {
            self.tables.fill(self.instance, &self.price, self.latency);
        }
        for row in 0..self.price.len() {
            let exponent = self.exponent_of(row);
            self.set_price(row, exponent);
        }
        self.tables.refresh_pairs(self.instance, self.latency);
        self.tables.refresh_vnfs(self.instance);
    }

    /// Brings the prices of links up to date.
    pub fn refresh_links(&mut self) {
        for link in 0..self.instance.links {
            let exponent = self.exponent_of(link);
            self.set_price(link, exponent);
        }
        self.tables.refresh_pairs(self.instance, self.latency);
    }

    /// Puts a load on a row, or takes it off.
    pub fn put(&mut self, row: usize, load: f64) {
        self.load[row] = (self.load[row] + load).max(0.0);
        let Some(of_sites) = row.checked_sub(self.instance.links) else {
            return;
        };
        let exponent = self.exponent_of(row);
        let change = (exponent - self.exponent[row]).abs();
        match of_sites.checked_sub(self.instance.sites) {
            Some(_) if change > OF_VNF => {
                self.set_price(row, exponent);
                self.refresh_entry(row);
            }
            None if change > OF_SITE => {
                self.set_price(row, exponent);
                for at in 0..self.tenants[of_sites].len() {
                    self.refresh_entry(self.tenants[of_sites][at] as usize);
                }
            }
            _ => {}
        }
    }

    /// Brings the entry of a VNF at a place up to date.
    fn refresh_entry(&mut self, row: usize) {
        let (instance, links) = (self.instance, self.instance.links);
        let of = &self.deployments[row - links - instance.sites];
        let (vnf, place) = (of.vnf as usize, of.place as usize);
        if self.shared {
            self.tables.refresh_vnf(instance, vnf, place);
        } else {
            let price = self.price[row] + self.price[links + of.site as usize];
            self.tables.vnf[vnf * instance.site_places + place] =
                instance.vnfs[vnf].load_per_mbps * price;
        }
    }

    /// Raises the weights of rows above `target` and lowers those below, by the exponents `up` and `down` for each unit of
    /// utilisation; none sinks below `least`.
    pub fn reweigh(&mut self, target: f64, (up, down): (f64, f64), least: &[f64]) {
        for (row, &least) in least.iter().enumerate() {
            let over = self.utilization(row) / target - 1.0;
            let exponent = if over > 0.0 { up } else { down } * over;
            let weight = self.weight[row] * exponent.clamp(-4.0, 2.0).exp();
            self.weight[row] = weight.max(least);
        }
    }
}
