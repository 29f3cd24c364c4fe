//! The steering context: what a packet carries between forwarders, in any of three encodings.
//!
//! ```text
//! VXLAN with MPLS (the default)
//! +----------+-----------+----------+-------+------------------+-------------+--------------+-----------
//! | Ethernet | IPv4 / v6 | UDP 4789 | VXLAN | Ethernet         | chain label | egress label | IP packet
//! | 14       | 20 / 40   | 8        | 8     | 14, type 0x8847  | 4           | 4            |
//! +----------+-----------+----------+-------+------------------+-------------+--------------+-----------
//! MPLS in UDP
//! +----------+-----------+----------+-------------+--------------+-----------
//! | Ethernet | IPv4 / v6 | UDP 6635 | chain label | egress label | IP packet
//! +----------+-----------+----------+-------------+--------------+-----------
//! VXLAN-GPE with NSH
//! +----------+-----------+----------+-----------+--------------------------+-----------
//! | Ethernet | IPv4 / v6 | UDP 4790 | VXLAN-GPE | NSH, MD type 1           | IP packet
//! | 14       | 20 / 40   | 8        | 8         | 24                       |
//! +----------+-----------+----------+-----------+--------------------------+-----------
//! ```
//!
//! | part | labels | NSH |
//! |---|---|---|
//! | chain | chain label without its last bit | service path identifier, through a [`ServicePathMap`] |
//! | direction | last bit of the chain label: 0 forward, 1 reverse | service path identifier |
//! | egress | egress label, the bottom of the stack | service path identifier |
//! | service index | TTL of the egress label | service index |
//! | loop guard | TTL of the chain label | TTL |
//!
//! The outer UDP source port is the caller's, made of the inner packet (RFC 7348, section 5). Type of service of the outer header
//! is 0 (RFC 6040, section 4.3: compatibility mode), so nothing needs to be carried back at the tunnel's end.

mod context;
mod decapsulate;
mod template;

pub use context::{Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, is_labelled};
pub use decapsulate::{Decapsulated, decapsulate, service_header};
pub use template::{EncapsulateError, TunnelTemplate};

use crate::{ethernet, ipv6, mpls, nsh, udp, vxlan, vxlan_gpe};

/// Bytes between the underlay's IP header and the inner packet, with VXLAN and MPLS.
pub const CONTEXT_LENGTH: usize =
    udp::HEADER_LENGTH + vxlan::HEADER_LENGTH + ethernet::HEADER_LENGTH + LABELS_LENGTH;
/// Bytes in front of the inner packet at most: over IPv6, with NSH.
pub const OVERHEAD_LIMIT: usize = ethernet::HEADER_LENGTH
    + ipv6::HEADER_LENGTH
    + udp::HEADER_LENGTH
    + vxlan_gpe::HEADER_LENGTH
    + nsh::FIXED_LENGTH;
/// What a packet's loop guard starts at.
pub const LOOP_GUARD: u8 = 64;
/// Bytes of the two labels.
const LABELS_LENGTH: usize = 2 * mpls::ENTRY_LENGTH;

#[cfg(test)]
mod tests;
