//! Fields of the contract, checked one by one.

use super::error::RuleError;
use crate::prefix::Prefix;
use contracts::forwarder::{self as contract, port::Device};
use std::net::IpAddr;
use wire::{Label, MacAddress};

/// What a field is, or what is wrong with it.
pub(super) type Result<T> = std::result::Result<T, RuleError>;

/// Bytes of an IP packet where the rules do not say.
const DEFAULT_MTU: usize = 1500;

pub(super) fn each<T>(
    field: &str,
    name: &str,
    texts: &[String],
    parse: impl Fn(&str, &str) -> Result<T>,
) -> Result<Vec<T>> {
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| parse(&format!("{field}.{name}[{index}]"), text))
        .collect()
}

pub(super) fn prefix(field: &str, text: &str) -> Result<Prefix> {
    text.parse()
        .map_err(|error| RuleError::new(field, format!("{text:?} is no prefix: {error}")))
}

pub(super) fn address(field: &str, text: &str) -> Result<IpAddr> {
    text.parse()
        .map_err(|_| RuleError::new(field, format!("{text:?} is no IP address")))
}

/// A value of an enumeration that this forwarder knows. `name` is the field's within `field`.
pub(super) fn known<T: TryFrom<i32>>(field: &str, name: &str, value: i32) -> Result<T> {
    T::try_from(value).map_err(|_| {
        RuleError::new(
            format!("{field}.{name}"),
            format!("{value} is none that this forwarder knows"),
        )
    })
}

/// Refuses an address that no single host has.
pub(super) fn host(field: &str, address: IpAddr) -> Result<()> {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    match address.is_unspecified() || address.is_multicast() || is_broadcast {
        true => Err(RuleError::new(field, format!("{address} is no host's"))),
        false => Ok(()),
    }
}

/// The Ethernet address of a VNF's interface.
pub(super) fn mac(field: &str, bytes: &[u8]) -> Result<MacAddress> {
    let bytes = bytes
        .try_into()
        .map_err(|_| RuleError::new(field, "give 6 bytes"))?;
    let mac = MacAddress(bytes);
    match mac.is_group() || mac == MacAddress::default() {
        true => Err(RuleError::new(field, format!("{mac} is no interface's"))),
        false => Ok(mac),
    }
}

pub(super) fn label(field: &str, value: u32) -> Result<Label> {
    Label::new(value)
        .ok_or_else(|| RuleError::new(field, format!("{value} is no label; give 16 to 1048575")))
}

pub(super) fn even_label(field: &str, value: u32) -> Result<Label> {
    if value % 2 == 1 {
        return Err(RuleError::new(
            field,
            format!("{value} is odd; the last bit is the direction"),
        ));
    }
    label(field, value)
}

pub(super) fn vlan(field: &str, value: u32) -> Result<u16> {
    u16::try_from(value)
        .ok()
        .filter(|&vlan| vlan < 4095)
        .ok_or_else(|| RuleError::new(field, format!("{value} is no VLAN; give 0 to 4094")))
}

pub(super) fn mtu(field: &str, value: u32) -> Result<usize> {
    match value {
        0 => Ok(DEFAULT_MTU),
        576..=9216 => Ok(value as usize),
        _ => Err(RuleError::new(
            field,
            format!("{value} is out of range; give 576 to 9216"),
        )),
    }
}

pub(super) fn seed(bytes: &[u8]) -> Result<[u8; 16]> {
    match bytes.len() {
        0 => Ok([0; 16]),
        16 => Ok(std::array::from_fn(|i| bytes[i])),
        length => Err(RuleError::new(
            "selection_seed",
            format!("has {length} bytes; give 16"),
        )),
    }
}

pub(super) fn timeouts(timers: Option<&contract::FlowTimers>) -> Result<flow::Timeouts> {
    let mut timeouts = flow::Timeouts::default();
    let Some(timers) = timers else {
        return Ok(timeouts);
    };
    let fields = [
        (
            "tcp_opening",
            timers.tcp_opening,
            &mut timeouts.tcp_unanswered,
        ),
        (
            "tcp_established",
            timers.tcp_established,
            &mut timeouts.tcp_established,
        ),
        ("tcp_closing", timers.tcp_closing, &mut timeouts.tcp_closed),
        (
            "udp_unreplied",
            timers.udp_unreplied,
            &mut timeouts.udp_unanswered,
        ),
        (
            "udp_replied",
            timers.udp_replied,
            &mut timeouts.udp_answered,
        ),
        ("icmp", timers.icmp, &mut timeouts.icmp),
    ];
    for (name, value, field) in fields {
        if value > flow::MAX_IDLE {
            return Err(RuleError::new(
                format!("timers.{name}"),
                format!(
                    "{value} seconds are too long; give at most {}",
                    flow::MAX_IDLE
                ),
            ));
        }
        if value != 0 {
            *field = value;
        }
    }
    Ok(timeouts)
}

/// Refuses a Linux interface that a port before has too: both would show each of its frames.
pub(super) fn other_device(
    field: &str,
    port: &contract::Port,
    before: &[contract::Port],
) -> Result<()> {
    let interface = |port: &contract::Port| match &port.device {
        Some(Device::AfPacket(name) | Device::AfXdp(name)) => Some(name.clone()),
        _ => None,
    };
    let Some(own) = interface(port) else {
        return Ok(());
    };
    match before
        .iter()
        .find(|other| interface(other).as_ref() == Some(&own))
    {
        Some(other) => {
            let name = match &port.device {
                Some(Device::AfXdp(_)) => "af_xdp",
                _ => "af_packet",
            };
            Err(RuleError::new(
                format!("{field}.{name}"),
                format!("port {:?} is on {own:?} too", other.name),
            ))
        }
        None => Ok(()),
    }
}

/// Longest path of a Unix socket, in bytes.
const LONGEST_SOCKET_PATH: usize = 107;
/// Longest name of a Linux interface, in bytes.
const LONGEST_INTERFACE: usize = 15;

/// Checks what a port is to be opened on. Names go into DPDK's arguments, which commas separate.
pub fn device(field: &str, device: Option<&Device>) -> Result<()> {
    let wrong =
        |name: &str, problem: String| Err(RuleError::new(format!("{field}.{name}"), problem));
    match device {
        None => Err(RuleError::new(
            field,
            "give a device: af_packet, af_xdp, vhost_user, devargs or native",
        )),
        Some(Device::AfPacket(interface)) if !is_interface(interface) => {
            wrong("af_packet", format!("{interface:?} is no interface name"))
        }
        Some(Device::AfXdp(interface)) if !is_interface(interface) => {
            wrong("af_xdp", format!("{interface:?} is no interface name"))
        }
        Some(Device::VhostUser(path))
            if !path.starts_with('/')
                || path.len() > LONGEST_SOCKET_PATH
                || path.contains([',', '\0']) =>
        {
            wrong(
                "vhost_user",
                format!(
                    "{path:?} is no socket; give an absolute path of at most {LONGEST_SOCKET_PATH} bytes without commas"
                ),
            )
        }
        Some(Device::Devargs(devargs)) if devargs.is_empty() => {
            wrong("devargs", "give the device's arguments".to_string())
        }
        Some(_) => Ok(()),
    }
}

fn is_interface(name: &str) -> bool {
    let fits = (1..=LONGEST_INTERFACE).contains(&name.len()) && name != "." && name != "..";
    fits && !name
        .contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':' | ','))
}
