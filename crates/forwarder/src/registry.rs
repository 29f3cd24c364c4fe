//! Small numbers for the things that flow entries name, stable while the process lives.
//!
//! A flow entry outlives the rules it was made under, so a number is never given to another thing.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;

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
    hops: HashMap<HopName, HopId>,
    places: HashMap<PlaceName, PlaceId>,
}

/// Names in the order of their numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Names<H, P> {
    hops: Vec<H>,
    places: Vec<P>,
}

impl From<Names<HopName, PlaceName>> for Registry {
    fn from(names: Names<HopName, PlaceName>) -> Registry {
        let (hops, places) = (0..=u16::MAX, 0..=u16::MAX);
        Registry {
            hops: names.hops.into_iter().zip(hops.map(HopId)).collect(),
            places: names.places.into_iter().zip(places.map(PlaceId)).collect(),
        }
    }
}

impl Serialize for Registry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = Names {
            hops: in_order(&self.hops, |id| id.0),
            places: in_order(&self.places, |id| id.0),
        };
        names.serialize(serializer)
    }
}

fn in_order<K, V: Copy>(known: &HashMap<K, V>, number: impl Fn(V) -> u16) -> Vec<&K> {
    let mut names: Vec<(u16, &K)> = known.iter().map(|(name, &id)| (number(id), name)).collect();
    names.sort_unstable_by_key(|&(number, _)| number);
    names.into_iter().map(|(_, name)| name).collect()
}

impl Registry {
    /// The number of a hop, new or known.
    ///
    /// # Errors
    /// All 65 535 numbers have been given in this process's life.
    pub fn hop(&mut self, name: HopName) -> Result<HopId, Exhausted> {
        let next = self.hops.len();
        number(&mut self.hops, name, next, HopId)
    }

    /// The number of a place, new or known.
    ///
    /// # Errors
    /// As for [`Registry::hop`].
    pub fn place(&mut self, name: PlaceName) -> Result<PlaceId, Exhausted> {
        let next = self.places.len();
        number(&mut self.places, name, next, PlaceId)
    }

    /// The names of all numbers, hops and places.
    pub fn names(&self) -> (Vec<&HopName>, Vec<&PlaceName>) {
        (
            in_order(&self.hops, |id| id.0),
            in_order(&self.places, |id| id.0),
        )
    }

    /// Hops numbered so far.
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// Places numbered so far.
    pub fn place_count(&self) -> usize {
        self.places.len()
    }
}

fn number<K: Eq + std::hash::Hash, V: Copy>(
    known: &mut HashMap<K, V>,
    name: K,
    next: usize,
    make: impl Fn(u16) -> V,
) -> Result<V, Exhausted> {
    if let Some(&id) = known.get(&name) {
        return Ok(id);
    }
    let id = u16::try_from(next)
        .ok()
        .filter(|&id| id < u16::MAX)
        .map(make)
        .ok_or(Exhausted)?;
    known.insert(name, id);
    Ok(id)
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
    fn numbers_run_out_with_an_error() {
        let mut registry = Registry::default();
        for i in 0..u32::from(u16::MAX) {
            registry.hop(HopName::Peer(i.to_string())).unwrap();
        }
        assert_eq!(registry.hop(HopName::Peer("more".into())), Err(Exhausted));
        assert_eq!(registry.hop(HopName::Peer("7".into())), Ok(HopId(7)));
    }
}
