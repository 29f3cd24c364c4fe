//! Packets of several segments inside tunnels are cut into what their host would have sent one by one.

mod support;

use proptest::prelude::*;
use support::tunnels::{Around, Piece, Shape, frame, shapes, transport_offset};
use wire::checksum;
use wire::segments::{Tunnelled, finish_checksum, finish_inner_checksum};

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + (i >> 8)) as u8).collect()
}

/// What the host would have sent.
fn one_by_one(shape: &Shape, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(size).max(1);
    let piece = |number| Piece {
        number,
        offset: number * size,
        is_first: number == 0,
        is_last: number + 1 == count,
    };
    (0..count)
        .map(|number| {
            let from = number * size;
            let to = payload.len().min(from + size);
            frame(shape, &payload[from..to], piece(number))
        })
        .collect()
}

fn cut(shape: &Shape, whole: &[u8], size: u16, room: usize) -> Vec<Vec<u8>> {
    let tunnelled = Tunnelled::of_frame(whole, size, transport_offset(shape));
    let tunnelled = tunnelled.unwrap_or_else(|| panic!("{shape:?} is not followed"));
    let mut all = Vec::new();
    tunnelled.cut(whole, room, &mut Vec::new(), |segment| {
        all.push(segment[room..].to_vec());
        true
    });
    assert_eq!(all.len(), tunnelled.inner().count());
    all
}

#[test]
fn segments_of_every_tunnel_are_what_the_host_would_have_sent_one_by_one() {
    let payload = payload(4_001);
    for shape in shapes() {
        let whole = frame(&shape, &payload, Piece::WHOLE);
        let expected = one_by_one(&shape, &payload, 1_300);
        assert_eq!(expected.len(), 4);
        assert!(cut(&shape, &whole, 1_300, 0) == expected, "{shape:?}");
    }
}

proptest! {
    #[test]
    fn any_length_and_size_is_cut_so(
        which in any::<prop::sample::Index>(),
        length in 0..9_000_usize,
        size in 200..2_000_u16,
        room in 0..20_usize,
    ) {
        let all = shapes();
        let shape = which.get(&all);
        let payload = payload(length);
        let whole = frame(shape, &payload, Piece::WHOLE);
        let cut = cut(shape, &whole, size, room);
        prop_assert!(cut == one_by_one(shape, &payload, size.into()), "{shape:?}");
    }
}

#[test]
fn what_is_in_front_needs_no_right_checksums_and_has_them_when_cut() {
    let payload = payload(3_000);
    for shape in shapes() {
        let mut whole = frame(&shape, &payload, Piece::WHOLE);
        let expected = one_by_one(&shape, &payload, 1_000);
        // As a system leaves them: of the outer UDP or GRE, and of the inner TCP or UDP.
        let mut fields = checksum_fields(&shape);
        fields.push(transport_offset(&shape) + if shape.tcp { 16 } else { 6 });
        for field in fields {
            whole[field..field + 2].copy_from_slice(&[0x12, 0x34]);
        }
        assert!(cut(&shape, &whole, 1_000, 0) == expected, "{shape:?}");
    }
}

/// Where the checksums of outer UDP and GRE are.
fn checksum_fields(shape: &Shape) -> Vec<usize> {
    let (mut at, mut fields) = (0, Vec::new());
    for around in &shape.around {
        match around {
            Around::Udp(_, true) => fields.push(at + 6),
            Around::Gre(true, ..) => fields.push(at + 4),
            _ => {}
        }
        at += length(around);
    }
    fields
}

/// Bytes of a header.
fn length(around: &Around) -> usize {
    match *around {
        Around::Ethernet(tags) => 14 + 4 * tags,
        Around::V4 => 20,
        Around::V6 => 40,
        Around::V6WithOptions => 48,
        Around::Udp(..) | Around::Vxlan | Around::VxlanGpe => 8,
        Around::Geneve(words) => 8 + 4 * words,
        Around::Gre(checksum, key, number) => {
            4 + 4 * (usize::from(checksum) + usize::from(key) + usize::from(number))
        }
    }
}

#[test]
fn what_cannot_be_followed_is_not_cut() {
    let payload = payload(3_000);
    for shape in shapes() {
        let (whole, start) = (
            frame(&shape, &payload, Piece::WHOLE),
            transport_offset(&shape),
        );
        assert!(Tunnelled::of_frame(&whole, 1_000, start).is_some());
        assert!(Tunnelled::of_frame(&whole, 0, start).is_none());
        assert!(Tunnelled::of_frame(&whole, 1, start).is_none(), "too many");
        for other in (0..start).chain(start + 1..start + 100) {
            let outermost = Tunnelled::of_frame(&whole, 1_000, other).is_none();
            let inner = shape.around.len() > 7 && other < start;
            assert!(outermost || inner, "{shape:?} at {other}");
        }
        for length in 0..whole.len() {
            assert!(Tunnelled::of_frame(&whole[..length], 1_000, start).is_none());
        }
    }
    let numbered = Shape {
        around: vec![
            Around::Ethernet(0),
            Around::V4,
            Around::Gre(false, false, true),
            Around::V4,
        ],
        tcp: true,
    };
    let whole = frame(&numbered, &payload, Piece::WHOLE);
    let start = transport_offset(&numbered);
    assert!(Tunnelled::of_frame(&whole, 1_000, start).is_none());
}

#[test]
fn an_inner_packet_that_ends_before_its_tunnel_is_not_cut() {
    let shape = &shapes()[0];
    let payload = payload(3_000);
    let mut whole = frame(shape, &payload, Piece::WHOLE);
    let start = transport_offset(shape);
    // The inner IPv4 header says 100 bytes less.
    let ip = start - 20;
    let length = (whole.len() - ip - 100) as u16;
    whole[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
    wire::ipv4::set_checksum(&mut whole[ip..start]);
    assert!(Tunnelled::of_frame(&whole, 1_000, start).is_none());
}

/// A frame as a system leaves it whose device finishes the inner checksum: all others are right for the finished packet.
fn unfinished(shape: &Shape, whole: &[u8]) -> Vec<u8> {
    let mut frame = whole.to_vec();
    let start = transport_offset(shape);
    let v6 = matches!(shape.around.last(), Some(Around::V6));
    let addresses = if v6 {
        start - 32..start
    } else {
        start - 8..start
    };
    let protocol = if shape.tcp { 6 } else { 17 };
    let sum = checksum::pseudo_header(&whole[addresses], protocol, whole.len() - start);
    let at = start + if shape.tcp { 16 } else { 6 };
    frame[at..at + 2].copy_from_slice(&checksum::fold(sum).to_be_bytes());
    frame
}

#[test]
fn an_inner_checksum_left_to_the_device_is_finished() {
    for shape in shapes() {
        let whole = frame(&shape, &payload(1_000), Piece::WHOLE);
        let mut given = unfinished(&shape, &whole);
        assert_ne!(given, whole);
        assert!(!finish_checksum(&mut given), "the outer one is right");
        assert!(finish_inner_checksum(&mut given), "{shape:?}");
        assert!(given == whole, "{shape:?}");
        assert!(!finish_inner_checksum(&mut given));
    }
}

#[test]
fn a_packet_that_a_tunnel_carries_as_it_was_is_left_alone() {
    for shape in shapes() {
        let whole = frame(&shape, &payload(1_000), Piece::WHOLE);
        // Wrong, and not the pseudo-header's sum: the receiver's to find.
        let mut wrong = whole.clone();
        *wrong.last_mut().unwrap() ^= 1;
        let before = wrong.clone();
        assert!(!finish_inner_checksum(&mut wrong));
        assert_eq!(wrong, before);
        // Unfinished, and so covered by the outer checksum: somebody mirrors packets.
        if let [field] = checksum_fields(&shape)[..] {
            let mut mirrored = unfinished(&shape, &whole);
            let at = transport_offset(&shape) + if shape.tcp { 16 } else { 6 };
            let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let (old, new) = (word(&whole, at), word(&mirrored, at));
            let sum = checksum::update(word(&whole, field), old, new);
            mirrored[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            let before = mirrored.clone();
            assert!(!finish_inner_checksum(&mut mirrored), "{shape:?}");
            assert_eq!(mirrored, before);
        }
    }
}
