//! What must hold of any frame with any description of the kernel's: the fuzz target `packet_socket_offload`, and the replay
//! of its corpus, share this.
//!
//! ```text
//! flags 1: 1 for a tag that was taken out | tag 4 | description 10 | frame
//! ```

use packet_socket::{Arrived, Contents};
use wire::segments::Segments;

/// Runs an input. What is completed is a frame as long as it arrived, tag included, that can be cut where that was said.
///
/// # Panics
/// What must hold does not.
pub fn run(input: &[u8]) {
    let Some((flags, rest)) = input.split_first() else {
        return;
    };
    let Some((tag, rest)) = rest.split_first_chunk::<4>() else {
        return;
    };
    let Some((description, bytes)) = rest.split_first_chunk::<10>() else {
        return;
    };
    let tag = (flags & 1 == 1).then_some(*tag);
    let arrived = Arrived::new(0, bytes.len(), description, tag);
    let mut frame = vec![0xee; arrived.room()];
    frame.extend_from_slice(bytes);
    match arrived.complete(&mut frame) {
        None => return,
        Some(Contents::Frame) => {}
        Some(Contents::Segments(size)) => assert!(Segments::of_frame(&frame, size).is_some()),
        Some(Contents::Tunnelled(tunnelled)) => {
            let mut count = 0;
            tunnelled.cut(&frame, 0, &mut Vec::new(), |segment| {
                assert!(segment.len() <= frame.len());
                count += 1;
                true
            });
            assert_eq!(count, tunnelled.inner().count());
        }
    }
    if let Some(tag) = tag {
        assert_eq!(frame[..12], bytes[..12]);
        assert_eq!(frame[12..16], tag);
    }
    // At most a checksum is another.
    let as_it_came = &frame[arrived.room()..];
    let start = if tag.is_some() { 12 } else { 0 };
    let changed = (start..bytes.len()).filter(|&i| as_it_came[i] != bytes[i]);
    assert!(changed.count() <= 2);
}
