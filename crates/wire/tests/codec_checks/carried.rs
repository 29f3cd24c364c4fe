//! What carries packets between forwarders: MPLS, NSH, VXLAN, VXLAN-GPE and the steering context on them.

use wire::mpls::{Entry, StackEntry};
use wire::nsh::{self, MetadataType, ServicePathIdentifier};
use wire::steering::{
    Decapsulated, Direction, Encoding, OVERHEAD_LIMIT, ServicePath, ServicePathMap,
    SteeringContext, TunnelTemplate, decapsulate,
};
use wire::{IpPacket, Label, MacAddress, Vni, ethernet, vxlan, vxlan_gpe};

/// An entry comes back; two labels are a steering context that comes back.
pub fn mpls(bytes: &[u8]) {
    if let Ok(any) = StackEntry::parse(bytes) {
        assert_eq!(any.to_bytes(), bytes[..4]);
    }
    if let (Ok(entry), Ok(any)) = (Entry::parse(bytes), StackEntry::parse(bytes)) {
        assert_eq!(entry.label.get(), any.label);
        assert_eq!(Entry::parse(&entry.to_bytes()), Ok(entry));
    }
    if let Ok(context) = SteeringContext::from_labels(bytes) {
        assert_eq!(context.chain.get() & 1, 0);
        assert_eq!(
            SteeringContext::from_labels(&context.to_labels()),
            Ok(context)
        );
    }
}

/// What is read is inside the bytes, and is the same when written again; changes in place touch nothing else.
pub fn nsh(bytes: &[u8]) {
    let Ok(header) = nsh::Header::parse(bytes) else {
        return;
    };
    assert!((nsh::BASE_LENGTH..=bytes.len()).contains(&header.length));
    let mut again = bytes.to_vec();
    again[..8].copy_from_slice(&header.to_bytes());
    assert_eq!(nsh::Header::parse(&again), Ok(header));
    // Only unassigned bits may have been lost.
    for (i, mask) in [0x10u8, 0, 0xf0, 0, 0, 0, 0, 0].into_iter().enumerate() {
        assert_eq!(again[i], bytes[i] & !mask);
    }
    if header.metadata == MetadataType::Fixed {
        let context = std::array::from_fn(|i| bytes[8 + i]);
        assert_eq!(header.to_fixed_bytes(&context), again[..24]);
    }
    let mut relayed = bytes.to_vec();
    match nsh::decrement_ttl(&mut relayed) {
        Some(left) => {
            let expected = nsh::Header {
                ttl: left,
                ..header
            };
            assert_eq!(nsh::Header::parse(&relayed), Ok(expected));
            assert_eq!(left, header.ttl.wrapping_sub(1) & 63);
        }
        None => assert_eq!(header.ttl, 1),
    }
    assert_eq!(relayed[2..], bytes[2..]);
}

/// The network identifier comes back.
pub fn vxlan(bytes: &[u8]) {
    if let Ok(network) = vxlan::parse(bytes) {
        assert_eq!(vxlan::to_bytes(network)[4..7], bytes[4..7]);
    }
}

/// A header comes back.
pub fn vxlan_gpe(bytes: &[u8]) {
    if let Ok(header) = vxlan_gpe::Header::parse(bytes) {
        let again = vxlan_gpe::Header::parse(&header.to_bytes());
        assert_eq!(again, Ok(header));
    }
}

/// Every service path has an identifier: its chain label's and egress label's lower bits.
struct EveryPath;

impl ServicePathMap for EveryPath {
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath> {
        let value = identifier.get();
        Some(ServicePath {
            chain: Label::new(16 + (value >> 12 & !1))?,
            direction: if value >> 12 & 1 == 0 {
                Direction::Forward
            } else {
                Direction::Reverse
            },
            egress: Label::new(16 + (value & 0xfff))?,
        })
    }

    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier> {
        let direction = u32::from(path.direction == Direction::Reverse);
        let chain = (path.chain.get() - 16) | direction;
        ServicePathIdentifier::new(chain << 12 | (path.egress.get() - 16) & 0xfff)
    }
}

/// A whole frame from the underlay: what it carries is inside it, and arrives when sent on in its own encoding.
pub fn steering(bytes: &[u8]) {
    let Ok(frame) = ethernet::Header::parse(bytes) else {
        return;
    };
    let packet = &bytes[frame.length..];
    let Some((encoding, decapsulated)) = taken_apart(packet) else {
        return;
    };
    let inner = &packet[decapsulated.inner_offset..decapsulated.end];
    if let Some(at) = decapsulated.nsh_offset {
        assert!(nsh::Header::parse(&packet[at..]).is_ok());
    }
    let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
    let addresses = (decapsulated.peer, decapsulated.peer);
    let network = decapsulated.network.unwrap_or(Vni::default());
    let template = TunnelTemplate::with_encoding(encoding, macs, addresses, network)
        .expect("one address is of one family");
    assert!(template.length() <= OVERHEAD_LIMIT);
    let mut sent = vec![0; template.length()];
    sent.extend_from_slice(inner);
    if template
        .encapsulate(&mut sent, 50_000, &decapsulated.context, &EveryPath)
        .is_err()
    {
        return;
    }
    let (_, again) = taken_apart(&sent[14..]).expect("what was sent arrives");
    assert_eq!(again.network, decapsulated.network);
    assert_eq!(&sent[14..][again.inner_offset..again.end], inner);
    let mut expected = decapsulated.context;
    if encoding == Encoding::VxlanGpeNsh {
        expected.loop_guard = expected.loop_guard.min(63);
    }
    assert_eq!(again.context, expected);
}

fn taken_apart(packet: &[u8]) -> Option<(Encoding, Decapsulated)> {
    let parsed = IpPacket::parse(packet).ok()?;
    let encoding = Encoding::of(&parsed)?;
    let result = decapsulate(encoding, packet, &parsed, &EveryPath).ok()?;
    assert!(result.inner_offset <= result.end && result.end <= parsed.length);
    Some((encoding, result))
}
