//! TCP and UDP.

use wire::segments::{Segments, Tunnelled, finish_checksum, finish_inner_checksum};
use wire::{IpPacket, checksum, ethernet, tcp, udp};

/// Clamping leaves the sum of the segment as it was, lowers the size to the limit and touches six bytes at most.
pub fn tcp(bytes: &[u8]) {
    if let Ok(header) = tcp::Header::parse(bytes) {
        assert!((tcp::HEADER_LENGTH..=bytes.len()).contains(&header.header_length));
    }
    for limit in [0, 536, 1220, 1360, u16::MAX] {
        let mut clamped = bytes.to_vec();
        if !tcp::clamp_maximum_segment_size(&mut clamped, limit) {
            assert_eq!(clamped, bytes);
            continue;
        }
        assert_eq!(tcp::Header::parse(&clamped), tcp::Header::parse(bytes));
        assert!(!tcp::clamp_maximum_segment_size(&mut clamped, limit));
        let changed: Vec<usize> = (0..bytes.len())
            .filter(|&i| clamped[i] != bytes[i])
            .collect();
        assert!(changed.iter().all(|&i| i == 16 || i == 17 || i >= 20));
        assert!(changed.len() <= 4, "checksum and size");
        same_sum(bytes, &clamped);
    }
}

/// Whether two segments with their checksums sum to the same, 0 and 0xffff being one.
fn same_sum(before: &[u8], after: &[u8]) {
    let sum = |bytes| match checksum::fold(checksum::sum(bytes)) {
        0xffff => 0,
        sum => sum,
    };
    assert_eq!(sum(before), sum(after));
}

/// A header's bytes come back, and its length is inside the datagram.
pub fn udp(bytes: &[u8]) {
    if let Ok(header) = udp::Header::parse_fields(bytes) {
        assert_eq!(header.to_bytes(), bytes[..8]);
        let whole = udp::Header::parse(bytes);
        assert_eq!(whole.is_ok(), header.length <= bytes.len());
    }
}

/// Where TCP or UDP inside a tunnel is looked for.
const TUNNELLED_LIMIT: usize = 256;

/// The segments of a packet in a tunnel hold its payload, in order, each behind headers that lead to it.
fn tunnelled_segments(bytes: &[u8], tunnelled: &Tunnelled, size: u16) {
    let inner = tunnelled.inner();
    let (mut payload, mut count) = (Vec::new(), 0);
    tunnelled.cut(bytes, 3, &mut Vec::new(), |segment| {
        let frame = &segment[3..];
        let again = Tunnelled::of_frame(frame, size, inner.transport());
        let again = again.expect("headers of a segment fit");
        assert_eq!(again.inner().count(), 1);
        let whole = Segments::of_packet(&frame[inner.ip()..], size);
        assert!(whole.is_some(), "the inner packet is one");
        payload.extend_from_slice(&frame[inner.headers()..]);
        count += 1;
        true
    });
    assert_eq!(count, inner.count());
    assert!(bytes[inner.headers()..].starts_with(&payload));
}

/// Two bytes of segment size, and an Ethernet frame. Its segments hold its payload, in order, each with right lengths and
/// checksums; a checksum that is finished changes nothing else, and stays.
pub fn segments(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let mut finished = bytes.to_vec();
    if finish_checksum(&mut finished) {
        let changed = (0..bytes.len()).filter(|&i| finished[i] != bytes[i]);
        assert!(changed.count() <= 2);
        assert!(!finish_checksum(&mut finished));
    }
    let mut finished = bytes.to_vec();
    if finish_inner_checksum(&mut finished) {
        let changed = (0..bytes.len()).filter(|&i| finished[i] != bytes[i]);
        assert!(changed.count() <= 2);
    }
    let size = u16::from_be_bytes(*size);
    for transport in 0..bytes.len().min(TUNNELLED_LIMIT) {
        if let Some(tunnelled) = Tunnelled::of_frame(bytes, size, transport) {
            tunnelled_segments(bytes, &tunnelled, size);
        }
    }
    let Some(segments) = Segments::of_frame(bytes, size) else {
        return;
    };
    let ip = ethernet::Header::parse(bytes)
        .expect("it is a frame")
        .length;
    let whole = IpPacket::parse(&bytes[ip..]).expect("it is a packet");
    let (mut payload, mut count) = (Vec::new(), 0);
    segments.cut(bytes, 5, &mut Vec::new(), |segment| {
        let packet = &segment[5 + ip..];
        let parsed = IpPacket::parse(packet).expect("a segment is a packet");
        assert_eq!((parsed.length, parsed.tuple), (packet.len(), whole.tuple));
        assert!(packet.len() <= segments.longest());
        let transport = &packet[parsed.transport_offset..];
        let addresses = if parsed.is_v6() { 8..40 } else { 12..20 };
        let protocol = parsed.tuple.protocol;
        let sum = checksum::pseudo_header(&packet[addresses], protocol, transport.len());
        assert_eq!(checksum::fold(sum + checksum::sum(transport)), 0xffff);
        payload.extend_from_slice(&packet[segments.headers() - ip..]);
        count += 1;
        true
    });
    assert_eq!(count, segments.count());
    assert_eq!(payload, bytes[segments.headers()..ip + whole.length]);
}
