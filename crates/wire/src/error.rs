//! Why a packet could not be read: one name for each drop counter.

use std::fmt;

macro_rules! parse_errors {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a packet could not be read. Each has a stable name, used as a counter's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ParseError {
            $($(#[$doc])* $variant,)*
        }

        impl ParseError {
            /// Every error, in the order of its number.
            pub const ALL: &'static [ParseError] = &[$(ParseError::$variant,)*];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self { $(ParseError::$variant => $name,)* }
            }
        }
    };
}

parse_errors! {
    /// Shorter than an Ethernet header.
    EthernetTruncated = "ethernet_truncated",
    /// Ends inside an IEEE 802.1Q tag.
    VlanTruncated = "vlan_truncated",
    /// More than two IEEE 802.1Q tags.
    VlanTooDeep = "vlan_too_deep",
    /// The reserved VLAN identifier, 4095.
    VlanReservedIdentifier = "vlan_reserved_identifier",
    /// Ends inside an ARP packet.
    ArpTruncated = "arp_truncated",
    /// ARP for something other than IPv4 over Ethernet.
    ArpUnsupported = "arp_unsupported",
    /// The sender of an ARP packet gives an address that no host has: a group's, loopback, or the Ethernet address 0 (RFC 1812,
    /// section 3.3.2).
    ArpBadAddress = "arp_bad_address",
    /// Ends inside the IPv4 header.
    Ipv4Truncated = "ipv4_truncated",
    /// The version is not 4.
    Ipv4BadVersion = "ipv4_bad_version",
    /// The header length is below 5 words or beyond the packet.
    Ipv4BadHeaderLength = "ipv4_bad_header_length",
    /// The total length is below the header's or beyond the frame.
    Ipv4BadTotalLength = "ipv4_bad_total_length",
    /// The header checksum is wrong.
    Ipv4BadChecksum = "ipv4_bad_checksum",
    /// A fragment reaches beyond 65535 bytes, or holds no multiple of 8 and is not the last.
    Ipv4BadFragment = "ipv4_bad_fragment",
    /// Ends inside the IPv6 header.
    Ipv6Truncated = "ipv6_truncated",
    /// The version is not 6.
    Ipv6BadVersion = "ipv6_bad_version",
    /// The payload length is beyond the frame.
    Ipv6BadPayloadLength = "ipv6_bad_payload_length",
    /// Ends inside an extension header.
    Ipv6ExtensionTruncated = "ipv6_extension_truncated",
    /// More extension headers than are read.
    Ipv6ExtensionTooDeep = "ipv6_extension_too_deep",
    /// A fragment reaches beyond 65535 bytes, or holds no multiple of 8 and is not the last.
    Ipv6BadFragment = "ipv6_bad_fragment",
    /// Ends inside the TCP header.
    TcpTruncated = "tcp_truncated",
    /// The data offset is below 5 words or beyond the packet.
    TcpBadDataOffset = "tcp_bad_data_offset",
    /// Ends inside the UDP header.
    UdpTruncated = "udp_truncated",
    /// The UDP length is below 8 or beyond the packet.
    UdpBadLength = "udp_bad_length",
    /// The UDP checksum is wrong.
    UdpBadChecksum = "udp_bad_checksum",
    /// Ends inside the ICMP header.
    IcmpTruncated = "icmp_truncated",
    /// An ICMP error quotes less than a 5-tuple.
    IcmpQuoteTruncated = "icmp_quote_truncated",
    /// An ICMP error quotes something that is no IP packet.
    IcmpQuoteMalformed = "icmp_quote_malformed",
    /// An ICMP error that does not go to the source of the packet it quotes.
    IcmpQuoteMisdirected = "icmp_quote_misdirected",
    /// Ends inside a message of neighbour discovery.
    NeighbourTruncated = "neighbour_truncated",
    /// Neighbour discovery in fragments (RFC 6980, section 5).
    NeighbourFragmented = "neighbour_fragmented",
    /// Neighbour discovery with a hop limit other than 255 (RFC 4861, section 7.1): it came from elsewhere.
    NeighbourBadHopLimit = "neighbour_bad_hop_limit",
    /// Neighbour discovery with a wrong ICMPv6 checksum.
    NeighbourBadChecksum = "neighbour_bad_checksum",
    /// Neighbour discovery with a code other than 0.
    NeighbourBadCode = "neighbour_bad_code",
    /// Neighbour discovery about a group, or with an address that RFC 4861 sections 6.1, 7.1 and 8.1 rule out.
    NeighbourBadAddress = "neighbour_bad_address",
    /// An option of length 0, or beyond the message.
    NeighbourBadOption = "neighbour_bad_option",
    /// Ends inside the VXLAN header.
    VxlanTruncated = "vxlan_truncated",
    /// The VXLAN I flag is not set.
    VxlanBadFlags = "vxlan_bad_flags",
    /// The VXLAN network identifier is not this platform's.
    VxlanUnknownNetwork = "vxlan_unknown_network",
    /// Tagged Ethernet inside VXLAN (RFC 7348, section 6.1).
    VxlanInnerTagged = "vxlan_inner_tagged",
    /// Something other than a label stack inside VXLAN.
    VxlanInnerUnknown = "vxlan_inner_unknown",
    /// Ends inside the VXLAN-GPE header.
    VxlanGpeTruncated = "vxlan_gpe_truncated",
    /// The VXLAN-GPE version is not 0.
    VxlanGpeBadVersion = "vxlan_gpe_bad_version",
    /// The VXLAN-GPE I flag is not set, or the O flag is.
    VxlanGpeBadFlags = "vxlan_gpe_bad_flags",
    /// A VXLAN-GPE next protocol that nothing here reads.
    VxlanGpeUnknownProtocol = "vxlan_gpe_unknown_protocol",
    /// A tunnel packet came as a fragment (RFC 7348, section 4.3).
    TunnelFragmented = "tunnel_fragmented",
    /// Ends inside the network service header.
    NshTruncated = "nsh_truncated",
    /// The version is not 0.
    NshBadVersion = "nsh_bad_version",
    /// A length that the MD type does not allow.
    NshBadLength = "nsh_bad_length",
    /// MD type 0 or 15.
    NshReservedMetadataType = "nsh_reserved_metadata_type",
    /// An MD type between 3 and 14.
    NshUnknownMetadataType = "nsh_unknown_metadata_type",
    /// A next protocol that is unknown, or not carried here.
    NshUnknownNextProtocol = "nsh_unknown_next_protocol",
    /// The network service header's TTL ran out.
    NshTtlExpired = "nsh_ttl_expired",
    /// The O bit is set: operation and maintenance, which is not forwarded here.
    NshOam = "nsh_oam",
    /// No service path has this identifier.
    NshUnknownPath = "nsh_unknown_path",
    /// Ends inside the label stack.
    MplsTruncated = "mpls_truncated",
    /// The stack ends before two labels.
    MplsTooFewLabels = "mpls_too_few_labels",
    /// The stack ends without a bottom, or the second of two labels is not it.
    MplsNoBottomOfStack = "mpls_no_bottom_of_stack",
    /// A reserved label (0 to 15) where a service path's is expected.
    MplsReservedLabel = "mpls_reserved_label",
    /// Neither IPv4 nor IPv6 behind the labels or the network service header, or not the one that it names.
    InnerNotIp = "inner_not_ip",
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_snake_case() {
        let names: HashSet<_> = ParseError::ALL.iter().map(|error| error.name()).collect();
        assert_eq!(names.len(), ParseError::ALL.len());
        for name in names {
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}"
            );
        }
    }
}
