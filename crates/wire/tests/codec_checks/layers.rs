//! Link layer: Ethernet, VLAN tags, ARP.

use wire::arp::Arp;
use wire::ethernet::{self, Header};
use wire::vlan::Tag;

/// A frame's header is inside the frame, and is the same when written again.
pub fn ethernet(bytes: &[u8]) {
    let Ok(header) = Header::parse(bytes) else {
        return;
    };
    assert!(header.length <= bytes.len());
    assert!(!Tag::follows(header.ether_type));
    assert!(header.vlan < 4095 && header.inner_vlan.is_none_or(|vlan| vlan < 4095));
    if header.inner_vlan.is_some() {
        assert_eq!(header.length, 22);
        return;
    }
    let mut buffer = [0; ethernet::HEADER_LENGTH + 4];
    let length = Header::write(
        &mut buffer,
        header.destination,
        header.source,
        header.vlan,
        header.ether_type,
    );
    // A priority tag names no VLAN and is not written again.
    let again = Header::parse(&buffer[..length]);
    assert_eq!(again, Ok(Header { length, ..header }));
    assert_eq!(length, if header.vlan == 0 { 14 } else { 18 });
}

/// A tag's two bytes come back.
pub fn vlan(bytes: &[u8]) {
    if let Ok((tag, ether_type)) = Tag::parse(bytes) {
        assert_eq!(tag.to_bytes(), bytes[..2]);
        assert_eq!(ether_type.to_be_bytes(), bytes[2..4]);
    }
}

/// A packet's bytes come back; an answer to it is a packet too.
pub fn arp(bytes: &[u8]) {
    if let Ok(arp) = Arp::parse(bytes) {
        assert_eq!(arp.to_bytes(), bytes[..28]);
        let answer = arp.answered(arp.target_mac);
        assert_eq!(Arp::parse(&answer.to_bytes()), Ok(answer));
    }
}
