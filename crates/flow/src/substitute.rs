//! Another table in this one's place: for a benchmark that puts a peer's table, or none at all, into the very program that
//! this one is measured in. There is nothing of it without the feature `substitute`, which no product turns on.

use crate::entry::Hit;
use crate::key::FlowKey;
use crate::lookup::{BURST, Lookups};
use crate::probe::Wanted;
use crate::table::FlowTable;

/// Answers bursts of look-ups; insertions still go to the table.
pub trait Substitute<K>: Send {
    /// At most [`BURST`] connections, or nothing. The slices are equally long. A position is where in this table packets of the
    /// connection are noted: of an entry that is there, of whatever connection.
    fn look_up(&self, keys: &[K], results: &mut [Hit]);

    /// Whether packets of the connections it knows are noted, as for one that stands for a flow table. One that stands for
    /// the lack of any has nothing to note.
    fn keeps_notes(&self) -> bool {
        true
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Has bursts answered by something else from now on. The cache is asked for where packets are noted as soon as it has
    /// answered.
    pub fn substitute(&mut self, other: Option<Box<dyn Substitute<K>>>) {
        self.substitute = other;
    }

    /// Keeps keys for [`FlowTable::look_by`]: as they are, where their mixed form lies otherwise.
    #[inline]
    pub(crate) fn keep(&self, keys: &[K], lookups: &mut Lookups<K>) {
        let start = lookups.count.min(BURST);
        let room = &mut lookups.wanted[start..];
        for (wanted, key) in room.iter_mut().zip(keys) {
            *wanted = Wanted {
                addresses: key.addresses(),
                head: key.head(),
            };
        }
        lookups.count = (start + keys.len()).min(BURST);
    }

    #[inline]
    pub(crate) fn look_by(
        &self,
        other: &dyn Substitute<K>,
        lookups: &Lookups<K>,
        results: &mut [Hit],
    ) {
        let count = lookups.count.min(BURST).min(results.len());
        let wanted = &lookups.wanted;
        let keys: [K; BURST] =
            std::array::from_fn(|at| K::from_parts(wanted[at].head, wanted[at].addresses));
        let results = &mut results[..count];
        other.look_up(&keys[..count], results);
        if other.keeps_notes() {
            for found in results.iter().filter_map(|hit| hit.found()) {
                self.memory.prefetch(found.position.bucket());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Direction, Found, Hops, Insertion, Ipv4Key, Ipv4Table, Position};
    use std::num::NonZeroU32;

    struct Even;

    impl Substitute<Ipv4Key> for Even {
        fn look_up(&self, keys: &[Ipv4Key], results: &mut [Hit]) {
            for (key, result) in keys.iter().zip(results) {
                let port = key.source_port();
                let hops = Hops {
                    downstream: port,
                    ..Hops::default()
                };
                let position = Position::of_number(NonZeroU32::MIN);
                let found = Found::elsewhere(position, hops);
                *result = port.is_multiple_of(2).then_some(found).into();
            }
        }
    }

    #[test]
    fn a_substitute_answers_bursts_until_it_is_taken_away() {
        let mut table = Ipv4Table::new(&Config::new(1 << 20, [3; 16])).expect("there is memory");
        let key = |port| Ipv4Key::new(1, 2, 3, 17, port, 53);
        let stored = table.insert(&key(7), Hops::default(), 0, Direction::Forward, 0);
        assert!(matches!(stored, Insertion::New(_)));
        let keys: Vec<Ipv4Key> = (0..100).map(key).collect();
        let mut found = vec![Hit::NONE; keys.len()];
        table.substitute(Some(Box::new(Even)));
        table.lookup_batch(&keys, &mut found);
        for (port, found) in found.iter().enumerate() {
            let expected = (port % 2 == 0).then_some(port as u16);
            assert_eq!(found.found().map(|found| found.hops().downstream), expected);
        }
        table.substitute(None);
        table.lookup_batch(&keys, &mut found);
        let known: Vec<usize> = (0..keys.len())
            .filter(|&at| found[at].found().is_some())
            .collect();
        assert_eq!(known, [7]);
    }
}
