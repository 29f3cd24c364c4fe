//! Sends frames of random connections into the VNF's port and counts what comes back on the wide area's.

use super::{Helper, Wires, environment, obey};
use crate::frames::{Draw, Writer};
use crate::rules;
use dpdk::{Mbuf, Pool, Port, Queue};
use std::time::{Duration, Instant};
use wire::arp::{Arp, Operation};
use wire::{IpPacket, ethernet};

const BURST: usize = 64;
/// The role's name on the command line.
pub const ROLE: &str = "generate";

/// A generator in another process.
pub struct Generator(Helper);

impl Generator {
    /// Starts one whose ports have as many queues as the other side sends by: a link with fewer does not come up, and one that nobody
    /// has sends what the first does once more.
    pub fn start(wires: &Wires, core: usize, queues: u16) -> Result<Generator, String> {
        Helper::start(ROLE, wires, core, &[queues.to_string()]).map(Generator)
    }

    /// Sends packets of each of the connections.
    ///
    /// # Errors
    /// Nothing comes back.
    pub fn open(&mut self, flows: u32) -> Result<(), String> {
        let received = self.0.ask(&format!("open {flows}"))?[0];
        if received < 1.0 {
            return Err("no packet comes back".into());
        }
        Ok(())
    }

    /// Sends as fast as it can; how many million packets a second come back.
    pub fn measure(&mut self, flows: u32, round: Duration) -> Result<f64, String> {
        self.rate("measure", flows, round)
    }

    /// Sends a packet of each of the connections, and with `answers` of the opposite direction too, where nothing comes back.
    ///
    /// # Errors
    /// Nobody takes them.
    pub fn fill(&mut self, flows: u32, answers: bool) -> Result<(), String> {
        let taken = self.0.ask(&format!("fill {flows} {}", u8::from(answers)))?[0];
        if taken < f64::from(flows) {
            return Err(format!("only {taken} packets are taken"));
        }
        Ok(())
    }

    /// Sends as fast as the other side takes packets; how many million a second that is.
    pub fn offer(&mut self, flows: u32, round: Duration) -> Result<f64, String> {
        self.rate("offer", flows, round)
    }

    fn rate(&mut self, what: &str, flows: u32, round: Duration) -> Result<f64, String> {
        let numbers = self
            .0
            .ask(&format!("{what} {flows} {}", round.as_millis()))?;
        let [packets, seconds] = numbers[..] else {
            return Err("the generator's answer has two numbers".into());
        };
        Ok(packets / seconds / 1e6)
    }
}

/// The generator's own process.
pub fn run(directory: &str, core: &str, queues: &str) -> Result<(), String> {
    let queues: usize = queues
        .parse()
        .map_err(|error| format!("{queues}: {error}"))?;
    let environment = environment(core)?;
    let pool = Pool::new(&environment, "generator", 8_191, 2048 + 128, 1).ok_or("no memory")?;
    let wires = Wires::existing(directory);
    let open = |number: usize| {
        Port::open(&wires.server(number), &vec![pool; queues], 1024)
            .map_err(|error| error.to_string())
    };
    let (_wan_port, wan) = open(rules::WAN_PORT)?;
    let (_vnf_port, vnf) = open(rules::VNF_PORT)?;
    let mut ends = Ends {
        pool,
        wan,
        vnf,
        writer: Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC),
        draw: Draw::new(11),
        burst: Vec::with_capacity(2 * BURST),
        received: 0,
        sent: 0,
    };
    obey(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| {
            words
                .get(index)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0)
        };
        match words[0] {
            "open" => ends.open(number(1)).to_string(),
            "fill" => ends.fill(number(1), number(2) == 1).to_string(),
            "offer" => ends.offer(number(1), Duration::from_millis(number(2).into())),
            "measure" => ends.measure(number(1), Duration::from_millis(number(2).into())),
            _ => "0".to_string(),
        }
    });
    Ok(())
}

struct Ends {
    pool: Pool,
    wan: Vec<Queue>,
    vnf: Vec<Queue>,
    writer: Writer,
    draw: Draw,
    burst: Vec<Mbuf>,
    received: u64,
    sent: u64,
}

impl Ends {
    /// Sends a burst of frames as `frame` writes them.
    #[inline]
    fn send(&mut self, mut frame: impl FnMut(&Writer, &mut Draw) -> [u8; 64]) {
        for _ in 0..BURST {
            let Some(mut mbuf) = self.pool.allocate() else {
                break;
            };
            mbuf.set(&frame(&self.writer, &mut self.draw));
            self.burst.push(mbuf);
        }
        self.sent += self.vnf[0].send(&mut self.burst) as u64;
    }

    /// Counts what comes back; answers questions for the peer's address.
    #[inline]
    fn receive(&mut self) {
        for queue in &mut self.wan {
            queue.receive(&mut self.burst);
        }
        let mut answers = Vec::new();
        for frame in &self.burst {
            let bytes = frame.data();
            match bytes.get(12..14) {
                Some([0x08, 0x06]) => answers.extend(answer(bytes)),
                // IPv4 to the VXLAN port: the tunnel's packets, whatever else the other side says.
                Some([0x08, 0x00]) if bytes.get(36..38) == Some(&[0x12, 0xb5]) => {
                    self.received += 1
                }
                // A bridge hands frames on as they are.
                Some([0x08, 0x00]) if bytes.get(30..34) == Some(&[203, 0, 113, 9]) => {
                    self.received += 1;
                }
                _ => {}
            }
        }
        self.burst.clear();
        for bytes in answers {
            let mut buffer = self.pool.allocate();
            if buffer.as_mut().is_some_and(|mbuf| mbuf.set(&bytes)) {
                self.burst.extend(buffer);
            }
            self.wan[0].send(&mut self.burst);
        }
        // What is said to the VNF is of no interest.
        for queue in &mut self.vnf {
            queue.receive(&mut self.burst);
        }
        self.burst.clear();
    }

    fn receive_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.receive();
        }
    }

    /// Sends packets of every connection; returns how many came back.
    fn open(&mut self, flows: u32) -> u64 {
        // Links come up, addresses are asked for.
        for _ in 0..200 {
            let before = self.received;
            self.send(|writer, _| writer.frame(0));
            self.receive_for(Duration::from_millis(20));
            if self.received > before {
                break;
            }
        }
        self.received = 0;
        self.send_each(flows, false);
        // On a busy machine the other side gets its turn late.
        for _ in 0..100 {
            self.receive_for(Duration::from_millis(20));
            if self.received > 0 {
                break;
            }
        }
        self.received
    }

    /// Sends a packet of every connection, not too fast; twice, as the first ones may be lost.
    fn send_each(&mut self, flows: u32, answers: bool) {
        for reverse in [false, false, answers, answers] {
            let mut next = 0;
            while next < flows {
                self.send(|writer, _| {
                    let bytes = writer.frame(next.min(flows - 1));
                    next += 1;
                    if reverse { reversed(bytes) } else { bytes }
                });
                self.receive_for(Duration::from_micros(60));
            }
        }
    }

    /// The same where nothing comes back; returns how many were taken.
    fn fill(&mut self, flows: u32, answers: bool) -> u64 {
        // The link comes up, and addresses are learned.
        for _ in 0..50 {
            self.send(|writer, _| writer.frame(0));
            self.receive_for(Duration::from_millis(20));
        }
        self.sent = 0;
        self.send_each(flows, answers);
        self.sent
    }

    fn offer(&mut self, flows: u32, round: Duration) -> String {
        let warm = Instant::now() + round / 4;
        while Instant::now() < warm {
            self.send(|writer, draw| writer.frame(draw.below(flows)));
        }
        self.sent = 0;
        let start = Instant::now();
        while start.elapsed() < round {
            self.send(|writer, draw| writer.frame(draw.below(flows)));
        }
        format!("{} {}", self.sent, start.elapsed().as_secs_f64())
    }

    fn measure(&mut self, flows: u32, round: Duration) -> String {
        let warm = Instant::now() + round / 4;
        while Instant::now() < warm {
            self.send(|writer, draw| writer.frame(draw.below(flows)));
            self.receive();
        }
        self.received = 0;
        let start = Instant::now();
        while start.elapsed() < round {
            self.send(|writer, draw| writer.frame(draw.below(flows)));
            self.receive();
        }
        let seconds = start.elapsed().as_secs_f64();
        let received = self.received;
        self.receive_for(Duration::from_millis(5));
        format!("{received} {seconds}")
    }
}

/// The peer's answer to a question for its address.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let header = ethernet::Header::parse(question).ok()?;
    let arp = Arp::parse(&question[header.length..]).ok()?;
    let asked = arp.operation == Operation::Request && arp.target == rules::PEER_ADDRESS;
    asked.then(|| rules::answer(header.source))
}

/// A frame the other way: addresses and ports exchanged, which keeps the sum.
fn reversed(mut bytes: [u8; 64]) -> [u8; 64] {
    debug_assert!(IpPacket::parse(&bytes[14..]).is_ok());
    let (source, destination) = bytes[26..34].split_at_mut(4);
    source.swap_with_slice(destination);
    let (from, to) = bytes[34..38].split_at_mut(2);
    from.swap_with_slice(to);
    bytes
}
