//! Following single connections without slowing others.

use crate::prefix::Prefix;
use crate::rules::{Matching, matching};
use contracts::forwarder as contract;
use flow::Ipv4Key;
use std::net::{IpAddr, Ipv4Addr};
use wire::FiveTuple;

/// Which packets are traced or captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    matching: Matching,
    both_directions: bool,
}

/// Bits that the addresses of IPv4 packets must have, in either order, for a trace to want them: few packets need a closer look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sieve {
    /// Source in the upper half, destination in the lower.
    mask: u64,
    bits: u64,
}

impl Sieve {
    const NOBODY: Sieve = Sieve { mask: 0, bits: 1 };
    const EVERYBODY: Sieve = Sieve { mask: 0, bits: 0 };

    /// Whether a packet between two addresses may be wanted. Always so if it is.
    #[inline(always)]
    pub(crate) fn lets_through(self, source: Ipv4Addr, destination: Ipv4Addr) -> bool {
        self.lets_both_through(u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits()))
    }

    /// The same of both addresses as they stand in a packet, one behind the other.
    #[inline(always)]
    pub(crate) fn lets_both_through(self, addresses: u64) -> bool {
        (addresses & self.mask == self.bits) | (addresses.rotate_left(32) & self.mask == self.bits)
    }

    /// Whether every packet may be wanted.
    #[inline(always)]
    pub(crate) fn lets_all_through(self) -> bool {
        self == Sieve::EVERYBODY
    }

    /// Whether any of some connections may be wanted. A loop without branches, which is compiled to vectors.
    #[inline(always)]
    pub(crate) fn lets_some_through(self, keys: &[Ipv4Key]) -> bool {
        let through = |key: &Ipv4Key| self.lets_through(key.source(), key.destination());
        keys.iter().fold(false, |some, key| some | through(key))
    }
}

/// A trace under way.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    filter: Filter,
    /// The filter's.
    sieve: Sieve,
    customer: String,
    chain: String,
    limit: usize,
    hops: Vec<contract::TraceHop>,
    probe: Option<Probe>,
}

/// Bytes of the mark that ends a probe.
pub const PROBE_LENGTH: usize = 16;

/// The one packet that a trace follows.
#[derive(Clone, Copy, Debug)]
struct Probe {
    mark: [u8; PROBE_LENGTH],
    /// It does not leave by an edge.
    hold: bool,
    /// The packet in hand is the probe.
    in_hand: bool,
}

impl Trace {
    /// A trace as requested; at most 10 000 decisions.
    ///
    /// # Errors
    /// Names the field of the match that is wrong.
    pub fn new(request: &contract::TraceRequest) -> Result<Trace, String> {
        let probe = match request.probe.as_slice() {
            [] => None,
            mark => Some(Probe {
                mark: mark
                    .try_into()
                    .map_err(|_| format!("probe: {} bytes; give {PROBE_LENGTH}", mark.len()))?,
                hold: request.hold,
                in_hand: false,
            }),
        };
        let filter = Filter::new(request.r#match.as_ref(), request.both_directions)?;
        Ok(Trace {
            probe,
            sieve: filter.sieve(),
            filter,
            customer: request.customer.clone(),
            chain: request.chain.clone(),
            limit: (request.limit as usize).clamp(1, 10_000),
            hops: Vec::new(),
        })
    }

    /// Whether a packet's decision is wanted.
    pub fn wants(&self, tuple: &FiveTuple) -> bool {
        self.hops.len() < self.limit
            && match &self.probe {
                Some(probe) => probe.in_hand,
                None => self.filter.matches(tuple),
            }
    }

    /// What IPv4 packets have in common that it wants.
    #[inline]
    pub(crate) fn sieve(&self) -> Sieve {
        let wants_some = match &self.probe {
            Some(probe) => probe.in_hand,
            None => true,
        };
        if self.hops.len() >= self.limit || !wants_some {
            return Sieve::NOBODY;
        }
        match &self.probe {
            Some(_) => Sieve::EVERYBODY,
            None => self.sieve,
        }
    }

    /// Whether it follows one probe only.
    pub fn follows_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Whether it follows the probe with this mark.
    pub fn is_of_probe(&self, mark: &[u8]) -> bool {
        self.probe.is_some_and(|probe| probe.mark == mark)
    }

    /// Whether a frame is the probe.
    pub fn is_probe(&self, frame: &[u8]) -> bool {
        self.probe.is_some_and(|probe| frame.ends_with(&probe.mark))
    }

    /// Whether the probe is kept from leaving by edges.
    pub fn holds_probe(&self) -> bool {
        self.probe.is_some_and(|probe| probe.hold)
    }

    /// Says whether the packets that come next are the probe.
    pub fn take_in_hand(&mut self, in_hand: bool) {
        if let Some(probe) = &mut self.probe {
            probe.in_hand = in_hand;
        }
    }

    /// How many decisions there are.
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// The last decision.
    pub fn last_hop(&mut self) -> Option<&mut contract::TraceHop> {
        self.hops.last_mut()
    }

    /// Whether packets of a chain are wanted.
    pub fn wants_chain(&self, customer: &str, chain: &str) -> bool {
        (self.customer.is_empty() || self.customer == customer)
            && (self.chain.is_empty() || self.chain == chain)
    }

    /// Adds a decision.
    pub fn add(&mut self, hop: contract::TraceHop) {
        self.hops.push(hop);
    }

    /// Whether it has all it wanted.
    pub fn is_full(&self) -> bool {
        self.hops.len() >= self.limit
    }

    /// How many decisions it wants.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The decisions, in order.
    pub fn into_hops(self) -> Vec<contract::TraceHop> {
        self.hops
    }
}

impl Filter {
    /// Packets as a match says, all without one; with `both_directions` also those the other way.
    ///
    /// # Errors
    /// Names the field of the match that is wrong.
    pub fn new(matched: Option<&contract::Match>, both_directions: bool) -> Result<Filter, String> {
        let matching = matching("match", matched).map_err(|error| error.to_string())?;
        Ok(Filter {
            matching,
            both_directions,
        })
    }

    /// Whether it lets every packet through.
    pub fn is_empty(&self) -> bool {
        self.matching.is_empty()
    }

    pub(crate) fn sieve(&self) -> Sieve {
        // Of several prefixes none is common to all.
        let half = |prefixes: &[Prefix]| match prefixes {
            [] => Some((0, 0)),
            prefixes => {
                let v4 = |prefix: &Prefix| match prefix.address() {
                    IpAddr::V4(address) => Some((address.to_bits(), prefix.length())),
                    IpAddr::V6(_) => None,
                };
                let mut v4 = prefixes.iter().filter_map(v4);
                let (bits, length) = v4.next()?;
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                Some(match v4.next() {
                    None => (mask, bits & mask),
                    Some(_) => (0, 0),
                })
            }
        };
        let [Some(source), Some(destination)] = self.matching.prefixes().map(half) else {
            return Sieve::NOBODY;
        };
        Sieve {
            mask: u64::from(source.0) << 32 | u64::from(destination.0),
            bits: u64::from(source.1) << 32 | u64::from(destination.1),
        }
    }

    /// Whether packets of a connection, as they show it, are let through.
    pub fn matches(&self, tuple: &FiveTuple) -> bool {
        self.matching.holds(tuple) || self.both_directions && self.matching.holds(&tuple.reversed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Addresses;

    fn trace(sources: &[&str], destinations: &[&str], both_directions: bool) -> Trace {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let request = contract::TraceRequest {
            r#match: Some(contract::Match {
                source_prefixes: texts(sources),
                destination_prefixes: texts(destinations),
                ..Default::default()
            }),
            both_directions,
            limit: 1,
            ..Default::default()
        };
        Trace::new(&request).expect("the request is right")
    }

    fn tuple(source: Ipv4Addr, destination: Ipv4Addr) -> FiveTuple {
        FiveTuple {
            addresses: Addresses::V4 {
                source: source.octets(),
                destination: destination.octets(),
            },
            protocol: 6,
            source_port: 1,
            destination_port: 2,
        }
    }

    #[test]
    fn the_sieve_lets_through_whatever_is_wanted() {
        let lists: [&[&str]; 6] = [
            &[],
            &["10.0.0.1/32"],
            &["10.0.0.0/31"],
            &["0.0.0.0/0"],
            &["10.0.0.1/32", "10.0.0.3/32"],
            &["2001:db8::/32"],
        ];
        let addresses = || (0..4).map(|last| Ipv4Addr::new(10, 0, 0, last));
        let mut kept_out = 0;
        for (sources, destinations) in lists.iter().flat_map(|a| lists.iter().map(move |b| (a, b)))
        {
            for both in [false, true] {
                let trace = trace(sources, destinations, both);
                for (source, destination) in
                    addresses().flat_map(|a| addresses().map(move |b| (a, b)))
                {
                    let tuple = tuple(source, destination);
                    let through = trace.sieve().lets_through(source, destination);
                    assert!(through || !trace.wants(&tuple), "{trace:?} {tuple}");
                    // Keys are in forward orientation, whichever way the packet goes.
                    assert!(
                        through || !trace.wants(&tuple.reversed()),
                        "{trace:?} {tuple}"
                    );
                    kept_out += usize::from(!through);
                }
            }
        }
        assert!(kept_out > 300, "{kept_out}");
    }

    #[test]
    fn a_filter_that_nothing_can_pass_is_refused_with_its_field() {
        let ports = |first, last| vec![contract::PortRange { first, last }];
        let wrong = [
            (
                "match.source_prefixes[1]: \"nonsense\" is no prefix",
                contract::Match {
                    source_prefixes: vec!["10.0.0.0/8".into(), "nonsense".into()],
                    ..Default::default()
                },
            ),
            (
                "match.protocols[0]: 300 is no IP protocol number",
                contract::Match {
                    protocols: vec![300],
                    ..Default::default()
                },
            ),
            (
                "match.source_ports[0]: 10 to 3 is no range of ports",
                contract::Match {
                    source_ports: ports(10, 3),
                    ..Default::default()
                },
            ),
            (
                "match.destination_ports[0]: 70000 to 80000 is no range of ports",
                contract::Match {
                    destination_ports: ports(70_000, 80_000),
                    ..Default::default()
                },
            ),
        ];
        for (problem, matched) in wrong {
            let error = Filter::new(Some(&matched), false).expect_err(problem);
            assert!(error.starts_with(problem), "{error}");
        }
    }

    #[test]
    fn a_trace_that_has_all_it_wanted_lets_nobody_through() {
        let mut trace = trace(&[], &[], false);
        let (source, destination) = (Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST);
        let tuple = tuple(source, destination);
        assert!(trace.sieve().lets_through(source, destination) && trace.wants(&tuple));
        trace.add(contract::TraceHop::default());
        assert!(!trace.sieve().lets_through(source, destination) && !trace.wants(&tuple));
    }
}
