//! IP prefixes in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A prefix of one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Not a prefix in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAPrefix;

impl fmt::Display for NotAPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(
            "write an address, a slash and a length, such as 10.1.0.0/24 or 2001:db8::/32",
        )
    }
}

impl Prefix {
    /// Whether it holds an address; never one of the other family.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let bits = (own.to_bits() ^ other.to_bits()).leading_zeros();
                bits >= u32::from(self.length)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let bits = (own.to_bits() ^ other.to_bits()).leading_zeros();
                bits >= u32::from(self.length)
            }
            _ => false,
        }
    }

    /// The address written, host bits included.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits that count.
    pub fn length(&self) -> u8 {
        self.length
    }
}

impl FromStr for Prefix {
    type Err = NotAPrefix;

    fn from_str(text: &str) -> Result<Prefix, NotAPrefix> {
        let (address, length) = text.split_once('/').ok_or(NotAPrefix)?;
        let address: IpAddr = address.parse().map_err(|_| NotAPrefix)?;
        let length: u8 = length.parse().map_err(|_| NotAPrefix)?;
        if length > if address.is_ipv4() { 32 } else { 128 } {
            return Err(NotAPrefix);
        }
        Ok(Prefix { address, length })
    }
}

/// Length of the longest of these prefixes that holds an address.
pub fn longest(prefixes: &[Prefix], address: IpAddr) -> Option<u8> {
    prefixes
        .iter()
        .filter(|prefix| prefix.contains(address))
        .map(Prefix::length)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_shares_its_bits() {
        let cases = [
            ("10.1.0.0/24", "10.1.0.255", true),
            ("10.1.0.0/24", "10.1.1.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("192.0.2.1/32", "192.0.2.1", true),
            ("2001:db8::/33", "2001:db8:8000::", false),
            ("::/0", "2001:db8::", true),
        ];
        for (prefix, address, holds) in cases {
            let prefix: Prefix = prefix.parse().unwrap();
            assert_eq!(
                prefix.contains(address.parse().unwrap()),
                holds,
                "{prefix:?} {address}"
            );
        }
    }

    #[test]
    fn refuses_what_is_no_prefix() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "a/8",
            "10.0.0.0/-1",
        ] {
            assert_eq!(text.parse::<Prefix>(), Err(NotAPrefix), "{text}");
        }
    }
}
