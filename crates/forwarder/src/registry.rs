//! Small numbers for the things that flow entries name, stable while the process lives.
//!
//! A flow entry outlives the rules it was made under, so a number is given to another thing only where no entry can have it: as a
//! process starts ([`Registry::forget_others`]).

use serde::{Deserialize, Serialize, Serializer};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Number of a hop: an attachment, an edge or a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HopId(pub u16);

/// Number of a place that keeps flow entries: a stage of a service path, or an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceId(pub u16);

impl HopId {
    /// Stands in an entry for a hop that was withdrawn. No hop has this number.
    pub const WITHDRAWN: HopId = HopId(u16::MAX);

    /// Position in a list of hops.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl PlaceId {
    /// Position in a list of places.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Lasting name of a hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HopName {
    /// Attachment id of the rules.
    Attachment(String),
    /// Edge id of the rules.
    Edge(String),
    /// Peer id of the rules.
    Peer(String),
}

/// Lasting name of a place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlaceName {
    /// A stage of a service path.
    Stage {
        /// Even chain label.
        chain: u32,
        /// Egress label.
        egress: u32,
        /// From 1.
        stage: u32,
    },
    /// An edge.
    Edge(String),
}

/// More things than numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// Every number given so far. Written down it is the two lists of names, in the order of their numbers.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Names<HopName, PlaceName>")]
pub struct Registry {
    hops: Numbers<HopName>,
    places: Numbers<PlaceName>,
}

/// Names in the order of their numbers; nothing where a number is free.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names<H, P> {
    hops: Vec<Option<H>>,
    places: Vec<Option<P>>,
}

impl From<Names<HopName, PlaceName>> for Registry {
    fn from(names: Names<HopName, PlaceName>) -> Registry {
        Registry {
            hops: Numbers::from_list(names.hops),
            places: Numbers::from_list(names.places),
        }
    }
}

impl Serialize for Registry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (hops, places) = self.names();
        Names { hops, places }.serialize(serializer)
    }
}

impl Registry {
    /// The number of a hop, new or known.
    ///
    /// # Errors
    /// All 65 535 numbers have been given in this process's life.
    pub fn hop(&mut self, name: HopName) -> Result<HopId, Exhausted> {
        self.hops.number(name).map(HopId)
    }

    /// The number of a place, new or known.
    ///
    /// # Errors
    /// As for [`Registry::hop`].
    pub fn place(&mut self, name: PlaceName) -> Result<PlaceId, Exhausted> {
        self.places.number(name).map(PlaceId)
    }

    /// The names of all numbers, hops and places; nothing where a number is free.
    pub fn names(&self) -> (Vec<Option<&HopName>>, Vec<Option<&PlaceName>>) {
        (self.hops.list(), self.places.list())
    }

    /// Forgets names that are not used, so that their numbers can be given again. To be called while nothing but flow entries names any.
    pub fn forget_others(&mut self, used: &Used) {
        self.hops.keep(|number| used.hops.contains(&HopId(number)));
        self.places
            .keep(|number| used.places.contains(&PlaceId(number)));
    }

    /// Hops that have numbers.
    pub fn hop_count(&self) -> usize {
        self.hops.known.len()
    }

    /// Places that have numbers.
    pub fn place_count(&self) -> usize {
        self.places.known.len()
    }
}

/// Hops and places that flow entries name.
#[derive(Debug, Default)]
pub struct Used {
    /// Hops.
    pub hops: HashSet<HopId>,
    /// Places.
    pub places: HashSet<PlaceId>,
}

/// Numbers of one kind: those from 0 on are all known or free.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers<N: Eq + Hash> {
    known: HashMap<N, u16>,
    free: Vec<u16>,
}

impl<N: Eq + Hash> Default for Numbers<N> {
    fn default() -> Self {
        Numbers::from_list(Vec::new())
    }
}

impl<N: Eq + Hash> Numbers<N> {
    fn from_list(names: Vec<Option<N>>) -> Numbers<N> {
        let (mut known, mut free) = (HashMap::new(), Vec::new());
        for (name, number) in names.into_iter().zip(0..u16::MAX) {
            match name {
                Some(name) => drop(known.insert(name, number)),
                None => free.push(number),
            }
        }
        Numbers { known, free }
    }

    fn list(&self) -> Vec<Option<&N>> {
        let mut names = vec![None; self.known.len() + self.free.len()];
        for (name, &number) in &self.known {
            names[usize::from(number)] = Some(name);
        }
        names
    }

    fn number(&mut self, name: N) -> Result<u16, Exhausted> {
        if let Some(&number) = self.known.get(&name) {
            return Ok(number);
        }
        let fresh = u16::try_from(self.known.len()).ok();
        let number = self
            .free
            .pop()
            .or(fresh.filter(|&number| number < u16::MAX))
            .ok_or(Exhausted)?;
        self.known.insert(name, number);
        Ok(number)
    }

    fn keep(&mut self, is_used: impl Fn(u16) -> bool) {
        let Numbers { known, free } = self;
        known.retain(|_, number| {
            let used = is_used(*number);
            if !used {
                free.push(*number);
            }
            used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let mut registry = Registry::default();
        let first = registry.hop(HopName::Peer("a/f".into())).unwrap();
        let other = registry.hop(HopName::Edge("a/f".into())).unwrap();
        assert_ne!(first, other);
        assert_eq!(registry.hop(HopName::Peer("a/f".into())), Ok(first));
    }

    #[test]
    fn names_written_down_keep_their_numbers() {
        let mut registry = Registry::default();
        for i in 0..300 {
            registry.hop(HopName::Attachment(format!("a{i}"))).unwrap();
            registry.hop(HopName::Peer(format!("p{i}"))).unwrap();
            let (chain, egress, stage) = (65_536 + 2 * i, 20, 1);
            let place = PlaceName::Stage {
                chain,
                egress,
                stage,
            };
            registry.place(place).unwrap();
        }
        let text = serde_json::to_string(&registry).unwrap();
        let mut read: Registry = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read.hops.clone(), read.places.clone()),
            (registry.hops, registry.places)
        );
        assert_eq!(read.hop(HopName::Edge("new".into())), Ok(HopId(600)));
    }

    #[test]
    fn numbers_of_names_that_were_forgotten_are_given_again() {
        let mut registry = Registry::default();
        for i in 0..10 {
            registry.hop(HopName::Peer(i.to_string())).unwrap();
        }
        registry.forget_others(&Used {
            hops: [HopId(2), HopId(9), HopId::WITHDRAWN].into(),
            places: HashSet::new(),
        });
        let text = serde_json::to_string(&registry).unwrap();
        let mut read: Registry = serde_json::from_str(&text).unwrap();
        assert_eq!(read.hop_count(), 2);
        assert_eq!(read.hop(HopName::Peer("2".into())), Ok(HopId(2)));
        assert_eq!(read.hop(HopName::Peer("9".into())), Ok(HopId(9)));
        let mut given: Vec<u16> = (10..19)
            .map(|i| read.hop(HopName::Peer(i.to_string())).unwrap().0)
            .collect();
        given.sort_unstable();
        assert_eq!(given, [0, 1, 3, 4, 5, 6, 7, 8, 10]);
    }

    #[test]
    fn numbers_run_out_with_an_error() {
        let mut registry = Registry::default();
        for i in 0..u32::from(u16::MAX) {
            registry.hop(HopName::Peer(i.to_string())).unwrap();
        }
        assert_eq!(registry.hop(HopName::Peer("more".into())), Err(Exhausted));
        assert_eq!(registry.hop(HopName::Peer("7".into())), Ok(HopId(7)));
    }
}
