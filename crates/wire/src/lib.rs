//! Header codecs from Ethernet to the steering context: no input or output, no unsafe code.
//!
//! Every parser is total: it reads any byte slice without panicking, and says in a
//! [`ParseError`] what is wrong, one name for each counter. Writers work in place in the
//! caller's buffer and tell how many bytes they used. Each header has a file of its own with its
//! drawing and the sections of the RFC it follows; [`steering`] puts them together into what a
//! packet carries between forwarders.
#![forbid(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod error;
pub mod ethernet;
pub mod five_tuple;
pub mod fragment;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod mpls;
pub mod mpls_in_udp;
pub mod neighbour_discovery;
pub mod nsh;
pub mod segments;
pub mod steering;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;
pub mod vxlan_gpe;

pub use error::ParseError;
pub use ethernet::MacAddress;
pub use five_tuple::{Addresses, FiveTuple};
pub use ip::IpPacket;
pub use mpls::Label;
pub use nsh::{ServiceIndex, ServicePathIdentifier};
pub use steering::SteeringContext;
pub use vxlan::Vni;
