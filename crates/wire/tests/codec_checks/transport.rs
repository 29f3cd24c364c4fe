//! TCP and UDP.

use wire::{checksum, tcp, udp};

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
