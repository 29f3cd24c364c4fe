//! A plain learning bridge, as a peer: what moving frames between two ports costs when nothing is done to them.

use std::collections::HashMap;
use wire::{MacAddress, ethernet};

/// Which port every address is behind.
#[derive(Default)]
pub struct Bridge {
    ports: HashMap<MacAddress, usize, foldhash::fast::FixedState>,
}

impl Bridge {
    /// One that knows these addresses behind a port.
    pub fn new(known: &[MacAddress], port: usize) -> Bridge {
        let mut bridge = Bridge::default();
        bridge.ports.extend(known.iter().map(|&mac| (mac, port)));
        bridge
    }

    /// The port that a frame from `port` leaves by; nothing for one that goes everywhere or nowhere. It remembers where the
    /// sender is.
    #[inline]
    pub fn port_of(&mut self, frame: &[u8], port: usize) -> Option<usize> {
        let header = ethernet::Header::parse(frame).ok()?;
        let known = self.ports.get_mut(&header.source);
        match known {
            Some(known) if *known == port => {}
            Some(known) => *known = port,
            None => {
                self.ports.insert(header.source, port);
            }
        }
        self.ports
            .get(&header.destination)
            .copied()
            .filter(|&to| to != port)
    }
}
