//! MPLS in UDP (RFC 7510, section 3): the label stack follows the UDP header directly.
//!
//! ```text
//!  0             2                  4          6          8
//! +-------------+------------------+----------+----------+--------------------+-----------
//! | entropy     | 6635             | length   | checksum | label stack        | payload
//! +-------------+------------------+----------+----------+--------------------+-----------
//! ```
//!
//! The source port is entropy, 49152 to 65535, made of the inner packet by the caller. The checksum is 0 over IPv4, and over
//! IPv6 too, as section 3.1 allows between tunnel end points of one operator whose payload is checked at its end: the
//! addresses are those of known peers, and a packet from any other is dropped.

/// UDP destination port (RFC 7510, section 7).
pub const PORT: u16 = 6635;
