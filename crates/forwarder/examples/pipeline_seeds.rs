//! Seeds for fuzzing the pipeline, and several workers that hand frames over: for every rule set of the corpus frames that pass, and packets of
//! captures at edges and in tunnels.
//!
//! ```text
//! pipeline_seeds DIRECTORY_OF_CORPORA [DIRECTORY_OF_CAPTURES]
//! ```

#[path = "../../wire/tests/support/capture.rs"]
#[allow(dead_code, reason = "captures are only read here")]
mod capture;
#[path = "../tests/promises/frames.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod frames;
#[path = "../tests/pipeline_checks/mod.rs"]
#[allow(dead_code, reason = "nothing is checked here")]
mod pipeline_checks;
#[path = "../tests/promises/plan.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod plan;

use capture::Capture;
use contracts::forwarder::RuleSet;
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use pipeline_checks::{
    PLATFORMS, SITES, frame_step, port_mac, rule_set, segments_step, watch_step,
};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};
use wire::arp::{Arp, Operation};
use wire::segments::Segments;
use wire::steering::{Direction, Encoding, LOOP_GUARD, SteeringContext, TunnelTemplate};
use wire::{Label, MacAddress, ServiceIndex, Vni, ethernet, tcp};

/// Frames of one capture, and bytes of each, at most.
const FRAMES: usize = 12;
const LENGTH: usize = 400;
/// Bytes of payload of a segment, and arrivals of one seed that are of segments.
const SEGMENT: u16 = 200;
const CUT: usize = 15;
const HOST: MacAddress = MacAddress([4, 0, 0, 0, 0, 1]);

/// A site's rules, and frames that it may get.
struct Site {
    set: RuleSet,
    rules: Rules,
    head: [u8; 2],
}

impl Site {
    fn port(&self, name: &str) -> usize {
        let found = self.set.ports.iter().position(|port| port.name == name);
        found.expect("a port of the rules")
    }

    /// Neighbours tell their addresses: what is sent to them leaves at once.
    fn neighbours(&self) -> Vec<Vec<u8>> {
        let mut steps = Vec::new();
        for edge in &self.set.edges {
            let port = self.port(&edge.port);
            for gateway in edge
                .gateway_addresses
                .iter()
                .filter(|text| text.contains('.'))
            {
                let own = address(gateway);
                let host = [own[0], own[1], own[2], 9];
                steps.push(frame_step(
                    port,
                    false,
                    &arp(port, edge.vlan as u16, host, own),
                ));
            }
        }
        if let Some(underlay) = &self.set.underlay {
            let port = self.port(&underlay.port);
            for peer in self
                .set
                .peers
                .iter()
                .filter(|peer| peer.address.contains('.'))
            {
                let own = address(&underlay.addresses[0]);
                steps.push(frame_step(
                    port,
                    false,
                    &arp(port, 0, address(&peer.address), own),
                ));
            }
        }
        steps
    }

    /// The ways a packet may come in: from hosts, from VNFs, over tunnels.
    fn arrivals(&self, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut steps = Vec::new();
        let mut offer = |port: usize, source: MacAddress, vlan: u32| {
            let frame = frames::frame(port_mac(port), source, vlan as u16, packet);
            steps.push(frame_step(port, false, &frame));
        };
        for edge in &self.set.edges {
            offer(self.port(&edge.port), HOST, edge.vlan);
        }
        for attachment in &self.set.attachments {
            let sides = [
                (
                    &attachment.ingress_port,
                    &attachment.ingress_mac,
                    attachment.ingress_vlan,
                ),
                (
                    &attachment.egress_port,
                    &attachment.egress_mac,
                    attachment.egress_vlan,
                ),
            ];
            for (port, mac, vlan) in sides {
                let mac = mac.as_slice().try_into().map_or(HOST, MacAddress);
                offer(self.port(port), mac, vlan);
            }
        }
        steps.extend(self.tunnelled(packet));
        steps
    }

    /// Where a packet may be on the service paths.
    fn contexts(&self) -> Vec<SteeringContext> {
        let mut contexts = Vec::new();
        for path in &self.set.paths {
            let labels = (Label::new(path.chain_label), Label::new(path.egress_label));
            let (Some(chain), Some(egress)) = labels else {
                continue;
            };
            for passed in 0..=path.vnf_count as u8 {
                for direction in [Direction::Forward, Direction::Reverse] {
                    contexts.push(SteeringContext {
                        chain,
                        direction,
                        egress,
                        service_index: ServiceIndex::new(255 - passed),
                        loop_guard: LOOP_GUARD,
                    });
                }
            }
        }
        contexts
    }

    /// The packet in tunnels from every peer, in every encoding, at every stage of every path, in both directions; and with
    /// labels from VNFs that know them.
    fn tunnelled(&self, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut steps = Vec::new();
        for context in self.contexts() {
            for attachment in &self.set.attachments {
                let Ok(mac) = attachment.ingress_mac.as_slice().try_into().map(MacAddress) else {
                    continue;
                };
                let port = self.port(&attachment.ingress_port);
                let mut frame = vec![0; ethernet::HEADER_LENGTH];
                ethernet::Header::write(&mut frame, port_mac(port), mac, 0, ethernet::MPLS);
                frame.extend(context.to_labels());
                frame.extend_from_slice(packet);
                steps.push(frame_step(port, false, &frame));
            }
            for encoding in [
                Encoding::VxlanMpls,
                Encoding::MplsInUdp,
                Encoding::VxlanGpeNsh,
            ] {
                steps.extend(self.in_tunnel(encoding, &context, packet));
            }
        }
        steps
    }

    fn in_tunnel(
        &self,
        encoding: Encoding,
        context: &SteeringContext,
        packet: &[u8],
    ) -> Option<Vec<u8>> {
        let underlay = self.set.underlay.as_ref()?;
        let port = self.port(&underlay.port);
        let own = underlay.addresses[0].split('/').next()?.parse().ok()?;
        let peer = self.set.peers.first()?.address.parse().ok()?;
        let macs = (HOST, port_mac(port));
        let network = Vni::new(underlay.vni)?;
        let template = TunnelTemplate::with_encoding(encoding, macs, (peer, own), network)?;
        let mut frame = vec![0; template.length()];
        frame.extend_from_slice(packet);
        template
            .encapsulate(&mut frame, 50_000, context, &self.rules)
            .ok()?;
        Some(frame_step(port, false, &frame))
    }
}

fn address(text: &str) -> [u8; 4] {
    let text = text.split('/').next().unwrap_or_default();
    text.parse::<std::net::Ipv4Addr>().expect("IPv4").octets()
}

/// A neighbour's question for one of our addresses, which tells its own.
fn arp(port: usize, vlan: u16, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let question = Arp {
        operation: Operation::Request,
        sender_mac: HOST,
        sender,
        target_mac: MacAddress::default(),
        target,
    };
    let mut bytes = vec![0; 18];
    let length = ethernet::Header::write(&mut bytes, port_mac(port), HOST, vlan, ethernet::ARP);
    bytes.truncate(length);
    bytes.extend(question.to_bytes());
    bytes
}

/// Packets of connections between the platforms' networks.
fn packets() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (source, destination) in [
        ("10.1.0.9", "10.2.0.9"),
        ("10.2.0.9", "10.1.0.9"),
        ("10.3.0.9", "10.4.0.9"),
        ("2001:db8:1::9", "2001:db8:2::9"),
    ] {
        for (protocol, flags) in [
            (tcp::PROTOCOL, tcp::SYN),
            (tcp::PROTOCOL, tcp::FIN),
            (17, 0),
            (132, 0),
        ] {
            let tuple = frames::tuple(source, 4000, destination, 80, protocol);
            let whole = frames::packet(&tuple, flags, 30);
            packets.push(frames::unreachable(&whole));
            packets.push(whole);
            // Larger than what some of the platforms carry.
            packets.push(frames::packet(&tuple, flags, 720));
        }
    }
    let large = packets
        .iter()
        .filter(|packet| packet.len() > 720 && packet[0] >> 4 == 4);
    let fragments: Vec<Vec<u8>> = large
        .filter_map(|packet| wire::fragment::fragment_v4(packet, 400))
        .flatten()
        .collect();
    packets.extend(fragments);
    packets
}

/// Gives an IPv4 packet of a capture the addresses of a platform, so that classifiers match it.
fn readdressed(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet.len() >= 20 && packet[0] >> 4 == 4 {
        let (source, destination) = ([10, 1, 0, packet[15]], [10, 2, 0, packet[19]]);
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&destination);
        let length = usize::from(packet[0] & 15) * 4;
        if (20..=packet.len()).contains(&length) {
            packet[10..12].fill(0);
            let sum = wire::checksum::finish(wire::checksum::sum(&packet[..length]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    packet
}

fn write(directory: &Path, name: &str, site: &Site, steps: &[Vec<u8>]) -> io::Result<()> {
    let parts = [&site.head[..], &site.neighbours().concat(), &steps.concat()];
    fs::write(directory.join(name), parts.concat())
}

/// The same frames for several workers (`home_checks`): whose turn it is, how many are of a burst and how they are cut, their number says.
fn write_homes(corpora: &Path, name: &str, site: &Site, steps: &[Vec<u8>]) -> io::Result<()> {
    let directory = corpora.join("forwarder_homes");
    fs::create_dir_all(&directory)?;
    let arrival = |(number, step): (usize, &Vec<u8>)| {
        let [port, frame @ ..] = &step[..] else {
            return Vec::new();
        };
        [&[port >> 1, number as u8], frame].concat()
    };
    let arrivals: Vec<_> = steps.iter().enumerate().map(arrival).collect();
    fs::write(
        directory.join(name),
        [&site.head[..], &arrivals.concat()].concat(),
    )
}

/// Some arrivals of segments; and one over and over whose neighbours do not answer, so that some find no place to wait.
fn write_cut(directory: &Path, name: &str, site: &Site, steps: &[Vec<u8>]) -> io::Result<()> {
    let cut = |step: &Vec<u8>| [segments_step(SEGMENT), step.clone()].concat();
    let some: Vec<_> = steps.iter().take(CUT).map(cut).collect();
    write(directory, &format!("cut-{name}"), site, &some)?;
    let again = steps.first().map(cut).unwrap_or_default().repeat(CUT);
    fs::write(
        directory.join(format!("crowded-{name}")),
        [&site.head[..], &again].concat(),
    )
}

fn main() -> io::Result<()> {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let Some(corpora) = arguments.first() else {
        eprintln!("usage: pipeline_seeds DIRECTORY_OF_CORPORA [DIRECTORY_OF_CAPTURES]");
        process::exit(2);
    };
    let directory = corpora.join("forwarder_pipeline");
    fs::create_dir_all(&directory)?;
    for platform in 0..PLATFORMS {
        for number in 0..SITES {
            let set = rule_set(platform, number, 0);
            let macs: Vec<MacAddress> = (0..set.ports.len()).map(port_mac).collect();
            let rules = compile(&set, &macs, &mut Registry::default()).expect("rules that hold");
            let site = Site {
                set,
                rules,
                head: [platform as u8, number as u8],
            };
            for (index, packet) in packets().iter().enumerate() {
                let mut steps = site.arrivals(packet);
                let name = format!("{platform}-{number}-{index}");
                write_homes(corpora, &format!("made-{name}"), &site, &steps)?;
                if Segments::of_packet(packet, SEGMENT).is_some_and(|segments| segments.count() > 1)
                {
                    write_cut(&directory, &name, &site, &steps)?;
                }
                // Some seconds, other rules, and once more, watched.
                let (change, watch) = (0xc0 | (index % 4) as u8, watch_step(index as u8 / 4 % 4));
                steps.extend([vec![0x84], vec![change], watch, steps.concat()]);
                write(&directory, &format!("made-{name}"), &site, &steps)?;
            }
            if let Some(captures) = arguments.get(1) {
                from_captures(captures, corpora, &site)?;
            }
        }
    }
    Ok(())
}

/// Packets of every capture, at an edge and in a tunnel.
fn from_captures(captures: &Path, corpora: &Path, site: &Site) -> io::Result<()> {
    let mut pending = vec![captures.to_path_buf()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(&path)? {
                pending.push(entry?.path());
            }
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        let read = std::panic::catch_unwind(|| Capture::read(&path));
        let Ok(capture) = read else { continue };
        if capture.link != capture::ETHERNET {
            continue;
        }
        let mut steps = Vec::new();
        for frame in capture.packets.iter().take(FRAMES) {
            let frame = &frame[..frame.len().min(LENGTH)];
            let Ok(header) = ethernet::Header::parse(frame) else {
                continue;
            };
            let packet = &frame[header.length..];
            let arrivals = site.arrivals(&readdressed(packet));
            steps.extend(arrivals.into_iter().step_by(2));
            steps.extend(site.tunnelled(packet).into_iter().take(1));
            for port in 0..site.set.ports.len().min(2) {
                steps.push(frame_step(port, true, frame));
            }
        }
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        let name = format!(
            "{}-{}-{}",
            site.head[0],
            site.head[1],
            name.unwrap_or_default()
        );
        write(&corpora.join("forwarder_pipeline"), &name, site, &steps)?;
        write_homes(corpora, &name, site, &steps)?;
    }
    Ok(())
}
