//! Flow entries that leave for another forwarder of the site, and such as come from one.
//!
//! Small numbers mean something in one forwarder only, so pages name hops and places. What a sibling had and this forwarder has
//! not is behind the sibling; what the sibling thought to be here is what is here.

use crate::arrival::{EDGE_FORWARD, EDGE_REVERSE};
use crate::family::Family;
use crate::frame::Frame;
use crate::pipeline::Pipeline;
use crate::registry::{Exhausted, HopId, HopName, PlaceId, PlaceName, Registry};
use crate::rules::{Hop, Rules};
use contracts::forwarder as contract;
use contracts::forwarder::flow_hop::Hop as HopOfPage;
use contracts::forwarder::flow_place::Place as PlaceOfPage;
use flow::{
    FlowEntry, FlowKey, FlowTable, Hops, Insertion, Ipv4Key, Ipv6Key, Scan, State, Verdict,
};
use std::collections::HashMap;
use wire::steering::Direction;
use wire::{Addresses, FiveTuple};

/// Entries of a page, or a few more.
pub const PAGE: usize = 8192;
/// Buckets looked at for one command to a worker: packets wait for no more.
pub const STEP: usize = 512;

/// A flow entry of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Over IPv4.
    V4(FlowEntry<Ipv4Key>),
    /// Over IPv6.
    V6(FlowEntry<Ipv6Key>),
}

impl Entry {
    /// The connection, as forward packets show it.
    pub fn tuple(&self) -> FiveTuple {
        match self {
            Entry::V4(entry) => entry.key.tuple(Direction::Forward),
            Entry::V6(entry) => entry.key.tuple(Direction::Forward),
        }
    }

    /// Where it is.
    pub fn place(&self) -> PlaceId {
        self.parts().0
    }

    fn parts(&self) -> (PlaceId, Hops, State, u32) {
        match self {
            Entry::V4(entry) => (
                PlaceId(entry.key.path()),
                entry.hops,
                entry.state,
                entry.idle,
            ),
            Entry::V6(entry) => (
                PlaceId(entry.key.path()),
                entry.hops,
                entry.state,
                entry.idle,
            ),
        }
    }
}

/// A walk over all entries of a worker.
#[derive(Debug)]
pub(crate) struct Export {
    v4: Option<Scan>,
    v6: Option<Scan>,
    /// When it was last gone on with, in seconds.
    last: u32,
}

/// Seconds after which a walk that nobody goes on with ends: its asker is gone.
const ABANDONED: u32 = 60;

/// An entry of a sibling, in this forwarder's numbers.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// The entry, with [`Import::sibling`] for hops that are behind the sibling.
    pub entry: Entry,
    /// The sibling's number. Hops of an entry that is here already become the sibling's where they are this.
    pub sibling: HopId,
    /// Whether it may be added: otherwise one end of it is known here only.
    pub is_whole: bool,
    /// Whether it is an edge's, which has no hops.
    pub is_of_edge: bool,
}

/// What became of entries of a sibling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Added or changed.
    pub taken: u64,
    /// No room.
    pub refused: u64,
}

impl<F: Frame> Pipeline<F> {
    /// Goes on with a walk over all entries, or begins one, by so many buckets; returns what it met and whether there is more.
    /// `now` is in seconds.
    #[cold]
    pub fn export(&mut self, begin: bool, buckets: usize, now: u32) -> (Vec<Entry>, bool) {
        let under_way = self.exporting.take();
        let mut export = match under_way {
            Some(export) if !begin => export,
            left => {
                self.end_export(left);
                Export {
                    v4: Some(self.v4.begin_scan()),
                    v6: Some(self.v6.begin_scan()),
                    last: now,
                }
            }
        };
        export.last = now;
        let mut met = Vec::new();
        if export.v4.is_some() {
            walk(&mut self.v4, &mut export.v4, buckets, now, |entry| {
                met.push(Entry::V4(entry));
            });
        } else {
            walk(&mut self.v6, &mut export.v6, buckets, now, |entry| {
                met.push(Entry::V6(entry));
            });
        }
        let more = export.v4.is_some() || export.v6.is_some();
        self.exporting = more.then_some(export);
        (met, more)
    }

    fn end_export(&mut self, export: Option<Export>) {
        let (v4, v6) = export.map_or((None, None), |export| (export.v4, export.v6));
        v4.into_iter().for_each(|scan| self.v4.end_scan(scan));
        v6.into_iter().for_each(|scan| self.v6.end_scan(scan));
    }

    /// Ends a walk whose asker does not come back; entries come home no further while one stands still. `now` is in seconds.
    pub(crate) fn end_abandoned_export(&mut self, now: u32) {
        let is_abandoned = |export: &mut Export| now.saturating_sub(export.last) > ABANDONED;
        let abandoned = self.exporting.take_if(is_abandoned);
        self.end_export(abandoned);
    }

    /// Takes entries of a sibling. `now` is in seconds.
    #[cold]
    pub fn import(&mut self, rules: &Rules, entries: &[Import], now: u32) -> Imported {
        let mut sum = Imported::default();
        for import in entries {
            match &import.entry {
                Entry::V4(entry) => self.import_one(rules, entry, import, now, &mut sum),
                Entry::V6(entry) => self.import_one(rules, entry, import, now, &mut sum),
            }
        }
        self.flow_moves += 1;
        sum
    }

    fn import_one<K: Family>(
        &mut self,
        rules: &Rules,
        entry: &FlowEntry<K>,
        import: &Import,
        now: u32,
        sum: &mut Imported,
    ) {
        let table = K::table_mut(self);
        let Some(found) = table.get(&entry.key) else {
            if import.is_whole {
                match table.import(entry, now) {
                    Insertion::Full => sum.refused += 1,
                    _ => sum.taken += 1,
                }
            }
            return;
        };
        if import.is_of_edge {
            return;
        }
        let sibling = import.sibling.0;
        let is_old = import.is_whole && self.is_older(rules, entry, found.hops(), now);
        let merge = |own: u16, theirs: u16| match is_old || own == sibling {
            true => theirs,
            false => own,
        };
        let hops = Hops {
            upstream: merge(found.hops().upstream, entry.hops.upstream),
            downstream: merge(found.hops().downstream, entry.hops.downstream),
            opener: found.hops().opener,
        };
        if hops != found.hops() {
            K::table_mut(self).update(found.position, hops);
            sum.taken += 1;
        }
    }

    /// Whether the entry that is here is left from another way that its connection took before: a hop of it is of no use any more, or
    /// packets have passed the sibling since.
    fn is_older<K: Family>(
        &self,
        rules: &Rules,
        theirs: &FlowEntry<K>,
        own: Hops,
        now: u32,
    ) -> bool {
        let stage = rules.stage(PlaceId(theirs.key.path()));
        let is_of_use = |hop, direction| {
            let exit = self.exits.get(HopId(hop), direction);
            let is_usable = exit.is_some_and(|exit| exit.is_usable);
            is_usable
                && !stage.is_some_and(|stage| stage.end(direction).withdraws(rules, HopId(hop)))
        };
        let entry = K::table(self).entry(&theirs.key, now);
        !is_of_use(own.upstream, Direction::Reverse)
            || !is_of_use(own.downstream, Direction::Forward)
            || entry.is_some_and(|own| theirs.idle < own.idle)
    }
}

fn walk<K: FlowKey>(
    table: &mut FlowTable<K>,
    scan: &mut Option<Scan>,
    buckets: usize,
    now: u32,
    mut meet: impl FnMut(FlowEntry<K>),
) {
    let Some(open) = scan else { return };
    let more = table.scan_step(open, buckets, |visited| {
        meet(visited.entry(now));
        Verdict::Keep
    });
    if !more {
        *scan = None;
    }
}

/// Puts entries in a page.
pub fn page(entries: &[Entry], registry: &Registry, more: bool) -> contract::FlowPage {
    let mut writer = Writer {
        names: registry.names(),
        page: contract::FlowPage {
            more,
            ..Default::default()
        },
        hops: HashMap::new(),
        places: HashMap::new(),
    };
    for entry in entries {
        if let Some(record) = writer.record(entry) {
            writer.page.flows.push(record);
        }
    }
    writer.page
}

struct Writer<'a> {
    names: (Vec<Option<&'a HopName>>, Vec<Option<&'a PlaceName>>),
    page: contract::FlowPage,
    hops: HashMap<HopId, u32>,
    places: HashMap<PlaceId, u32>,
}

impl Writer<'_> {
    fn record(&mut self, entry: &Entry) -> Option<contract::FlowRecord> {
        let (place, hops, state, idle) = entry.parts();
        let (upstream, downstream) = match (*self.names.1.get(place.index())?)? {
            PlaceName::Stage { .. } => (
                self.hop(HopId(hops.upstream))?,
                self.hop(HopId(hops.downstream))?,
            ),
            PlaceName::Edge(_) => (
                self.place(PlaceId(hops.upstream))?,
                match hops.downstream {
                    EDGE_FORWARD => contract::Direction::Forward as u32,
                    _ => contract::Direction::Reverse as u32,
                },
            ),
        };
        let tuple = entry.tuple();
        let (source, destination) = match tuple.addresses {
            Addresses::V4 {
                source,
                destination,
            } => (source.to_vec(), destination.to_vec()),
            Addresses::V6 {
                source,
                destination,
            } => (source.to_vec(), destination.to_vec()),
        };
        Some(contract::FlowRecord {
            place: self.place(place)?,
            upstream,
            downstream,
            source,
            destination,
            protocol: tuple.protocol.into(),
            source_port: tuple.source_port.into(),
            destination_port: tuple.destination_port.into(),
            state: state as u32,
            opened_in_reverse: hops.opener == flow::Direction::Reverse as u16,
            idle,
        })
    }

    fn hop(&mut self, id: HopId) -> Option<u32> {
        let name = (*self.names.0.get(id.index())?)?;
        let hops = &mut self.page.hops;
        Some(*self.hops.entry(id).or_insert_with(|| {
            let hop = match name.clone() {
                HopName::Attachment(id) => HopOfPage::Attachment(id),
                HopName::Edge(id) => HopOfPage::Edge(id),
                HopName::Peer(id) => HopOfPage::Peer(id),
            };
            hops.push(contract::FlowHop { hop: Some(hop) });
            hops.len() as u32 - 1
        }))
    }

    fn place(&mut self, id: PlaceId) -> Option<u32> {
        let name = (*self.names.1.get(id.index())?)?;
        let places = &mut self.page.places;
        Some(*self.places.entry(id).or_insert_with(|| {
            let place = match name.clone() {
                PlaceName::Stage {
                    chain,
                    egress,
                    stage,
                } => PlaceOfPage::Stage(contract::FlowStage {
                    chain_label: chain,
                    egress_label: egress,
                    stage,
                }),
                PlaceName::Edge(id) => PlaceOfPage::Edge(id),
            };
            places.push(contract::FlowPlace { place: Some(place) });
            places.len() as u32 - 1
        }))
    }
}

/// What a name of a page means here.
#[derive(Clone, Copy)]
enum Meaning {
    /// An attachment or an edge of this forwarder.
    Here(HopId),
    /// Another forwarder, or behind the sibling.
    Elsewhere(HopId),
    /// This forwarder: what is behind it the sibling does not know.
    Own,
}

/// Reads a page of a sibling. Entries none of whose ends is here are left out. `own` is this forwarder's id as a peer.
///
/// # Errors
/// Names the field that is wrong.
pub fn read(
    request: &contract::ImportFlowsRequest,
    own: &str,
    rules: &Rules,
    registry: &mut Registry,
) -> Result<Vec<Import>, String> {
    if request.from.is_empty() || request.from == own {
        return Err(format!(
            "from: {:?} is no sibling of this forwarder",
            request.from
        ));
    }
    let Some(page) = &request.page else {
        return Ok(Vec::new());
    };
    let full =
        |_: Exhausted| "this forwarder has seen 65 535 hops or stages; restart it".to_string();
    let sibling = registry
        .hop(HopName::Peer(request.from.clone()))
        .map_err(full)?;
    let mut hops = Vec::new();
    for (index, hop) in page.hops.iter().enumerate() {
        let field = format!("page.hops[{index}]");
        hops.push(meaning(&field, hop, own, sibling, rules, registry)?);
    }
    let mut places = Vec::new();
    for (index, place) in page.places.iter().enumerate() {
        let name = match place.place.clone() {
            Some(PlaceOfPage::Stage(stage)) => PlaceName::Stage {
                chain: stage.chain_label,
                egress: stage.egress_label,
                stage: stage.stage,
            },
            Some(PlaceOfPage::Edge(id)) => PlaceName::Edge(id),
            None => return Err(format!("page.places[{index}]: name a stage or an edge")),
        };
        let is_edge_here = match &name {
            PlaceName::Edge(id) => {
                let hop = registry.hop(HopName::Edge(id.clone())).map_err(full)?;
                Some(matches!(rules.hop(hop), Some(Hop::Edge(_))))
            }
            PlaceName::Stage { .. } => None,
        };
        places.push((registry.place(name).map_err(full)?, is_edge_here));
    }
    let mut imports = Vec::new();
    for (index, record) in page.flows.iter().enumerate() {
        let wrong = |what: &str| format!("page.flows[{index}].{what}");
        let at = |position: u32, what: &str| {
            let found = places.get(position as usize).copied();
            found.ok_or_else(|| wrong(what) + ": there is no such place")
        };
        let (place, is_edge_here) = at(record.place, "place")?;
        let hop = |position: u32, what: &str| {
            let found = hops.get(position as usize).copied();
            found.ok_or_else(|| wrong(what) + ": there is no such hop")
        };
        let (ends, is_whole) = match is_edge_here {
            Some(false) => continue,
            Some(true) => {
                let reverse = contract::Direction::Reverse as u32;
                let direction = match record.downstream {
                    direction if direction == reverse => EDGE_REVERSE,
                    _ => EDGE_FORWARD,
                };
                ((at(record.upstream, "upstream")?.0.0, direction), true)
            }
            None => {
                let up = hop(record.upstream, "upstream")?;
                let down = hop(record.downstream, "downstream")?;
                let any_here = [up, down].iter().any(|end| matches!(end, Meaning::Here(_)));
                if !any_here {
                    continue;
                }
                let whole = ![up, down].iter().any(|end| matches!(end, Meaning::Own));
                ((number(up, sibling), number(down, sibling)), whole)
            }
        };
        let entry = entry(place, ends, record).map_err(wrong)?;
        imports.push(Import {
            entry,
            sibling,
            is_whole,
            is_of_edge: is_edge_here.is_some(),
        });
    }
    Ok(imports)
}

fn meaning(
    field: &str,
    hop: &contract::FlowHop,
    own: &str,
    sibling: HopId,
    rules: &Rules,
    registry: &mut Registry,
) -> Result<Meaning, String> {
    let name = match hop.hop.clone() {
        Some(HopOfPage::Attachment(id)) => HopName::Attachment(id),
        Some(HopOfPage::Edge(id)) => HopName::Edge(id),
        Some(HopOfPage::Peer(id)) if id == own => return Ok(Meaning::Own),
        Some(HopOfPage::Peer(id)) => HopName::Peer(id),
        None => return Err(format!("{field}: name an attachment, an edge or a peer")),
    };
    let is_peer = matches!(name, HopName::Peer(_));
    let id = registry
        .hop(name)
        .map_err(|_| format!("{field}: this forwarder has seen 65 535 hops; restart it"))?;
    Ok(match rules.hop(id) {
        Some(Hop::Attachment(_) | Hop::Edge(_)) => Meaning::Here(id),
        _ if is_peer => Meaning::Elsewhere(id),
        // What the sibling has and this forwarder has not.
        _ => Meaning::Elsewhere(sibling),
    })
}

fn number(meaning: Meaning, sibling: HopId) -> u16 {
    match meaning {
        Meaning::Here(id) | Meaning::Elsewhere(id) => id.0,
        // It stays as it is here.
        Meaning::Own => sibling.0,
    }
}

fn entry(
    place: PlaceId,
    (upstream, downstream): (u16, u16),
    record: &contract::FlowRecord,
) -> Result<Entry, &'static str> {
    let port = |port: u32, what| u16::try_from(port).map_err(|_| what);
    let protocol =
        u8::try_from(record.protocol).map_err(|_| "protocol: a number up to 255 is wanted")?;
    let source_port = port(
        record.source_port,
        "source_port: a number up to 65535 is wanted",
    )?;
    let destination_port = port(
        record.destination_port,
        "destination_port: a number up to 65535 is wanted",
    )?;
    let state = State::ALL
        .get(record.state as usize)
        .copied()
        .ok_or("state: a number up to 7 is wanted")?;
    let hops = Hops {
        upstream,
        downstream,
        opener: record.opened_in_reverse.into(),
    };
    let idle = record.idle;
    if let (Ok(source), Ok(destination)) = (
        <[u8; 4]>::try_from(&record.source[..]),
        <[u8; 4]>::try_from(&record.destination[..]),
    ) {
        let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
        return Ok(Entry::V4(FlowEntry {
            key: Ipv4Key::new(
                place.0,
                source,
                destination,
                protocol,
                source_port,
                destination_port,
            ),
            hops,
            state,
            idle,
        }));
    }
    let address = |bytes: &[u8], what| {
        let bytes = <[u8; 16]>::try_from(bytes).map_err(|_| what);
        bytes.map(u128::from_be_bytes)
    };
    Ok(Entry::V6(FlowEntry {
        key: Ipv6Key::new(
            place.0,
            address(
                &record.source,
                "source: 4 or 16 bytes are wanted, as of the destination",
            )?,
            address(
                &record.destination,
                "destination: 4 or 16 bytes are wanted, as of the source",
            )?,
            protocol,
            source_port,
            destination_port,
        ),
        hops,
        state,
        idle,
    }))
}
