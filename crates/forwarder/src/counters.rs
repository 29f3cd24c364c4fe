//! What happened to packets, counted by name.

use crate::registry::{HopId, PlaceId};
use std::collections::BTreeMap;
use wire::ParseError;
use wire::steering::Direction;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$each:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            /// Every one, in the order of its number.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// Why the forwarder, not a codec, dropped a packet.
    Drop {
        /// The port is of no use in the rules.
        PortUnused = "port_unused",
        /// A VLAN that no edge and no attachment has.
        VlanUnknown = "vlan_unknown",
        /// Two tags, where a VLAN is named by one.
        VlanNested = "vlan_nested",
        /// From an edge or a gateway attachment, for another host's Ethernet address.
        EthernetNotOurs = "ethernet_not_ours",
        /// On the underlay, but not for one of its addresses or not for the VXLAN port.
        UnderlayNotOurs = "underlay_not_ours",
        /// A tunnel packet from an address that is no peer's.
        TunnelUnknownPeer = "tunnel_unknown_peer",
        /// A service path that is not in the rules.
        PathUnknown = "path_unknown",
        /// A service index that is none of the path's, or a stage this forwarder takes no part in.
        StageUnknown = "stage_unknown",
        /// The packet has passed too many forwarders: the TTL of its chain label ran out.
        LoopGuard = "loop_guard",
        /// Labels or NSH from an edge port: only classifiers affix them.
        EdgeLabelled = "edge_labelled",
        /// No classifier matches.
        EdgeUnclassified = "edge_unclassified",
        /// A group or link-local packet from an edge.
        EdgeMulticast = "edge_multicast",
        /// An address that no packet between networks may have.
        EdgeMartian = "edge_martian",
        /// For the forwarder itself, and nothing it answers.
        EdgeToGateway = "edge_to_gateway",
        /// The chain has no egress for the destination.
        EgressUnrouted = "egress_unrouted",
        /// An edge has no next hop for the destination.
        EdgeNoNextHop = "edge_no_next_hop",
        /// From an interface that is no attachment's.
        AttachmentUnknown = "attachment_unknown",
        /// A group or link-local packet from a VNF.
        AttachmentMulticast = "attachment_multicast",
        /// A native packet filter does not let it pass.
        FilterRefused = "filter_refused",
        /// Neither IP nor anything else that is read from edges and VNFs.
        NotIp = "not_ip",
        /// Nobody to choose at the end of the stage.
        NoTarget = "no_target",
        /// The hop went away and there is nobody else.
        HopGone = "hop_gone",
        /// A later fragment whose first was not seen.
        FragmentWithoutFirst = "fragment_without_first",
        /// The next hop's Ethernet address is not known and nobody answers.
        NeighbourUnresolved = "neighbour_unresolved",
        /// The next hop's Ethernet address is not known, and its link has its share of packets and neighbours that wait.
        NeighbourCrowded = "neighbour_crowded",
        /// Too large for the next hop; answered where an answer is due.
        MtuExceeded = "mtu_exceeded",
        /// The TTL or hop limit ran out; answered.
        TtlExceeded = "ttl_exceeded",
        /// No headroom in the buffer for the headers.
        NoHeadroom = "no_headroom",
        /// The port did not take the packet.
        PortFull = "port_full",
        /// The port's receive queue was full: packets came faster than they were taken.
        PortOverrun = "port_overrun",
        /// No buffer was free for a received packet, an answer or a fragment.
        NoBuffer = "no_buffer",
        /// A frame that a buffer cannot hold.
        FrameTooLong = "frame_too_long",
        /// Checksums or segments were left to the port in a way that it does not know.
        OffloadUnknown = "offload_unknown",
        /// The worker that was to have the packet has too many on their way to it.
        HandoverFull = "handover_full",
    }
}

named! {
    /// What happened that is no drop.
    Event {
        /// A connection's choice was made.
        FlowNew = "flow_new",
        /// A connection's hop is of no use any more: it chose again.
        FlowRechosen = "flow_rechosen",
        /// A packet went back to the forwarder that it came from: there was nobody for it here.
        GivenBack = "given_back",
        /// A SYN used the ports of a connection that had ended: it was opened anew.
        FlowReopened = "flow_reopened",
        /// The hop a connection's packets come from changed.
        FlowHopMoved = "flow_hop_moved",
        /// The flow table is full: the choice was computed and not remembered.
        FlowTableFullHashed = "flow_table_full_hashed",
        /// A TCP connection that began before it was seen.
        FlowMidStream = "flow_mid_stream",
        /// A SYN's maximum segment size was lowered.
        MssClamped = "mss_clamped",
        /// An ARP request or neighbour solicitation was answered.
        NeighbourAnswered = "neighbour_answered",
        /// An ARP request or neighbour solicitation was sent.
        NeighbourAsked = "neighbour_asked",
        /// Another neighbour or router message was read.
        NeighbourHeard = "neighbour_heard",
        /// An echo request to one of our addresses was answered.
        EchoAnswered = "echo_answered",
        /// An ICMP error was sent.
        IcmpErrorSent = "icmp_error_sent",
        /// An ICMP error was due, and not sent: too many were sent there in this second.
        IcmpErrorLimited = "icmp_error_limited",
        /// A packet in fragments was forgotten before its time: its stage or edge had its share of them.
        FragmentForgotten = "fragment_forgotten",
        /// A packet was cut into fragments.
        Fragmented = "fragmented",
        /// A packet that its sender's system had left to be cut was cut into segments.
        Segmented = "segmented",
        /// A packet was kept until its next hop is known.
        NeighbourWait = "neighbour_wait",
        /// A packet went to the worker that its connection is at home with.
        HandedOver = "handed_over",
        /// A worker did not hear what a neighbour said: too much was on its way to it. It asks itself.
        NeighbourUntold = "neighbour_untold",
        /// A frame at an interface whose packets another forwarder of the site takes.
        TakenElsewhere = "taken_elsewhere",
    }
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A codec could not read it.
    Parse(ParseError),
    /// The forwarder would not have it.
    Drop(Drop),
}

impl From<ParseError> for Reason {
    fn from(error: ParseError) -> Reason {
        Reason::Parse(error)
    }
}

impl From<Drop> for Reason {
    fn from(drop: Drop) -> Reason {
        Reason::Drop(drop)
    }
}

impl Reason {
    /// The counter's name.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Parse(error) => error.name(),
            Reason::Drop(drop) => drop.name(),
        }
    }
}

/// The stage that a packet is at, and its direction.
pub type At = (PlaceId, Direction);

/// A packet that is dropped where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// At which stage, where it got that far.
    pub at: Option<At>,
}

impl<R: Into<Reason>> From<R> for Refused {
    fn from(reason: R) -> Refused {
        Refused {
            reason: reason.into(),
            at: None,
        }
    }
}

impl Refused {
    /// Says at which stage packets are refused.
    pub(crate) fn at<R: Into<Reason>>(at: At) -> impl FnOnce(R) -> Refused {
        move |reason| Refused {
            reason: reason.into(),
            at: Some(at),
        }
    }
}

/// Packets that passed a stage in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of the inner packets.
    pub bytes: u64,
    /// Packets that came from this site.
    pub origin_packets: u64,
    /// Their bytes.
    pub origin_bytes: u64,
    /// Connections that made their choice here.
    pub new_flows: u64,
}

/// Packets given to an attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopCount {
    /// Packets sent to it.
    pub packets: u64,
    /// Connections that chose it.
    pub new_flows: u64,
}

/// On lines of the cache that hold nothing else: workers' counters are made one after the other, and one worker that counts would
/// take the line from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Apart<T>(T);

/// Every counter of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    drops: [u64; Drop::ALL.len()],
    parse_errors: Vec<u64>,
    events: [u64; Event::ALL.len()],
    stages: Vec<Apart<[StageCount; 2]>>,
    hops: Vec<Apart<HopCount>>,
    /// Those of all drops whose stage is known: no more counters than stages, directions and reasons.
    stage_drops: BTreeMap<At, BTreeMap<Reason, u64>>,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            drops: [0; Drop::ALL.len()],
            parse_errors: vec![0; ParseError::ALL.len()],
            events: [0; Event::ALL.len()],
            stages: Vec::new(),
            hops: Vec::new(),
            stage_drops: BTreeMap::new(),
        }
    }
}

impl Counters {
    /// Makes room for as many places and hops as there are.
    pub fn reserve(&mut self, places: usize, hops: usize) {
        self.stages
            .resize(places.max(self.stages.len()), Default::default());
        self.hops
            .resize(hops.max(self.hops.len()), Default::default());
    }

    /// Counts a dropped packet.
    #[inline]
    pub fn drop(&mut self, reason: Reason) {
        match reason {
            Reason::Parse(error) => self.parse_errors[error as usize] += 1,
            Reason::Drop(drop) => self.drops[drop as usize] += 1,
        }
    }

    /// Counts a dropped packet, at its stage too where that is known.
    #[cold]
    pub fn drop_at(&mut self, reason: Reason, at: Option<At>) {
        self.drop(reason);
        if let Some(at) = at {
            let here = self.stage_drops.entry(at).or_default();
            *here.entry(reason).or_insert(0) += 1;
        }
    }

    /// Counts packets that were lost before they could be read.
    pub fn lost(&mut self, drop: Drop, packets: u64) {
        self.drops[drop as usize] += packets;
    }

    /// Counts what is no drop.
    #[inline]
    pub fn event(&mut self, event: Event) {
        self.events[event as usize] += 1;
    }

    /// Counts what is no drop, so many times.
    #[inline]
    pub fn events_add(&mut self, event: Event, count: u64) {
        self.events[event as usize] += count;
    }

    /// The counters of a stage.
    #[inline]
    pub fn stage(&mut self, place: PlaceId, direction: Direction) -> Option<&mut StageCount> {
        self.stages
            .get_mut(place.index())
            .map(|both| &mut both.0[direction as usize])
    }

    /// The counters of a hop.
    #[inline]
    pub fn hop(&mut self, hop: HopId) -> Option<&mut HopCount> {
        self.hops.get_mut(hop.index()).map(|hop| &mut hop.0)
    }

    /// Counts packets of a stage that go to a hop.
    #[inline]
    pub(crate) fn passed(
        &mut self,
        (place, direction): (PlaceId, Direction),
        hop: HopId,
        over_tunnel: bool,
        packets: u64,
        bytes: u64,
    ) {
        if let Some(stage) = self.stage(place, direction) {
            stage.packets += packets;
            stage.bytes += bytes;
            if !over_tunnel {
                stage.origin_packets += packets;
                stage.origin_bytes += bytes;
            }
        }
        if let Some(hop) = self.hop(hop) {
            hop.packets += packets;
        }
    }

    /// Adds another worker's counters.
    pub fn add(&mut self, other: &Counters) {
        let sum = |own: &mut [u64], other: &[u64]| {
            for (own, other) in own.iter_mut().zip(other) {
                *own += other;
            }
        };
        sum(&mut self.drops, &other.drops);
        sum(&mut self.parse_errors, &other.parse_errors);
        sum(&mut self.events, &other.events);
        self.reserve(other.stages.len(), other.hops.len());
        let stages = self.stages.iter_mut().flat_map(|both| &mut both.0);
        for (own, other) in stages.zip(other.stages.iter().flat_map(|both| &both.0)) {
            own.packets += other.packets;
            own.bytes += other.bytes;
            own.origin_packets += other.origin_packets;
            own.origin_bytes += other.origin_bytes;
            own.new_flows += other.new_flows;
        }
        for (&at, drops) in &other.stage_drops {
            let here = self.stage_drops.entry(at).or_default();
            for (&reason, count) in drops {
                *here.entry(reason).or_insert(0) += count;
            }
        }
        for (Apart(own), Apart(other)) in self.hops.iter_mut().zip(&other.hops) {
            own.packets += other.packets;
            own.new_flows += other.new_flows;
        }
    }

    /// What a stage's counters say, forward and reverse.
    pub fn stage_counts(&self, place: PlaceId) -> [StageCount; 2] {
        self.stages
            .get(place.index())
            .copied()
            .unwrap_or_default()
            .0
    }

    /// Packets dropped at a stage, by the reason's name.
    pub fn stage_drops(&self, at: At) -> impl Iterator<Item = (&'static str, u64)> {
        let here = self.stage_drops.get(&at).into_iter().flatten();
        here.map(|(reason, &count)| (reason.name(), count))
    }

    /// What a hop's counters say.
    pub fn hop_count(&self, hop: HopId) -> HopCount {
        self.hops.get(hop.index()).copied().unwrap_or_default().0
    }

    /// Drop counters that are not 0, by name.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let parse = ParseError::ALL
            .iter()
            .map(|error| (error.name(), self.parse_errors[*error as usize]));
        let own = Drop::ALL
            .iter()
            .map(|drop| (drop.name(), self.drops[*drop as usize]));
        parse.chain(own).filter(|&(_, count)| count > 0)
    }

    /// Packets dropped for any reason.
    pub fn drop_total(&self) -> u64 {
        self.drops().map(|(_, count)| count).sum()
    }

    /// Event counters that are not 0, by name.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Event::ALL
            .iter()
            .map(|event| (event.name(), self.events[*event as usize]));
        all.filter(|&(_, count)| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_counters_share_a_name() {
        let drops = Drop::ALL.iter().map(|drop| drop.name());
        let names: Vec<_> = drops
            .chain(ParseError::ALL.iter().map(|error| error.name()))
            .collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }

    #[test]
    fn every_counter_is_documented() {
        let page = include_str!("../../../docs/forwarding.md");
        let drops = Drop::ALL.iter().map(|drop| drop.name());
        for name in drops.chain(Event::ALL.iter().map(|event| event.name())) {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    #[test]
    fn a_dropped_packet_is_in_one_counter() {
        let mut counters = Counters::default();
        counters.drop(ParseError::ArpTruncated.into());
        counters.drop(Drop::LoopGuard.into());
        assert_eq!(
            counters.drops().collect::<Vec<_>>(),
            [("arp_truncated", 1), ("loop_guard", 1)]
        );
        assert_eq!(counters.drop_total(), 2);
    }
}
