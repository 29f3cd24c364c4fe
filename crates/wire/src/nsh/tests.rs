use super::*;

fn header() -> Header {
    Header {
        oam: false,
        ttl: 63,
        length: FIXED_LENGTH,
        metadata: MetadataType::Fixed,
        next: NextProtocol::Ipv4,
        path: ServicePathIdentifier::new(0x12_3456).unwrap(),
        index: ServiceIndex::new(254),
    }
}

fn variable(context: &[u8]) -> Vec<u8> {
    let header = Header {
        metadata: MetadataType::Variable,
        length: BASE_LENGTH + context.len(),
        ..header()
    };
    [&header.to_bytes()[..], context].concat()
}

#[test]
fn the_bytes_are_those_of_the_drawing() {
    let bytes = header().to_fixed_bytes(&[0xaa; 16]);
    assert_eq!(
        bytes[..9],
        [0x0f, 0xc6, 0x01, 0x01, 0x12, 0x34, 0x56, 0xfe, 0xaa]
    );
}

#[test]
fn reads_what_it_writes() {
    for ttl in 0..64 {
        for next in 1..=5 {
            for oam in [false, true] {
                let header = Header {
                    oam,
                    ttl,
                    next: NextProtocol::from_number(next).unwrap(),
                    ..header()
                };
                let bytes = header.to_fixed_bytes(&[7; 16]);
                assert_eq!(Header::parse(&bytes), Ok(header));
            }
        }
    }
    let longest = variable(&[0; 63 * 4 - BASE_LENGTH]);
    assert_eq!(Header::parse(&longest).unwrap().length, 252);
    assert_eq!(Header::parse(&variable(&[])).unwrap().length, 8);
}

#[test]
fn truncation_at_every_length_is_an_error() {
    for bytes in [
        header().to_fixed_bytes(&[0; 16]).to_vec(),
        variable(&[0; 8]),
    ] {
        for length in 0..bytes.len() {
            assert_eq!(
                Header::parse(&bytes[..length]),
                Err(ParseError::NshTruncated)
            );
        }
    }
}

#[test]
fn names_what_rfc_8300_discards() {
    for (at, value, error) in [
        (0, 0x4f, ParseError::NshBadVersion),
        (0, 0xcf, ParseError::NshBadVersion),
        (1, 0xc5, ParseError::NshBadLength),
        (1, 0xc7, ParseError::NshBadLength),
        (1, 0xc0, ParseError::NshBadLength),
        (2, 0, ParseError::NshReservedMetadataType),
        (2, 15, ParseError::NshReservedMetadataType),
        (2, 3, ParseError::NshUnknownMetadataType),
        (2, 14, ParseError::NshUnknownMetadataType),
        (3, 0, ParseError::NshUnknownNextProtocol),
        (3, 6, ParseError::NshUnknownNextProtocol),
        (3, 0xfe, ParseError::NshUnknownNextProtocol),
        (3, 0xff, ParseError::NshUnknownNextProtocol),
    ] {
        let mut bytes = header().to_fixed_bytes(&[0; 16]).to_vec();
        bytes[at] = value;
        bytes.extend([0; 8]);
        assert_eq!(Header::parse(&bytes), Err(error), "byte {at} is {value:#x}");
    }
    let mut short = variable(&[0; 8]);
    short[1] = 0xc1;
    assert_eq!(Header::parse(&short), Err(ParseError::NshBadLength));
}

#[test]
fn unassigned_bits_do_not_change_what_is_read() {
    let mut bytes = header().to_fixed_bytes(&[0; 16]);
    bytes[0] |= 0x10;
    bytes[2] |= 0xf0;
    assert_eq!(Header::parse(&bytes), Ok(header()));
}

#[test]
fn the_ttl_falls_before_the_look_up_and_zero_becomes_63() {
    for ttl in 0..64u8 {
        // Everything but the TTL is set: it must all stay.
        let mut bytes = [0xff; FIXED_LENGTH];
        bytes[0] = 0xf0 | ttl >> 2;
        bytes[1] = 0x3f | ttl << 6;
        let before = bytes;
        let left = decrement_ttl(&mut bytes);
        if ttl == 1 {
            assert_eq!(left, None);
            assert_eq!(bytes, before);
            continue;
        }
        let expected = if ttl == 0 { 63 } else { ttl - 1 };
        assert_eq!(left, Some(expected));
        assert_eq!(bytes[0], 0xf0 | expected >> 2);
        assert_eq!(bytes[1], 0x3f | expected << 6);
        assert_eq!(bytes[2..], before[2..]);
    }
    for length in 0..BASE_LENGTH {
        assert_eq!(decrement_ttl(&mut [0; BASE_LENGTH][..length]), None);
    }
}

#[test]
fn identifiers_have_24_bits_and_the_index_stops_at_zero() {
    assert!(ServicePathIdentifier::new(0xff_ffff).is_some());
    assert_eq!(ServicePathIdentifier::new(0x100_0000), None);
    assert_eq!(
        ServiceIndex::INITIAL.decremented(),
        Some(ServiceIndex::new(254))
    );
    assert_eq!(ServiceIndex::new(0).decremented(), None);
}
