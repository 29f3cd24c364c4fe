//! What must hold of every codec for any bytes: the fuzz targets in `fuzz/` and the replay of their corpora share these.
//!
//! A check panics when something that must hold does not. Reading never panics, stays inside the bytes, and what was read and
//! written again is read the same.

mod carried;
mod layers;
mod network;
mod transport;

/// What must hold of any bytes.
pub type Check = fn(&[u8]);

/// Every check, by the name of its fuzz target and of its directories below `fuzz/corpus` and `fuzz/regressions`.
pub const CHECKS: &[(&str, Check)] = &[
    ("wire_arp", layers::arp),
    ("wire_ethernet", layers::ethernet),
    ("wire_fragment", network::fragment),
    ("wire_icmp", network::icmp),
    ("wire_ip", network::ip),
    ("wire_ipv4", network::ipv4),
    ("wire_ipv6", network::ipv6),
    ("wire_mpls", carried::mpls),
    ("wire_neighbour_discovery", network::neighbour_discovery),
    ("wire_nsh", carried::nsh),
    ("wire_segments", transport::segments),
    ("wire_steering", carried::steering),
    ("wire_tcp", transport::tcp),
    ("wire_udp", transport::udp),
    ("wire_vlan", layers::vlan),
    ("wire_vxlan", carried::vxlan),
    ("wire_vxlan_gpe", carried::vxlan_gpe),
];

/// Runs the check of that name.
///
/// # Panics
/// There is none, or what it checks does not hold.
#[allow(dead_code, reason = "not every test runs one by its name")]
pub fn run(name: &str, bytes: &[u8]) {
    let check = CHECKS.iter().find(|(other, _)| *other == name);
    check
        .unwrap_or_else(|| panic!("no check is named {name}"))
        .1(bytes);
}
