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
            assert_eq!(left, Err(ParseError::NshTtlExpired));
            assert_eq!(bytes, before);
            continue;
        }
        let expected = if ttl == 0 { 63 } else { ttl - 1 };
        assert_eq!(left, Ok(expected));
        assert_eq!(bytes[0], 0xf0 | expected >> 2);
        assert_eq!(bytes[1], 0x3f | expected << 6);
        assert_eq!(bytes[2..], before[2..]);
    }
    for length in 0..BASE_LENGTH {
        assert_eq!(
            decrement_ttl(&mut [0; BASE_LENGTH][..length]),
            Err(ParseError::NshTruncated)
        );
    }
}

#[test]
fn another_service_path_changes_nothing_else() {
    let mut bytes = [0xff; FIXED_LENGTH];
    let path = ServicePathIdentifier::new(0x01_0203).unwrap();
    assert!(set_service_path(&mut bytes, path, ServiceIndex::new(4)));
    let mut expected = [0xff; FIXED_LENGTH];
    expected[4..8].copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(bytes, expected);
    assert!(!set_service_path(
        &mut bytes[..7],
        path,
        ServiceIndex::new(4)
    ));
}

#[test]
fn context_headers_are_read_without_their_padding() {
    let bytes = variable(&[
        0x01, 0x02, 7, 0x85, 1, 2, 3, 4, 5, 0, 0, 0, // 5 bytes, U set
        0xff, 0xf6, 9, 0, // none
        0, 3, 1, 4, 9, 9, 9, 9,
    ]);
    let header = Header::parse(&bytes).unwrap();
    let read: Vec<_> = header.context_headers(&bytes).map(Result::unwrap).collect();
    assert_eq!(read.len(), 3);
    assert_eq!((read[0].class, read[0].kind), (0x0102, 7));
    assert_eq!(read[0].value, [1, 2, 3, 4, 5]);
    assert_eq!((read[1].class, read[1].value), (0xfff6, &[][..]));
    assert_eq!(read[2].value, [9, 9, 9, 9]);
}

#[test]
fn a_context_header_beyond_the_header_ends_the_reading() {
    for length in [5, 8, 127] {
        let bytes = variable(&[0, 1, 2, length, 0, 0, 0, 0]);
        let header = Header::parse(&bytes).unwrap();
        let read: Vec<_> = header.context_headers(&bytes).collect();
        assert_eq!(read, [Err(ParseError::NshBadContextHeader)], "{length}");
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
