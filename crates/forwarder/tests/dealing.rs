//! The kernel deals frames out among packet sockets by the homes of their connections.

#[path = "../../../test/needs.rs"]
mod needs;

use forwarder::dealing::program;
use forwarder::entropy::Entropy;
use forwarder::home::Homes;
use nix::sched::{CloneFlags, unshare};
use packet_socket::{Outgoing, Place, Socket};
use std::collections::HashMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use wire::steering::{
    Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, TunnelTemplate,
};
use wire::{FiveTuple, IpPacket, Label, MacAddress, ServiceIndex, Vni, ethernet, nsh, tcp, udp};

const KEY: [u8; 16] = *b"who is at home? ";
const WORKERS: usize = 3;
/// Frames sent before others are looked for: fewer than a socket keeps.
const BATCH: usize = 32;

/// The service path of the tests is number 66.
struct OnePath;

impl ServicePathMap for OnePath {
    fn path(&self, _: nsh::ServicePathIdentifier) -> Option<ServicePath> {
        None
    }

    fn identifier(&self, _: &ServicePath) -> Option<nsh::ServicePathIdentifier> {
        nsh::ServicePathIdentifier::new(66)
    }
}

/// A packet of a kind, of so many.
fn packet(kind: u32, number: u32) -> Vec<u8> {
    let word = number.wrapping_mul(0x9e37_79b9);
    let v6 = kind % 2 == 1;
    let ports = [word >> 16, 443].map(|port| (port as u16).to_be_bytes());
    let transport: Vec<u8> = match kind / 2 {
        // A header of TCP's length.
        0 => [&ports.concat()[..], &[0; 8], &[0x50, 0x10], &[0; 6]].concat(),
        1 => [&ports.concat()[..], &[0, 16], &[0; 2], &[0; 8]].concat(),
        // An echo request.
        2 => [
            &[if v6 { 128 } else { 8 }, 0, 0, 0],
            &ports[0][..],
            &[0; 10],
        ]
        .concat(),
        // Something without ports, and a packet that says it is a fragment.
        _ => vec![0x55; 24],
    };
    let protocol = match (kind / 2, v6) {
        (0, _) => tcp::PROTOCOL,
        (2, false) => 1,
        (2, true) => 58,
        (3, _) => 47,
        _ => udp::PROTOCOL,
    };
    // Options, in some.
    let options = if number.is_multiple_of(5) { 4 } else { 0 };
    let mut packet = Vec::new();
    if v6 {
        let is_fragment = kind / 2 == 4;
        let length = transport.len() as u16 + if is_fragment { 8 } else { 0 };
        packet.extend([0x60, 0, 0, 0]);
        packet.extend(length.to_be_bytes());
        packet.extend([if is_fragment { 44 } else { protocol }, 64]);
        for end in [word, !word.rotate_left(9)] {
            packet.extend([0x20, 1, 0xd, 0xb8]);
            packet.extend(end.rotate_left(3).to_be_bytes());
            packet.extend(word.rotate_left(17).to_be_bytes());
            packet.extend(end.to_be_bytes());
        }
        if is_fragment {
            packet.extend([protocol, 0, 0, 9]);
            packet.extend(number.to_be_bytes());
        }
    } else {
        packet.extend([0x45 + options as u8 / 4, 0]);
        packet.extend((20 + options as u16 + transport.len() as u16).to_be_bytes());
        let fragment = if kind / 2 == 4 { [0x20, 1] } else { [0x40, 0] };
        packet.extend([0, number as u8]);
        packet.extend(fragment);
        packet.extend([64, protocol, 0, 0]);
        for end in [word, !word.rotate_left(9)] {
            packet.extend([10 + (end >> 31) as u8]);
            packet.extend(&end.to_be_bytes()[1..]);
        }
        packet.extend(vec![1; options]);
        let checksum = wire::checksum::finish(wire::checksum::sum(&packet));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet.extend(transport);
    packet
}

/// Kinds of packets there are, and of what is in front of them.
const PACKETS: u32 = 10;
/// The first of them are no fragments, which leave with their connections' ports and meet elsewhere.
const WHOLE: u32 = 8;
const FRAMES: u32 = 4;

/// The connection that a packet shows where it arrives.
fn shown(packet: &[u8]) -> FiveTuple {
    IpPacket::parse(packet).expect("a packet").tuple
}

fn context() -> SteeringContext {
    SteeringContext {
        chain: Label::new(1000).unwrap(),
        direction: Direction::Forward,
        egress: Label::new(77).unwrap(),
        service_index: ServiceIndex::INITIAL,
        loop_guard: 63,
    }
}

/// A frame with a packet, as it is, tagged, behind labels or a network service header.
fn frame(kind: u32, packet: &[u8]) -> Vec<u8> {
    let v6 = packet[0] >> 4 == 6;
    let ether_type = if v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    let mut header = [0; 18];
    let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
    let (vlan, ether_type) = match kind {
        0 => (0, ether_type),
        1 => (7, ether_type),
        2 => (0, ethernet::MPLS),
        _ => (9, ethernet::NSH),
    };
    let length = ethernet::Header::write(&mut header, macs.0, macs.1, vlan, ether_type);
    let mut frame = header[..length].to_vec();
    match kind {
        2 => frame.extend(context().to_labels()),
        3 => {
            let identifier = nsh::ServicePathIdentifier::new(66).unwrap();
            let service = context().to_nsh(identifier, v6);
            frame.extend(service.to_fixed_bytes(&[0; 16]));
        }
        _ => {}
    }
    frame.extend(packet);
    frame
}

/// A packet in a tunnel over one or the other family.
fn tunnelled(number: u32, packet: &[u8]) -> Vec<u8> {
    let addresses = match number % 2 {
        0 => ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
        _ => ([0x2001; 8].into(), [0x2002; 8].into()),
    };
    let encoding = Encoding::ALL[number as usize / 2 % Encoding::ALL.len()];
    let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
    let template =
        TunnelTemplate::with_encoding(encoding, macs, addresses, Vni::default()).unwrap();
    let mut frame = vec![0; template.length()];
    frame.extend(packet);
    let port = Entropy::new(KEY).port(&shown(packet));
    template
        .encapsulate(&mut frame, port, &context(), &OnePath)
        .unwrap();
    frame
}

/// Runs in a network namespace of its own, with two interfaces that are joined; says so, and does not, where that is not allowed.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            needs::missing(&format!("root, to make a network namespace: {error}"));
            return;
        }
        // The kernel beside the test says nothing of its own.
        let quiet = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        std::fs::write(quiet, "1").expect("a namespace of its own");
        ip("link add here type veth peer name there");
        ip("link set here up");
        ip("link set there up");
        wait_until_up(["here", "there"]);
        test();
    })
    .join()
    .expect("the test passes");
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    assert!(status.expect("ip runs").success(), "ip {words}");
}

/// Waits until interfaces send: the kernel begins with that a while after they were set up, and loses what is sent before.
fn wait_until_up(names: [&str; 2]) {
    let until = Instant::now() + Duration::from_secs(10);
    let is_up = |name: &str| {
        let told = Command::new("ip").args(["link", "show", name]).output();
        String::from_utf8_lossy(&told.expect("ip runs").stdout).contains("state UP")
    };
    while !names.into_iter().all(is_up) {
        assert!(Instant::now() < until, "{names:?} do not come up");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends frames from one end; tells which socket of the other each arrived at.
fn arrive(
    sender: &mut Socket,
    group: &mut [Socket],
    frames: &[Vec<u8>],
) -> HashMap<Vec<u8>, usize> {
    let mut arrived = HashMap::new();
    let outgoing: Vec<Outgoing> = frames
        .iter()
        .map(|frame| Outgoing {
            bytes: frame,
            segment_size: 0,
        })
        .collect();
    assert_eq!(sender.send(&outgoing).frames, frames.len());
    let until = Instant::now() + Duration::from_secs(10);
    while arrived.len() < frames.len() && Instant::now() < until {
        for (number, socket) in group.iter_mut().enumerate() {
            let mut buffers = vec![[0u8; 2048]; BATCH];
            let mut places: Vec<Place> = buffers
                .iter_mut()
                .map(|buffer| Place {
                    pieces: [&mut buffer[4..], &mut [], &mut []],
                })
                .collect();
            let mut all = Vec::new();
            socket.receive(&mut places, &mut all).expect("it receives");
            for one in all {
                let start = 4 - one.room();
                let end = 4 + one.length;
                let mut frame = buffers[one.place][start..end].to_vec();
                one.complete(&mut frame).expect("it is a frame");
                assert!(frames.contains(&frame), "nobody sent {frame:02x?}");
                arrived.insert(frame, number);
            }
        }
    }
    arrived
}

fn check(sender: &mut Socket, group: &mut [Socket], frames: &[(Vec<u8>, FiveTuple)]) {
    let homes = Homes::new(KEY, WORKERS);
    let mut counts = [0; WORKERS];
    for some in frames.chunks(BATCH) {
        let only: Vec<Vec<u8>> = some.iter().map(|(frame, _)| frame.clone()).collect();
        let arrived = arrive(sender, group, &only);
        for (frame, tuple) in some {
            let home = homes.of(tuple);
            assert_eq!(arrived.get(frame), Some(&home), "{tuple}: {frame:02x?}");
            counts[home] += 1;
        }
    }
    let fair = frames.len() / WORKERS / 2;
    assert!(counts.iter().all(|&count| count > fair), "{counts:?}");
}

fn plain(count: u32) -> Vec<(Vec<u8>, FiveTuple)> {
    let kinds = (0..PACKETS * FRAMES).flat_map(|kind| (0..count).map(move |number| (kind, number)));
    kinds
        .map(|(kind, number)| {
            let packet = packet(kind % PACKETS, number + count * kind);
            (frame(kind / PACKETS, &packet), shown(&packet))
        })
        .collect()
}

/// Datagrams that go where tunnels end by their ports alone: in a VLAN, behind labels or a network service header. All come from the first
/// of the ports that mean the first worker.
fn like_tunnels() -> Vec<(Vec<u8>, FiveTuple)> {
    let numbers = 0..300;
    numbers
        .map(|number| {
            let mut packet = packet(2 + number % 2, number);
            let ports = packet.len() - 16;
            packet[ports..ports + 2].copy_from_slice(&0xc000u16.to_be_bytes());
            packet[ports + 2..ports + 4].copy_from_slice(&wire::vxlan::PORT.to_be_bytes());
            (frame(1 + number % 3, &packet), shown(&packet))
        })
        .collect()
}

#[test]
fn packets_arrive_at_their_homes_whatever_is_in_front_of_them() {
    in_namespace(|| {
        let mut sender = Socket::open("here").unwrap();
        let (mut group, dealer) = Socket::open_group("there", WORKERS).unwrap();
        let homes = Homes::new(KEY, WORKERS);
        dealer.deal_by(&program(&homes, false)).unwrap();
        check(&mut sender, &mut group, &plain(60));
        // The interface has been away: the kernel joins the sockets again.
        ip("link set there down");
        ip("link set there up");
        wait_until_up(["here", "there"]);
        for socket in &mut group {
            // The interface's being down is told once.
            let _ = socket.receive(&mut [Place::default()], &mut Vec::new());
        }
        check(&mut sender, &mut group, &plain(8));
    });
}

#[test]
fn what_comes_out_of_tunnels_arrives_at_its_home() {
    in_namespace(|| {
        let mut sender = Socket::open("here").unwrap();
        let (mut group, dealer) = Socket::open_group("there", WORKERS).unwrap();
        let homes = Homes::new(KEY, WORKERS);
        dealer.deal_by(&program(&homes, false)).unwrap();
        // By another program from now on.
        dealer.deal_by(&program(&homes, true)).unwrap();
        let frames: Vec<(Vec<u8>, FiveTuple)> = (0..2_000)
            .map(|number| {
                let packet = packet(number % WHOLE, number);
                (tunnelled(number / WHOLE, &packet), shown(&packet))
            })
            .collect();
        check(&mut sender, &mut group, &frames);
        // An interface with tunnels can have other packets too, with tunnels of customers' own among them.
        check(&mut sender, &mut group, &plain(8));
        check(&mut sender, &mut group, &like_tunnels());
    });
}

#[test]
fn what_the_machine_itself_sends_does_not_arrive() {
    in_namespace(|| {
        let mut sender = Socket::open("here").unwrap();
        let mut neighbour = Socket::open("there").unwrap();
        let (mut group, dealer) = Socket::open_group("there", WORKERS).unwrap();
        let homes = Homes::new(KEY, WORKERS);
        dealer.deal_by(&program(&homes, true)).unwrap();
        let frames: Vec<Vec<u8>> = (0..40).map(|number| frame(0, &packet(0, number))).collect();
        let outgoing: Vec<Outgoing> = frames[..20]
            .iter()
            .map(|frame| Outgoing {
                bytes: frame,
                segment_size: 0,
            })
            .collect();
        assert_eq!(neighbour.send(&outgoing).frames, 20);
        // What arrives after them was dealt out after them.
        let arrived = arrive(&mut sender, &mut group, &frames[20..]);
        assert_eq!(arrived.len(), 20);
        let mut buffer = [0; 2048];
        for socket in &mut group {
            let mut all = Vec::new();
            let place = Place {
                pieces: [&mut buffer[4..], &mut [], &mut []],
            };
            socket.receive(&mut [place], &mut all).expect("it receives");
            assert!(all.is_empty(), "{} more", all.len());
        }
    });
}

#[test]
fn without_a_program_the_first_gets_all() {
    in_namespace(|| {
        let mut sender = Socket::open("here").unwrap();
        let (mut group, _dealer) = Socket::open_group("there", WORKERS).unwrap();
        let frames: Vec<Vec<u8>> = (0..20).map(|number| frame(0, &packet(0, number))).collect();
        let arrived = arrive(&mut sender, &mut group, &frames);
        assert_eq!(arrived.len(), frames.len());
        assert!(arrived.values().all(|&socket| socket == 0), "{arrived:?}");
    });
}
