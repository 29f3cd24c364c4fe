//! How network cards deal packets out: by a Toeplitz hash of addresses and ports, whose lowest bits choose from an indirection table.
//!
//! The hash puts together a part of the key for each bit that is set of addresses and ports: 32 bits of it, from that bit's position on (Microsoft,
//! "RSS hashing types": source address, destination address, source port, destination port). With one bit of the key set, bit n of the hash
//! from above is bit `position - n` of the packet's: the hash is a part of the packet, turned round.

use crate::entropy::PORT_BITS;
use crate::home::Homes;

/// What a card receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arriving {
    /// Packets of anybody's.
    Anything,
    /// Packets in tunnels, over one family of addresses or over both.
    Tunnels {
        /// Over IPv4.
        v4: bool,
        /// Over IPv6.
        v6: bool,
    },
}

/// What a card has to deal packets out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// Bytes of its hash's key.
    pub key_length: usize,
    /// Entries of its indirection table.
    pub entries: usize,
    /// Whether it can hash UDP's ports over IPv4.
    pub udp_v4: bool,
    /// The same over IPv6.
    pub udp_v6: bool,
}

/// How a card is to deal packets out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Key of its Toeplitz hash.
    pub key: Vec<u8>,
    /// The worker that each value of the hash's lowest bits means.
    pub workers: Vec<u16>,
}

/// The part of the key that repeats itself, so that both directions of a connection have one hash (Woo and Park, "Scalable TCP session
/// monitoring with symmetric receive-side scaling").
const SYMMETRIC: [u8; 2] = [0x6d, 0x5a];

/// How a card deals packets out; nothing where its hash does not reach so far.
///
/// Packets in tunnels go to their homes. The position that brings bit 13 of the outer source port, the first behind the two that are always
/// set, to the lowest bit of the hash brings the next ones above it, and over IPv4 nothing but that port to the lowest fourteen. The position for IPv6
/// lies behind all that IPv4 has. Where there are tunnels over both families, 14 bits of the source's interface identifier (2 to 15, mostly 0)
/// come over IPv6: where they are not 0, that peer's packets are dealt out evenly, and not to their homes.
///
/// Anything else goes evenly to all.
pub fn deal(homes: &Homes, arriving: Arriving, means: Means) -> Option<Deal> {
    match arriving {
        Arriving::Anything => Some(evenly(homes, means)),
        Arriving::Tunnels { v4, v6 } => by_source_port(homes, [v4, v6], means),
    }
}

fn evenly(homes: &Homes, means: Means) -> Deal {
    let workers = (0..means.entries).map(|entry| (entry % homes.workers()) as u16);
    Deal {
        key: SYMMETRIC
            .into_iter()
            .cycle()
            .take(means.key_length)
            .collect(),
        workers: workers.collect(),
    }
}

fn by_source_port(homes: &Homes, families: [bool; 2], means: Means) -> Option<Deal> {
    let bits = means.entries.checked_ilog2()?;
    if !means.entries.is_power_of_two() || bits > PORT_BITS {
        return None;
    }
    let mut key = vec![0; means.key_length];
    let each = [(2 * 32, means.udp_v4), (2 * 128, means.udp_v6)];
    for ((addresses, is_hashed), wanted) in each.into_iter().zip(families) {
        let position = (addresses + (u16::BITS - PORT_BITS) + 31) as usize;
        match key.get_mut(position / 8) {
            _ if !wanted => {}
            Some(byte) if is_hashed => *byte |= 0x80 >> (position % 8),
            _ => return None,
        }
    }
    let home = |entry: usize| homes.settle((entry as u32).reverse_bits()) as u16;
    Some(Deal {
        key,
        workers: (0..means.entries).map(home).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy;
    use wire::{mpls_in_udp, vxlan};

    /// The Toeplitz hash as cards work it out.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        (0..input.len() * 8)
            .filter(|&at| bit(input, at) == 1)
            .map(|at| (0..32).fold(0, |part, n| part << 1 | u32::from(bit(key, at + n))))
            .fold(0, |hash, part| hash ^ part)
    }

    #[test]
    fn the_hash_is_the_one_of_cards() {
        // The first two of "Verifying the RSS hash calculation" (Microsoft), of TCP over IPv4.
        let key: Vec<u8> = [
            0x6d5a_56da_255b_0ec2u64,
            0x4167_253d_43a3_8fb0,
            0xd0ca_2bcb_ae7b_30b4,
            0x77cb_2da3_8030_f20c,
            0x6a42_b73b_beac_01fa,
        ]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
        let input = |from: ([u8; 4], u16), to: ([u8; 4], u16)| {
            [from.0, to.0]
                .concat()
                .into_iter()
                .chain(from.1.to_be_bytes())
                .chain(to.1.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        let one = input(([66, 9, 149, 187], 2794), ([161, 142, 100, 80], 1766));
        assert_eq!(toeplitz(&key, &one), 0x51cc_c178);
        let two = input(([199, 92, 111, 2], 14230), ([65, 69, 140, 83], 4739));
        assert_eq!(toeplitz(&key, &two), 0xc626_b0ea);
    }

    const CARD: Means = Means {
        key_length: 40,
        entries: 128,
        udp_v4: true,
        udp_v6: true,
    };
    const V4: Arriving = Arriving::Tunnels {
        v4: true,
        v6: false,
    };
    const V6: Arriving = Arriving::Tunnels {
        v4: false,
        v6: true,
    };
    const BOTH: Arriving = Arriving::Tunnels { v4: true, v6: true };

    /// What a card hashes of a packet in a tunnel whose connection has an entropy.
    fn outer(addresses: Vec<u8>, entropy: u32) -> Vec<u8> {
        let mut input = addresses;
        input.extend(entropy::port_of(entropy).to_be_bytes());
        let ports = [vxlan::PORT, mpls_in_udp::PORT];
        input.extend(ports[entropy as usize >> 20 & 1].to_be_bytes());
        input
    }

    /// How many packets, one of each source port there can be, are dealt to their homes, and how many each worker gets.
    fn dealt(homes: &Homes, by: &Deal, addresses: impl Fn(u32) -> Vec<u8>) -> (usize, Vec<usize>) {
        let (mut at_home, mut each) = (0, vec![0; homes.workers()]);
        for number in 0..1u32 << PORT_BITS {
            let entropy = number << (u32::BITS - PORT_BITS);
            let word = number.wrapping_mul(0x9e37_79b9);
            let hash = toeplitz(&by.key, &outer(addresses(word), entropy));
            let worker = by.workers[hash as usize % by.workers.len()];
            at_home += usize::from(u32::from(worker) == homes.settle(entropy));
            each[usize::from(worker)] += 1;
        }
        (at_home, each)
    }

    #[test]
    fn a_card_deals_what_comes_out_of_tunnels_to_its_homes() {
        let all = 1 << PORT_BITS;
        for (workers, entries) in [(2, 64), (2, 128), (3, 128), (7, 512), (64, 512)] {
            let homes = Homes::new([7; 16], workers);
            let means = Means { entries, ..CARD };
            // Where a home ends within an entry, some of it are somebody else's.
            let split = match workers.is_power_of_two() {
                true => 0,
                false => workers * all / entries,
            };
            let v4 = |word: u32| word.to_be_bytes().repeat(2);
            let v6 = |word: u32| word.to_be_bytes().repeat(8);
            let v6_by_hand = |word: u32| {
                let address = [u128::from(word) << 80, 1 + u128::from(word % 9)];
                let address = address[0] | address[1];
                [address, !address].map(u128::to_be_bytes).concat()
            };
            let of = |arriving| deal(&homes, arriving, means).unwrap();
            let counts = [
                dealt(&homes, &of(V4), v4),
                dealt(&homes, &of(BOTH), v4),
                dealt(&homes, &of(V6), v6),
                dealt(&homes, &of(BOTH), v6_by_hand),
            ];
            for (number, (at_home, _)) in counts.into_iter().enumerate() {
                assert!(
                    at_home >= all - split,
                    "{number}, {workers} workers: {at_home}"
                );
            }
            // An address made by a machine: what it sends goes to all.
            let v6 = |_| [[0x5a; 16], [2; 16]].concat();
            let (_, each) = dealt(&homes, &of(BOTH), v6);
            let even = all / workers..=all / workers + 2 * all / entries;
            let is_even = |count: &usize| even.contains(&(count + all / entries));
            assert!(each.iter().all(is_even), "{workers} workers: {each:?}");
        }
    }

    #[test]
    fn a_card_that_receives_anything_deals_both_directions_to_one_of_all() {
        let homes = Homes::new([7; 16], 3);
        let by = deal(&homes, Arriving::Anything, CARD).unwrap();
        let mut each = [0; 3];
        for number in 0..4_096u32 {
            let word = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            let ends = [[10, word[0], word[1], word[2]], [192, 0, 2, 1]];
            let ports = [[word[3], 7], [1, 0xbb]];
            let worker = |one: usize, other: usize| {
                let input = [ends[one], ends[other]].concat();
                let input = [&input[..], &ports[one], &ports[other]].concat();
                by.workers[toeplitz(&by.key, &input) as usize % by.workers.len()]
            };
            assert_eq!(worker(0, 1), worker(1, 0));
            each[usize::from(worker(0, 1))] += 1;
        }
        assert!(each.iter().all(|&count| count > 1_200), "{each:?}");
    }

    #[test]
    fn a_card_that_cannot_is_left_as_it_is() {
        let homes = Homes::new([7; 16], 2);
        let cannot = |arriving, means| assert_eq!(deal(&homes, arriving, means), None);
        let of = |key_length, entries| Means {
            key_length,
            entries,
            ..CARD
        };
        cannot(V4, of(12, 128));
        cannot(V6, of(36, 128));
        cannot(BOTH, of(36, 128));
        cannot(V4, of(40, 0));
        cannot(V4, of(40, 96));
        cannot(
            BOTH,
            Means {
                udp_v6: false,
                ..CARD
            },
        );
        cannot(
            V4,
            Means {
                udp_v4: false,
                ..CARD
            },
        );
    }
}
