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

/// An exchange that changes a row's price by more than this power of e is no small one,
const SMALL: f64 = 1.0;

/// and the share of it that goes is searched to this part of it,
const FINE: f64 = 1.0 / 4096.0;

/// in at most so many tries, each this part of what is left away from its ends.
const TRIES: usize = 30;
const MARGIN: f64 = 0.25;

/// A VNF at a site.
struct Deployment {
    vnf: u32,
    place: u32,
    site: u32,
}

/// A row: what is read of it at once.
#[derive(Clone)]
struct Row {
    /// Load in its own unit.
    load: f64,
    /// One over its capacity; 0 without any.
    inverse: f64,
    /// Price of a unit of load where it is full.
    weight: f64,
    /// Price of a unit of load now.
    price: f64,
    /// Exponent that the price was made from.
    exponent: f64,
}

/// Loads and prices of all rows, and the tables for the next chain's route.
pub(super) struct Congestion<'a> {
    instance: &'a Instance,
    rows: Vec<Row>,
    /// How fast prices grow with utilisation.
    pub growth: f64,
    /// What utilisations are multiplied with.
    pub factor: f64,
    /// Cost of one Mbit/s over one millisecond.
    latency: f64,
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
        let (count, first) = (instance.rows(), instance.links + instance.sites);
        let of_none = || Deployment {
            vnf: 0,
            place: 0,
            site: 0,
        };
        let mut deployments: Vec<Deployment> = (first..count).map(|_| of_none()).collect();
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
        let inverse = |c: f64| if c > 0.0 { 1.0 / c } else { 0.0 };
        let all = loads(instance, &[]).into_iter().zip(weight).enumerate();
        let rows = all.map(|(row, (load, weight))| Row {
            load,
            inverse: inverse(instance.capacity[row]),
            weight,
            price: 0.0,
            exponent: 0.0,
        });
        let entries = ((HIGHEST - LOWEST) * RESOLUTION) as usize + 2;
        let mut congestion = Congestion {
            instance,
            rows: rows.collect(),
            growth: 0.0,
            factor: 1.0,
            latency,
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

    /// Load of each row, in its own unit.
    pub fn load(&self) -> Vec<f64> {
        self.rows.iter().map(|row| row.load).collect()
    }

    /// Utilisation of the fullest row.
    pub fn tightest(&self) -> f64 {
        let most = |most: f64, row: &Row| row.utilization().max(most);
        self.rows.iter().fold(0.0, most)
    }

    /// What is on rows beyond their capacity, in capacities.
    pub fn excess(&self) -> f64 {
        let over = |row: &Row| (row.utilization() - 1.0).max(0.0);
        self.rows.iter().map(over).sum()
    }

    /// What all loads cost at the present prices.
    pub fn cost(&self) -> f64 {
        let used = self.rows.iter().filter(|row| row.inverse > 0.0);
        used.map(|row| row.load * row.price).sum()
    }

    /// What a whole unit of an exchange more costs than the unit before, where prices are nearly linear over `share` of it;
    /// none where they are not.
    pub fn curvature(&self, changes: &[(u32, f64)], share: f64) -> Option<f64> {
        let steep = self.growth * self.factor;
        let mut sum = 0.0;
        for &(row, change) in changes {
            let row = &self.rows[row as usize];
            let slope = steep * row.inverse;
            if (slope * change * share).abs() > SMALL {
                return None;
            }
            sum += change * change * row.price * slope;
        }
        Some(sum)
    }

    /// The step of an exchange at which nothing is gained any more by going further, or all of the share; `gain` is what the
    /// first of it gains.
    pub fn search(&self, changes: &[(u32, f64)], gain: f64, share: f64) -> f64 {
        let lost = |step: f64| {
            let rise = |&(row, change): &(u32, f64)| {
                let row = &self.rows[row as usize];
                change * (self.price_of(row, self.exponent_with(row, step * change)) - row.price)
            };
            changes.iter().map(rise).sum::<f64>() - gain
        };
        let (mut low, mut high) = ((0.0, -gain), (share, lost(share)));
        if high.1 < 0.0 {
            return share;
        }
        // Where the line through both ends crosses zero; an end that stays counts half each time, so that it moves too.
        let mut stayed = 0;
        for _ in 0..TRIES {
            let width = high.0 - low.0;
            if width <= FINE * share {
                break;
            }
            let crossing = low.0 - width * low.1 / (high.1 - low.1);
            let margin = MARGIN * width;
            let at = crossing.clamp(low.0 + margin, high.0 - margin);
            let value = lost(at);
            if value < 0.0 {
                low = (at, value);
                high.1 *= if stayed > 0 { 0.5 } else { 1.0 };
                stayed = 1;
            } else {
                high = (at, value);
                low.1 *= if stayed < 0 { 0.5 } else { 1.0 };
                stayed = -1;
            }
        }
        low.0
    }

    /// The cost of one Mbit/s handled by a VNF at a site.
    pub fn visit(&self, vnf: usize, site: u32) -> f64 {
        let instance = self.instance;
        if !self.shared {
            let place = instance.site_place[site as usize] as usize;
            return self.tables.vnf[vnf * instance.site_places + place];
        }
        let row = instance.vnf_row(vnf, site as usize);
        let price = row.map_or(BLOCKED, |row| self.rows[row].price);
        instance.vnfs[vnf].load_per_mbps * (price + self.rows[instance.links + site as usize].price)
    }

    fn exponent_of(&self, row: &Row) -> f64 {
        self.exponent_with(row, 0.0)
    }

    fn exponent_with(&self, row: &Row, more: f64) -> f64 {
        let u = (row.load + more) * row.inverse * self.factor;
        (self.growth * (u - 1.0)).clamp(LOWEST, HIGHEST)
    }

    #[inline]
    fn price_of(&self, row: &Row, exponent: f64) -> f64 {
        if row.inverse <= 0.0 {
            return BLOCKED;
        }
        let at = (exponent - LOWEST) * RESOLUTION;
        let entry = at as usize;
        let (value, next) = (self.curve[entry], self.curve[entry + 1]);
        row.weight * (value + (at - entry as f64) * (next - value))
    }

    fn set_price(&mut self, row: usize, exponent: f64) {
        let price = self.price_of(&self.rows[row], exponent);
        let of = &mut self.rows[row];
        (of.exponent, of.price) = (exponent, price);
        self.tables.set_price(row, price);
    }

    /// Brings all prices and tables up to date.
    pub fn refresh(&mut self) {
        if self.tables.forward.is_empty() {
            let price: Vec<f64> = self.rows.iter().map(|row| row.price).collect();
            self.tables.fill(self.instance, &price, self.latency);
        }
        for row in 0..self.rows.len() {
            let exponent = self.exponent_of(&self.rows[row]);
            self.set_price(row, exponent);
        }
        self.tables.refresh_pairs(self.instance, self.latency);
        self.tables.refresh_vnfs(self.instance);
    }

    /// Brings the prices of links up to date.
    pub fn refresh_links(&mut self) {
        for link in 0..self.instance.links {
            let exponent = self.exponent_of(&self.rows[link]);
            self.set_price(link, exponent);
        }
        self.tables.refresh_pairs(self.instance, self.latency);
    }

    /// Puts a load on a row, or takes it off.
    pub fn put(&mut self, row: usize, load: f64) {
        let of = &mut self.rows[row];
        of.load = (of.load + load).max(0.0);
        let Some(of_sites) = row.checked_sub(self.instance.links) else {
            return;
        };
        let exponent = self.exponent_of(&self.rows[row]);
        let change = (exponent - self.rows[row].exponent).abs();
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
            let price = self.rows[row].price + self.rows[links + of.site as usize].price;
            self.tables.vnf[vnf * instance.site_places + place] =
                instance.vnfs[vnf].load_per_mbps * price;
        }
    }

    /// Raises the weights of rows above `target` and lowers those below, by the exponents `up` and `down` for each unit of
    /// utilisation; none sinks below `least`.
    pub fn reweigh(&mut self, target: f64, (up, down): (f64, f64), least: &[f64]) {
        for (row, &least) in self.rows.iter_mut().zip(least) {
            let over = row.utilization() / target - 1.0;
            let exponent = if over > 0.0 { up } else { down } * over;
            let weight = row.weight * exponent.clamp(-4.0, 2.0).exp();
            row.weight = weight.max(least);
        }
    }
}

impl Row {
    fn utilization(&self) -> f64 {
        self.load * self.inverse
    }
}
