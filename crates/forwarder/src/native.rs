//! Functions in the forwarder's own process: a native attachment's ports are memory, and what goes out of one of them passes
//! the function and comes in at the other, like at a bump in the wire.
//!
//! Each worker has ends of its own, and both directions of a connection are at home with one worker. A function keeps no
//! state, so it does not matter which forwarder of a site runs it.

use crate::counters::Drop;
use crate::rules::{AttachmentHop, Hop, Matching, Rules, Side};
use flow::BURST;
use std::collections::VecDeque;
use wire::ethernet;
use wire::ip::{Fragmentation, IpPacket};
use wire::steering::Direction;

/// Frames that wait at an end at most.
const WAITING_LIMIT: usize = 4_096;

/// One end of native functions: a port's queue of frames that came out of them.
#[derive(Debug)]
pub struct End<F> {
    waiting: VecDeque<F>,
}

impl<F> Default for End<F> {
    fn default() -> Self {
        End {
            waiting: VecDeque::new(),
        }
    }
}

impl<F> End<F> {
    /// Receives a burst behind what is in `burst`; returns how many frames there were.
    #[inline]
    pub fn receive(&mut self, burst: &mut Vec<F>) -> usize {
        let count = self.waiting.len().min(BURST);
        burst.extend(self.waiting.drain(..count));
        count
    }

    /// Takes a frame that comes out here.
    ///
    /// # Errors
    /// Too many wait already.
    #[inline]
    pub fn put(&mut self, frame: F) -> Result<(), Drop> {
        if self.waiting.len() >= WAITING_LIMIT {
            return Err(Drop::PortFull);
        }
        self.waiting.push_back(frame);
        Ok(())
    }
}

/// What a native instance does at a place.
#[derive(Debug)]
pub enum Function {
    /// Passes or drops packets one by one.
    Filter(Filter),
}

/// A packet filter without state.
#[derive(Debug)]
pub struct Filter {
    /// The first that matches decides.
    pub rules: Vec<FilterRule>,
    /// Whether packets that none matches pass, forward and reverse.
    pub accept: [bool; 2],
}

/// One rule of a filter.
#[derive(Debug)]
pub struct FilterRule {
    /// Packets it speaks of, as they are.
    pub matching: Matching,
    /// Of this direction; of both where there is none.
    pub direction: Option<Direction>,
    /// Whether they pass.
    pub accept: bool,
}

impl Filter {
    /// Whether a packet passes. A later fragment shows no ports: it passes where the first one may have, because nobody can
    /// use it without that. An ICMP error is a packet of its own.
    pub fn passes(&self, packet: &IpPacket, direction: Direction) -> bool {
        let later = matches!(packet.fragmentation, Fragmentation::Later { .. });
        let decides = |rule: &&FilterRule| {
            let holds = match later {
                false => rule.matching.holds(&packet.tuple),
                true if rule.matching.has_ports() && !rule.accept => false,
                true => rule.matching.holds_without_ports(&packet.tuple),
            };
            holds && rule.direction.is_none_or(|only| only == direction)
        };
        match self.rules.iter().find(decides) {
            Some(rule) => rule.accept,
            None => self.accept[direction as usize],
        }
    }
}

/// Which port a frame comes in at that goes out of the native port `port`.
///
/// # Errors
/// The frame is none of the attachments' here, or the function drops it.
pub fn pass(rules: &Rules, port: usize, frame: &[u8]) -> Result<usize, Drop> {
    let header = ethernet::Header::parse(frame).map_err(|_| Drop::NotIp)?;
    let (attachment, side) = attachment(rules, port, header.vlan).ok_or(Drop::AttachmentUnknown)?;
    let packet = IpPacket::parse_as(header.ether_type, &frame[header.length..]);
    let packet = packet.map_err(|_| Drop::NotIp)?;
    let (direction, other) = match side {
        Side::Ingress => (Direction::Forward, attachment.egress_port),
        Side::Egress => (Direction::Reverse, attachment.ingress_port),
    };
    match &attachment.function {
        Some(Function::Filter(filter)) if filter.passes(&packet, direction) => Ok(other),
        Some(Function::Filter(_)) => Err(Drop::FilterRefused),
        None => Err(Drop::AttachmentUnknown),
    }
}

fn attachment(rules: &Rules, port: usize, vlan: u16) -> Option<(&AttachmentHop, Side)> {
    let &(hop, side) = rules.ports.get(port)?.transparent.get(&vlan)?;
    match rules.hop(hop)? {
        Hop::Attachment(attachment) => Some((attachment, side)),
        Hop::Edge(_) | Hop::Peer(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::matching;
    use contracts::forwarder::{Match, PortRange};
    use wire::checksum;
    use wire::ethernet::IPV4;

    const TCP: u8 = 6;

    /// An IPv4 packet from 10.0.0.1, of no options; `fragment` is its offset in units of eight bytes.
    fn packet(protocol: u8, port: u16, fragment: u16) -> IpPacket {
        let mut bytes = [0; 40];
        bytes[0] = 0x45;
        bytes[3] = 40;
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[8] = 64;
        bytes[9] = protocol;
        bytes[12..16].copy_from_slice(&[10, 0, 0, 1]);
        bytes[16..20].copy_from_slice(&[192, 0, 2, 1]);
        bytes[22..24].copy_from_slice(&port.to_be_bytes());
        bytes[32] = 5 << 4;
        let sum = checksum::finish(checksum::sum(&bytes[..20]));
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        IpPacket::parse_as(IPV4, &bytes).expect("it is right")
    }

    fn rule(matched: Match, direction: Option<Direction>, accept: bool) -> FilterRule {
        FilterRule {
            matching: matching("match", Some(&matched)).expect("it is right"),
            direction,
            accept,
        }
    }

    fn port(number: u32) -> Match {
        Match {
            protocols: vec![TCP.into()],
            destination_ports: vec![PortRange {
                first: number,
                last: number,
            }],
            ..Match::default()
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let from = Match {
            source_prefixes: vec!["10.0.0.0/8".into()],
            ..Match::default()
        };
        let filter = Filter {
            rules: vec![
                rule(port(22), None, false),
                rule(from, Some(Direction::Forward), true),
            ],
            accept: [false, false],
        };
        let passes = |port, direction| filter.passes(&packet(TCP, port, 0), direction);
        assert!(!passes(22, Direction::Forward), "the first says no");
        assert!(passes(80, Direction::Forward));
        assert!(!passes(80, Direction::Reverse), "no rule of this direction");
        let open = Filter {
            rules: Vec::new(),
            accept: [false, true],
        };
        assert!(!open.passes(&packet(TCP, 80, 0), Direction::Forward));
        assert!(open.passes(&packet(TCP, 80, 0), Direction::Reverse));
    }

    #[test]
    fn a_later_fragment_passes_where_its_first_may_have() {
        let filter = Filter {
            rules: vec![rule(port(22), None, false), rule(port(80), None, true)],
            accept: [false, false],
        };
        let passes = |packet| filter.passes(&packet, Direction::Forward);
        assert!(passes(packet(TCP, 80, 0)) && !passes(packet(TCP, 443, 0)));
        assert!(passes(packet(TCP, 0, 100)));
        assert!(!passes(packet(17, 0, 100)), "another protocol");
    }

    #[test]
    fn an_end_holds_frames_in_their_order_and_no_more_than_it_may() {
        let mut end = End::default();
        for number in 0..WAITING_LIMIT {
            assert_eq!(end.put(number), Ok(()));
        }
        assert_eq!(end.put(0), Err(Drop::PortFull));
        let mut burst = vec![7];
        assert_eq!(end.receive(&mut burst), BURST);
        assert_eq!(
            burst,
            (0..=BURST)
                .map(|n| if n == 0 { 7 } else { n - 1 })
                .collect::<Vec<_>>()
        );
        assert_eq!(end.put(0), Ok(()));
    }
}
