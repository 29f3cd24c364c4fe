//! Ports, learned addresses and the lines between sites.

use crate::config::Config;
use crate::line::{Counters, Frame, Line, Nanoseconds};
use std::collections::HashMap;

/// Addresses remembered at most; a flood of forged ones forgets the others, no more.
const ADDRESS_LIMIT: usize = 65_536;

/// Free buffers kept for reuse.
const FREE_BUFFERS: usize = 4_096;

/// The network between the sites, without its sockets.
#[derive(Debug)]
pub struct Network {
    /// Site of each port.
    port_site: Vec<usize>,
    site_names: Vec<String>,
    /// Port behind which a source address was seen last.
    learned: HashMap<[u8; 6], usize>,
    /// Lines by (from site, to site).
    lines: Vec<Vec<Option<Line>>>,
    /// Frames between ports of one site, and the buffers they were in.
    at_once: Vec<Frame>,
    free: Vec<Vec<u8>>,
    /// Frames too short for an Ethernet header.
    pub dropped_truncated: u64,
    /// Frames for a site that no link leads to.
    pub dropped_no_link: u64,
}

impl Network {
    /// The network a configuration describes.
    pub fn new(config: &Config) -> Network {
        let mut site_names: Vec<String> = Vec::new();
        let mut site_of = |name: &str| match site_names.iter().position(|site| site == name) {
            Some(index) => index,
            None => {
                site_names.push(name.to_string());
                site_names.len() - 1
            }
        };
        let port_site: Vec<usize> = config
            .ports
            .iter()
            .map(|port| site_of(&port.site))
            .collect();
        let links: Vec<(usize, usize, &crate::config::Link)> = config
            .links
            .iter()
            .map(|link| (site_of(&link.from), site_of(&link.to), link))
            .collect();
        let count = site_names.len();
        let mut lines: Vec<Vec<Option<Line>>> = (0..count)
            .map(|_| (0..count).map(|_| None).collect())
            .collect();
        for (from, to, link) in links {
            for (a, b) in [(from, to), (to, from)] {
                lines[a][b] = Some(Line::new(
                    link.latency_ms,
                    link.rate_mbps,
                    link.queue_ms,
                    link.mtu,
                ));
            }
        }
        Network {
            port_site,
            site_names,
            learned: HashMap::new(),
            lines,
            at_once: Vec::new(),
            free: Vec::new(),
            dropped_truncated: 0,
            dropped_no_link: 0,
        }
    }

    /// Adds a port behind those there are. Nothing where its site is none of those the network began with.
    pub fn add_port(&mut self, site: &str) -> Option<usize> {
        let site = self.site_names.iter().position(|name| name == site)?;
        self.port_site.push(site);
        Some(self.port_site.len() - 1)
    }

    /// Takes a frame that arrived at a port.
    pub fn receive(&mut self, now: Nanoseconds, port: usize, bytes: &[u8]) {
        let Some((destination, source)) = addresses(bytes) else {
            self.dropped_truncated += 1;
            return;
        };
        self.learn(source, port);
        let known = (destination[0] & 1 == 0)
            .then(|| self.learned.get(&destination).copied())
            .flatten();
        match known {
            Some(out) if out == port => {}
            Some(out) => self.send(now, port, out, bytes),
            None => {
                for out in (0..self.port_site.len()).filter(|&out| out != port) {
                    self.send(now, port, out, bytes);
                }
            }
        }
    }

    fn learn(&mut self, source: [u8; 6], port: usize) {
        if source[0] & 1 == 1 {
            return;
        }
        if self.learned.len() >= ADDRESS_LIMIT && !self.learned.contains_key(&source) {
            self.learned.clear();
        }
        self.learned.insert(source, port);
    }

    fn send(&mut self, now: Nanoseconds, from: usize, to: usize, bytes: &[u8]) {
        let (from_site, to_site) = (self.port_site[from], self.port_site[to]);
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        if from_site == to_site {
            self.at_once.push(Frame {
                arrives: now,
                port: to,
                bytes: buffer,
            });
            return;
        }
        match &mut self.lines[from_site][to_site] {
            Some(line) => {
                if let Some(buffer) = line.push(now, to, buffer) {
                    self.recycle(buffer);
                }
            }
            None => {
                self.dropped_no_link += 1;
                self.recycle(buffer);
            }
        }
    }

    /// Gives a buffer back for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.free.len() < FREE_BUFFERS {
            self.free.push(buffer);
        }
    }

    /// Hands every frame that has arrived to `deliver`; it returns the buffer.
    pub fn deliver(
        &mut self,
        now: Nanoseconds,
        mut deliver: impl FnMut(usize, Vec<u8>) -> Option<Vec<u8>>,
    ) {
        let mut returned = Vec::new();
        for frame in self.at_once.drain(..) {
            returned.extend(deliver(frame.port, frame.bytes));
        }
        for line in self.lines.iter_mut().flatten().flatten() {
            while let Some(frame) = line.pop(now) {
                returned.extend(deliver(frame.port, frame.bytes));
            }
        }
        for buffer in returned {
            self.recycle(buffer);
        }
    }

    /// When the next frame arrives.
    pub fn next_arrival(&self) -> Option<Nanoseconds> {
        if !self.at_once.is_empty() {
            return Some(0);
        }
        self.lines
            .iter()
            .flatten()
            .flatten()
            .filter_map(Line::next_arrival)
            .min()
    }

    /// Counters of every line, as (from site, to site, counters).
    pub fn counters(&self) -> impl Iterator<Item = (&str, &str, Counters)> {
        self.lines.iter().enumerate().flat_map(move |(from, row)| {
            row.iter().enumerate().filter_map(move |(to, line)| {
                Some((
                    self.site_names[from].as_str(),
                    self.site_names[to].as_str(),
                    line.as_ref()?.counters,
                ))
            })
        })
    }
}

fn addresses(bytes: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let header = bytes.get(..14)?;
    Some((header[..6].try_into().ok()?, header[6..12].try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    fn network() -> Network {
        Network::new(&Config::parse(
            r#"{"ports":[{"site":"a","interface":"a0"},{"site":"a","interface":"a1"},{"site":"b","interface":"b0"},{"site":"c","interface":"c0"}],
               "links":[{"from":"a","to":"b","latency_ms":5,"rate_mbps":10000},{"from":"a","to":"c","latency_ms":9,"rate_mbps":10000}]}"#,
        )
        .unwrap())
    }

    fn frame(destination: u8, source: u8) -> Vec<u8> {
        let mut bytes = vec![0u8; 60];
        bytes[5] = destination;
        bytes[11] = source;
        if destination == 0xff {
            bytes[..6].fill(0xff);
        }
        bytes
    }

    fn delivered(network: &mut Network, now: Nanoseconds) -> Vec<usize> {
        let mut ports = Vec::new();
        network.deliver(now, |port, bytes| {
            ports.push(port);
            Some(bytes)
        });
        ports.sort();
        ports
    }

    #[test]
    fn broadcast_reaches_every_linked_site_after_its_latency() {
        let mut network = network();
        network.receive(0, 0, &frame(0xff, 1));
        assert_eq!(
            delivered(&mut network, 0),
            [1],
            "the other port of the site"
        );
        assert_eq!(delivered(&mut network, 6 * MS), [2]);
        assert_eq!(delivered(&mut network, 10 * MS), [3]);
    }

    #[test]
    fn a_learned_address_is_reached_alone() {
        let mut network = network();
        network.receive(0, 2, &frame(0xff, 2));
        delivered(&mut network, 100 * MS);
        network.receive(200 * MS, 0, &frame(2, 1));
        assert_eq!(network.next_arrival().unwrap() / MS, 205);
        assert_eq!(delivered(&mut network, 300 * MS), [2]);
    }

    #[test]
    fn sites_without_a_link_exchange_nothing() {
        let mut network = network();
        network.receive(0, 2, &frame(0xff, 2));
        assert_eq!(delivered(&mut network, 100 * MS), [0, 1]);
        assert_eq!(network.dropped_no_link, 1);
    }

    #[test]
    fn short_frames_are_counted() {
        let mut network = network();
        network.receive(0, 0, &[0; 13]);
        assert_eq!(network.dropped_truncated, 1);
        assert_eq!(network.next_arrival(), None);
    }

    #[test]
    fn forged_addresses_do_not_grow_memory() {
        let mut network = network();
        for source in 0..100_000u32 {
            let mut bytes = frame(9, 0);
            bytes[6..10].copy_from_slice(&(source << 1).to_le_bytes());
            bytes[6] &= 0xfe;
            network.receive(0, 0, &bytes);
            network.deliver(u64::MAX, |_, bytes| Some(bytes));
        }
        assert!(network.learned.len() <= ADDRESS_LIMIT);
    }
}
