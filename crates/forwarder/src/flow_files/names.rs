//! The names of the numbers in tables.

use super::{FlowFiles, file};
use crate::registry::{HopId, PlaceId, PlaceName, Registry, Used};
use crate::whole_file;
use flow::{FlowKey, FlowTable, Ipv4Key, Ipv6Key, Verdict};
use std::{fs, io};

const NAMES: &str = "names.json";
/// More names than this at the start mean that most are of the past: those that no entry has are forgotten.
const NAMES_LIMIT: usize = 1 << 15;

impl FlowFiles {
    /// The names there are. Without any, numbers in tables mean nothing: the tables go.
    pub(super) fn names(&self) -> io::Result<Registry> {
        let read = fs::read(self.directory.join(NAMES));
        let known = read
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Registry>(&bytes).ok());
        if let Some(registry) = known {
            return Ok(registry);
        }
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("ipv") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Registry::default())
    }

    /// Forgets names that no entry has, if there are many.
    pub(super) fn forget_unused(&self, registry: &mut Registry) {
        if registry.hop_count().max(registry.place_count()) >= NAMES_LIMIT {
            let used = self.used(registry);
            registry.forget_others(&used);
        }
    }

    /// What the entries of all tables name.
    fn used(&self, registry: &Registry) -> Used {
        let (_, places) = registry.names();
        let is_edge: Vec<bool> = places
            .iter()
            .map(|name| matches!(name, Some(PlaceName::Edge(_))))
            .collect();
        let mut used = Used::default();
        for worker in 0..self.crew.workers {
            self.add_used::<Ipv4Key>(worker, &is_edge, &mut used);
            self.add_used::<Ipv6Key>(worker, &is_edge, &mut used);
        }
        used
    }

    fn add_used<K: FlowKey>(&self, worker: usize, is_edge: &[bool], used: &mut Used) {
        let path = self.path::<K>(worker);
        let table = path
            .exists()
            .then(|| file(&path, false).map(FlowTable::<K>::reopen));
        // A table that cannot be read is made anew: it names nothing.
        let Some(Ok(Ok(mut table))) = table else {
            return;
        };
        let scan = table.begin_scan();
        let everything = table.stats().buckets;
        while table.scan_step(&scan, everything, |visited| {
            let (place, hops) = (visited.path(), visited.hops());
            used.places.insert(PlaceId(place));
            if is_edge.get(usize::from(place)) == Some(&true) {
                // An edge's entries say which stage their packets come from.
                used.places.insert(PlaceId(hops.upstream));
            } else {
                used.hops
                    .extend([HopId(hops.upstream), HopId(hops.downstream)]);
            }
            Verdict::Keep
        }) {}
    }

    /// Writes the names down. To be called before flow entries can hold new numbers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_names(&self, registry: &Registry) -> io::Result<()> {
        whole_file::write(&self.directory.join(NAMES), &serde_json::to_vec(registry)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_files::Place;
    use crate::registry::HopName;
    use flow::{Config, Hops, Ipv4Table, state};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    fn open(directory: &Path) -> (Arc<FlowFiles>, Registry, Ipv4Table) {
        let config = Config::new(8 << 20, [1; 16]);
        let (files, registry) =
            FlowFiles::open(directory, 1, &(config, config), false, || 7).unwrap();
        let files = Arc::new(files);
        let table = Place::Files(files.clone(), 0).table(&config, 7).unwrap();
        (files, registry, table)
    }

    fn stage(number: usize) -> PlaceName {
        PlaceName::Stage {
            chain: 65_536 + 2 * number as u32,
            egress: 20,
            stage: 1,
        }
    }

    fn peer(number: usize) -> HopName {
        HopName::Peer(format!("site{number}/f1"))
    }

    /// What the entry of connection `number` names: a stage and two hops, or an edge and the stage its packets come from.
    fn entry(registry: &mut Registry, number: usize) -> (PlaceId, Hops) {
        let hops = |upstream, downstream| Hops {
            upstream,
            downstream,
            opener: 0,
        };
        if number.is_multiple_of(2) {
            let of = [number, number + 1].map(|of| registry.hop(peer(of)).unwrap().0);
            return (registry.place(stage(number)).unwrap(), hops(of[0], of[1]));
        }
        let edge = registry.place(PlaceName::Edge(format!("edge{number}")));
        let from = registry.place(stage(10 * number)).unwrap();
        (edge.unwrap(), hops(from.0, 0))
    }

    #[test]
    fn names_that_no_entry_has_are_forgotten_before_numbers_run_out() {
        let name = format!("switchboard-names-{}", std::process::id());
        let directory = PathBuf::from("/dev/shm").join(name);
        let (files, mut registry, mut table) = open(&directory);
        for number in 0..2 * NAMES_LIMIT - 100 {
            registry.hop(peer(number)).unwrap();
            registry.place(stage(number)).unwrap();
        }
        let key = |place: PlaceId, number| Ipv4Key::new(place.0, number, 1, 17, 4000, 53);
        let connections: Vec<usize> = (0..50).map(|i| 977 * i).collect();
        let mut written = Vec::new();
        for &number in &connections {
            let (place, hops) = entry(&mut registry, number);
            let key = key(place, number as u32);
            let inserted = table.insert(&key, hops, state::SYN, flow::Direction::Forward, 7);
            assert!(matches!(inserted, flow::Insertion::New(_)));
            written.push((key, hops));
        }
        files.keep_names(&registry).unwrap();
        drop((files, table));
        let (_, mut registry, table) = open(&directory);
        assert!(registry.place_count() <= 75, "{}", registry.place_count());
        assert!(registry.hop_count() <= 50, "{}", registry.hop_count());
        for (&number, (key, hops)) in connections.iter().zip(&written) {
            assert_eq!(table.get(key).expect("it is kept").hops(), *hops);
            let (place, now) = entry(&mut registry, number);
            assert_eq!(
                (key.path(), hops),
                (place.0, &now),
                "what it says has changed"
            );
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
