//! Dealing flow entries out to another number of workers than wrote them, or by another function.

use super::{Crew, FlowFiles, file};
use crate::family::Family;
use crate::home::Homes;
use crate::whole_file;
use flow::{Config, FlowKey, FlowTable, Insertion, Ipv4Key, Ipv6Key, Verdict};
use std::fs;
use std::io;
use std::path::PathBuf;
use wire::steering::Direction;

const CREW: &str = "workers.json";

impl FlowFiles {
    /// Sees to it that the tables there are, if any, are those of this number of workers.
    pub(super) fn settle(&mut self, tables: &(Config, Config), now: u32) -> io::Result<()> {
        let before = self.crew_before();
        if let Some(before) = &before {
            self.crew.key = before.next_key.unwrap_or(before.key);
            self.crew.deals = before.deals;
        }
        if let Some(before) = before.filter(|before| !before.deals_like(&self.crew)) {
            self.deal_anew(before, tables, now)?;
        }
        // From here on the new tables are those that count.
        self.keep_crew(&self.crew)?;
        self.remove_others()
    }

    /// Deals all entries out anew. Where nothing but another key wants that, and not all of it succeeds, the tables there are stay, and so do homes:
    /// packets are handed over then, which costs no connection.
    fn deal_anew(&mut self, before: Crew, tables: &(Config, Config), now: u32) -> io::Result<()> {
        self.crew.deals += 1;
        let v4 = self.deal::<Ipv4Key>(&before, &tables.0, now);
        let lost = v4.and_then(|lost| Ok(lost + self.deal::<Ipv6Key>(&before, &tables.1, now)?));
        let same_tables =
            before.workers == self.crew.workers && before.function == self.crew.function;
        let (problem, result) = match lost {
            Ok(0) => return Ok(()),
            Ok(lost) => {
                let workers = self.crew.workers;
                let problem =
                    format!("{lost} connections found no room in the tables of {workers} workers");
                (problem, Ok(()))
            }
            Err(error) => (error.to_string(), Err(error)),
        };
        if same_tables {
            self.crew = before;
            eprintln!("switchboard-forwarder: {problem}: connections keep the homes they had");
            return Ok(());
        }
        if result.is_err() {
            // What is unfinished would be in the way of the next attempt.
            self.crew = before;
            self.remove_others()?;
        } else {
            eprintln!("switchboard-forwarder: {problem}");
        }
        result
    }

    /// Writes down whose tables there are. The key is nobody else's to read.
    pub(super) fn keep_crew(&self, crew: &Crew) -> io::Result<()> {
        whole_file::write(&self.directory.join(CREW), &serde_json::to_vec(crew)?)
    }

    /// Whose tables there are; nothing when there are none.
    fn crew_before(&self) -> Option<Crew> {
        let written = fs::read(self.directory.join(CREW)).ok();
        let written = written.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // Forwarders wrote no such file when they had but one worker.
        let one = Crew {
            workers: 1,
            ..self.crew
        };
        written.or(self.path_among::<Ipv4Key>(0, &one).exists().then_some(one))
    }

    /// Copies the entries of all tables before to the tables of their homes; returns how many found no room.
    fn deal<K: Family>(&self, before: &Crew, config: &Config, now: u32) -> io::Result<usize> {
        let mut old = Vec::new();
        for worker in 0..before.workers {
            let path = self.path_among::<K>(worker, before);
            if !path.exists() {
                continue;
            }
            match FlowTable::<K>::reopen(file(&path, false)?) {
                Ok(table) => old.push(table),
                Err(error) => eprintln!(
                    "switchboard-forwarder: {}: its connections choose again: {error}",
                    path.display()
                ),
            }
        }
        let timeouts = old
            .first()
            .map_or(config.timeouts, |table| table.config().timeouts);
        let config = Config {
            timeouts,
            ..*config
        };
        let homes = Homes::new(self.crew.key, self.crew.workers);
        let mut new = Vec::new();
        for worker in 0..self.crew.workers {
            let table = self.create(&self.path::<K>(worker), &config);
            new.push(table.map_err(io::Error::other)?);
        }
        Ok(old
            .iter_mut()
            .map(|table| deal_out(table, &mut new, &homes, now))
            .sum())
    }

    /// Removes files of other numbers of workers, and what was not finished.
    fn remove_others(&self) -> io::Result<()> {
        let mut own: Vec<PathBuf> = Vec::new();
        for worker in 0..self.crew.workers {
            own.extend([self.path::<Ipv4Key>(worker), self.path::<Ipv6Key>(worker)]);
        }
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let is_table = entry.file_name().to_string_lossy().starts_with("ipv");
            if is_table && !own.contains(&entry.path()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// Copies a table's entries; returns how many found no room.
fn deal_out<K: Family + FlowKey>(
    from: &mut FlowTable<K>,
    to: &mut [FlowTable<K>],
    homes: &Homes,
    now: u32,
) -> usize {
    let mut lost = 0;
    let scan = from.begin_scan();
    let everything = from.stats().buckets;
    while from.scan_step(&scan, everything, |visited| {
        let entry = visited.entry(now);
        let home = homes.of(&entry.key.tuple(Direction::Forward));
        lost += usize::from(to[home].import(&entry, now) == Insertion::Full);
        Verdict::Keep
    }) {}
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_files::Place;
    use flow::{Hops, Ipv4Table, state};
    use std::sync::Arc;

    const COUNT: u32 = 5_000;

    fn key(number: u32) -> Ipv4Key {
        Ipv4Key::new(3, 0x0a00_0000 + number, 0xc000_0201, 17, 4000, 53)
    }

    fn hops(number: u32) -> Hops {
        Hops {
            upstream: 1,
            downstream: (number % 50) as u16,
            opener: 0,
        }
    }

    fn open(
        directory: &std::path::Path,
        workers: usize,
        secret: u8,
    ) -> (Arc<FlowFiles>, Vec<Ipv4Table>) {
        let config = Config::new(8 << 20, [secret; 16]);
        let tables = (config, config);
        let (files, _) = FlowFiles::open(directory, workers, &tables, false, || 7).unwrap();
        let files = Arc::new(files);
        let table = |worker| {
            Place::Files(files.clone(), worker)
                .table(&config, 7)
                .unwrap()
        };
        let all = (0..workers).map(table).collect();
        (files, all)
    }

    fn tables_in(directory: &std::path::Path) -> usize {
        let names = fs::read_dir(directory).unwrap();
        let is_table = |entry: &io::Result<fs::DirEntry>| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("ipv4")
        };
        names.filter(is_table).count()
    }

    fn insert(table: &mut Ipv4Table, number: u32) {
        let seen = flow::Direction::Forward;
        let inserted = table.insert(&key(number), hops(number), state::SYN, seen, 7);
        assert!(matches!(inserted, Insertion::New(_)));
    }

    #[test]
    fn entries_follow_their_homes_when_the_number_of_workers_changes() {
        let name = format!("switchboard-deal-{}", std::process::id());
        let directory = PathBuf::from("/dev/shm").join(name);
        let (files, mut tables) = open(&directory, 1, 1);
        files.keep_names(&Default::default()).unwrap();
        for number in 0..COUNT {
            insert(&mut tables[0], number);
        }
        drop((files, tables));
        // The same number twice: the key stays, whatever secret the process has.
        for (workers, secret) in [(3, 2), (3, 3), (2, 4), (1, 5)] {
            let (files, tables) = open(&directory, workers, secret);
            let homes = Homes::new(files.key(), workers);
            for number in 0..COUNT {
                let key = key(number);
                let home = homes.of(&key.tuple(Direction::Forward));
                let found = tables[home]
                    .get(&key)
                    .expect("it is where it is looked for");
                assert_eq!(found.hops(), hops(number));
            }
            let all: usize = tables.iter().map(Ipv4Table::len).sum();
            assert_eq!(all, COUNT as usize, "{workers} workers");
            assert_eq!(tables_in(&directory), workers, "no table stays behind");
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn entries_follow_their_homes_when_the_last_process_left_another_key() {
        let name = format!("switchboard-deal-key-{}", std::process::id());
        let directory = PathBuf::from("/dev/shm").join(name);
        let (files, mut tables) = open(&directory, 3, 1);
        files.keep_names(&Default::default()).unwrap();
        // Nobody has a home yet: the key holds at once.
        let key = [7; 16];
        files.keep_keys(key, None).unwrap();
        let homes = Homes::new(key, 3);
        for number in 0..COUNT {
            let home = homes.of(&self::key(number).tuple(Direction::Forward));
            insert(&mut tables[home], number);
        }
        drop((files, tables));
        for (key, next_key) in [
            (key, None),
            (key, Some([8; 16])),
            ([8; 16], Some([9; 16])),
            ([9; 16], None),
        ] {
            let (files, tables) = open(&directory, 3, 2);
            assert_eq!(files.key(), key);
            let homes = Homes::new(key, 3);
            for number in 0..COUNT {
                let home = homes.of(&self::key(number).tuple(Direction::Forward));
                assert!(tables[home].get(&self::key(number)).is_some(), "{number}");
            }
            let all: usize = tables.iter().map(Ipv4Table::len).sum();
            assert_eq!(all, COUNT as usize);
            files.keep_keys(key, next_key).unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn homes_stay_where_another_key_finds_no_room() {
        let name = format!("switchboard-deal-room-{}", std::process::id());
        let directory = PathBuf::from("/dev/shm").join(name);
        let (files, mut tables) = open(&directory, 2, 1);
        files.keep_names(&Default::default()).unwrap();
        let homes = Homes::new(files.key(), 2);
        for number in 0..COUNT {
            let home = homes.of(&key(number).tuple(Direction::Forward));
            insert(&mut tables[home], number);
        }
        let key_before = files.key();
        files.keep_keys(key_before, Some([8; 16])).unwrap();
        drop((files, tables));
        // Room for some, and for none.
        for room in [64 << 10, 1] {
            let small = Config::new(room, [2; 16]);
            let opened = FlowFiles::open(&directory, 2, &(small, small), false, || 7);
            let (files, _) = opened.expect("the tables there are will do");
            assert_eq!(files.key(), key_before);
            assert_eq!(tables_in(&directory), 2, "no unfinished table stays behind");
        }
        // Another number of workers cannot do with them.
        let small = Config::new(1, [2; 16]);
        assert!(FlowFiles::open(&directory, 3, &(small, small), false, || 7).is_err());
        assert_eq!(tables_in(&directory), 2, "no unfinished table stays behind");
        let (files, tables) = open(&directory, 2, 3);
        assert_eq!(files.key(), [8; 16], "there is room again");
        let homes = Homes::new(files.key(), 2);
        for number in 0..COUNT {
            let home = homes.of(&key(number).tuple(Direction::Forward));
            let found = tables[home].get(&key(number)).expect("none is lost");
            assert_eq!(found.hops(), hops(number));
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn entries_follow_their_homes_when_the_function_changes() {
        let name = format!("switchboard-deal-function-{}", std::process::id());
        let directory = PathBuf::from("/dev/shm").join(name);
        let (files, mut tables) = open(&directory, 2, 1);
        files.keep_names(&Default::default()).unwrap();
        for number in 0..COUNT {
            // As a function may have had it that is no more.
            insert(&mut tables[(number / 3 % 2) as usize], number);
        }
        let key_before = files.key();
        let before = Crew {
            function: 0,
            ..files.crew
        };
        for worker in 0..2 {
            let old = files.path_among::<Ipv4Key>(worker, &before);
            fs::rename(files.path::<Ipv4Key>(worker), old).unwrap();
        }
        drop((files, tables));
        // What forwarders wrote that knew one function only.
        let written = serde_json::json!({"workers": 2, "key": key_before});
        fs::write(directory.join(CREW), written.to_string()).unwrap();
        for secret in [2, 3] {
            let (files, tables) = open(&directory, 2, secret);
            let homes = Homes::new(files.key(), 2);
            for number in 0..COUNT {
                let home = homes.of(&key(number).tuple(Direction::Forward));
                assert!(tables[home].get(&key(number)).is_some(), "{number}");
            }
            let all: usize = tables.iter().map(Ipv4Table::len).sum();
            assert_eq!(all, COUNT as usize);
            let old = files.path_among::<Ipv4Key>(0, &before);
            assert!(!old.exists(), "no table stays behind");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
