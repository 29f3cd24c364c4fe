//! The same table, the obvious way.

use std::collections::HashMap;

use flow::{Direction, FlowKey, Hops, Side, State, Timeouts};

/// What the reference knows of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub hops: Hops,
    pub state: State,
    /// When its last packet came.
    pub seen: u32,
}

/// Connections by key, and when they may and must be gone.
pub struct Reference<K> {
    pub connections: HashMap<K, Connection>,
    pub timeouts: Timeouts,
}

/// What ageing is to do with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    MustStay,
    MayGo,
    MustGo,
}

impl<K: FlowKey> Reference<K> {
    pub fn new(timeouts: Timeouts) -> Self {
        Self {
            connections: HashMap::new(),
            timeouts,
        }
    }

    pub fn insert(&mut self, key: K, hops: Hops, tcp_flags: u8, direction: Direction, now: u32) {
        let state = State::first(key.protocol(), tcp_flags);
        let hops = Hops {
            opener: direction as u16,
            ..hops
        };
        self.connections.insert(
            key,
            Connection {
                hops,
                state,
                seen: now,
            },
        );
    }

    pub fn on_packet(&mut self, key: &K, tcp_flags: u8, direction: Direction, now: u32) -> State {
        let connection = self.connections.get_mut(key).expect("the table has it");
        let side = if direction as u16 == connection.hops.opener {
            Side::Opener
        } else {
            Side::Answerer
        };
        connection.state = connection.state.next(key.protocol(), tcp_flags, side);
        connection.seen = now;
        connection.state
    }

    /// Seconds in which an entry of this kind notices the passing of time: at most 1/31 of its idle time.
    pub fn grain(&self, key: &K, state: State) -> u32 {
        (self.timeouts.idle(key.protocol(), state) / 31)
            .next_power_of_two()
            .max(1)
    }

    /// What a sweep at `now` is to do with a connection.
    pub fn fate(&self, key: &K, now: u32) -> Fate {
        let connection = &self.connections[key];
        let idle = now.wrapping_sub(connection.seen);
        let timeout = self.timeouts.idle(key.protocol(), connection.state);
        let grain = self.grain(key, connection.state);
        if idle < timeout {
            Fate::MustStay
        } else if idle > timeout + 3 * grain && idle < 110 * (timeout / 62).max(1) {
            Fate::MustGo
        } else {
            Fate::MayGo
        }
    }
}
