//! The corpus of rule sets: small platforms, and what may become of them.

use crate::plan::{Chain, Instance, Plan, Role, SIBLING, chain, edge, instance};
use contracts::forwarder::attachment::Function;
use contracts::forwarder::port::Device;
use contracts::forwarder::{
    self as contract, AttachmentKind, AttachmentState, Encapsulation, RuleSet,
};

/// Platforms there are.
pub const PLATFORMS: usize = 9;
/// What may become of each: rules 0 are those at the start.
pub const VARIANTS: usize = 4;
/// Sites of every platform.
pub const SITES: usize = 2;
/// How names of native functions' ports begin.
pub const NATIVE: &str = "native";

/// The rules of a site, all numbers taken modulo how many there are.
pub fn rule_set(platform: usize, site: usize, variant: usize) -> RuleSet {
    let (platform, site, variant) = (platform % PLATFORMS, site % SITES, variant % VARIANTS);
    let mut plan = plan(platform);
    plan.generation = 1 + variant as u64;
    if variant == 1 {
        for instance in plan.chains[0].vnfs.iter_mut().flatten() {
            instance.state = AttachmentState::Draining;
        }
    }
    let mut set = plan.rules(forwarder(platform, site));
    match variant {
        2 => {
            for attachment in &mut set.attachments {
                attachment.set_state(AttachmentState::Dead);
            }
            for peer in &mut set.peers {
                peer.alive = false;
            }
        }
        3 => {
            // Ports change places, and the chain's path is gone.
            set.ports.reverse();
            set.paths.clear();
            set.timers = Some(contract::FlowTimers {
                udp_unreplied: 2,
                ..Default::default()
            });
        }
        _ => {}
    }
    match platform {
        5 => over_ipv6(&mut set, site),
        6 => native(&mut set),
        _ => {}
    }
    set
}

/// The forwarder whose rules those of a site are: on some platforms it is the second one of the first site.
fn forwarder(platform: usize, site: usize) -> usize {
    match (platform, site) {
        (7 | 8, 1) => SIBLING,
        _ => site,
    }
}

fn plan(platform: usize) -> Plan {
    let mut bump = instance(1, "bump", 100);
    bump.kind = AttachmentKind::Transparent;
    match platform {
        // A gateway at one site, a bump in the wire at the other.
        0 => Plan::new(
            2,
            chain(0, vec![vec![instance(1, "a", 100)], vec![bump]], 1),
        ),
        // Service headers between the sites, and VNFs that read the context themselves.
        1 => {
            let (mut labels, mut headers) =
                (instance(0, "labels", 100), instance(1, "headers", 100));
            labels.kind = AttachmentKind::LabelAwareMpls;
            headers.kind = AttachmentKind::LabelAwareNsh;
            bump.site = 0;
            let vnfs = vec![vec![labels], vec![headers], vec![bump]];
            let mut plan = Plan::new(SIBLING + 2, chain(0, vnfs, 1));
            plan.encapsulations = vec![Encapsulation::VxlanGpeNsh];
            plan
        }
        // No VNF, and an underlay that carries hardly more than an edge.
        2 => {
            let mut plan = Plan::new(2, chain(0, Vec::new(), 1));
            plan.wan_mtu = 700;
            plan
        }
        // Two customers on one port, apart by their VLAN, and instances to choose from.
        3 => {
            let mut one = chain(
                0,
                vec![vec![instance(0, "a", 100), instance(1, "b", 50)]],
                1,
            );
            one.routes = vec![(100, vec![0, 0, 1]), (50, vec![0, 1, 1])];
            let mut two = Chain {
                customer: "umbrella".into(),
                label: 2000,
                egress_label: 501,
                ingress: edge(0, "second-in", 3),
                egress: edge(1, "second-out", 4),
                internet: false,
                ..chain(0, vec![vec![instance(0, "c", 100)]], 1)
            };
            (one.ingress.vlan, two.ingress.vlan) = (10, 20);
            (one.egress.vlan, two.egress.vlan) = (11, 21);
            let mut plan = Plan::new(2, one);
            plan.chains.push(two);
            plan.encapsulations = vec![Encapsulation::MplsInUdp];
            plan
        }
        // Everything at one site.
        4 => Plan::new(
            2,
            chain(0, vec![vec![instance(0, "a", 1), instance(0, "b", 9)]], 0),
        ),
        // Two forwarders at a site: one gives instances what others still send it, or learns what is the other's.
        7 => beside([Role::Passing, Role::Preparing]),
        // One passes on to the other what others still send it, or is to have its instances again.
        8 => beside([Role::Gone, Role::Returning]),
        _ => Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1)),
    }
}

/// Instances that one forwarder of a site is at home with, and what the other one has to do with each.
fn beside(roles: [Role; 2]) -> Plan {
    let at = |site: usize, name: &str, role: Role| Instance {
        sibling: Some(role),
        ..instance(site, name, 100)
    };
    let [one, other] = roles;
    let vnfs = vec![vec![
        at(0, "a", one),
        at(SIBLING, "b", other),
        instance(0, "c", 50),
    ]];
    let mut plan = Plan::new(SIBLING + 2, chain(0, vnfs, 1));
    plan.remember();
    plan
}

/// Makes the attachments of the site native ones, between ports of their own: packets to port 22 are refused.
fn native(set: &mut RuleSet) {
    if set.attachments.is_empty() {
        return;
    }
    let [ingress, egress] = ["in", "out"].map(|side| format!("{NATIVE}-{side}"));
    for name in [&ingress, &egress] {
        set.ports.push(contract::Port {
            name: name.clone(),
            device: Some(Device::Native(contract::NativePort {})),
        });
    }
    let refused = contract::FilterRule {
        r#match: Some(contract::Match {
            destination_ports: vec![contract::PortRange {
                first: 22,
                last: 22,
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let filter = contract::PacketFilter {
        rules: vec![refused],
        accept_forward: true,
        accept_reverse: true,
    };
    for (attachment, vlan) in set.attachments.iter_mut().zip(2..) {
        attachment.kind = AttachmentKind::Native.into();
        (attachment.ingress_port, attachment.egress_port) = (ingress.clone(), egress.clone());
        (attachment.ingress_mac, attachment.egress_mac) = (Vec::new(), Vec::new());
        (attachment.ingress_vlan, attachment.egress_vlan) = (vlan, vlan);
        attachment.function = Some(Function::Filter(filter.clone()));
    }
}

fn over_ipv6(set: &mut RuleSet, site: usize) {
    if let Some(underlay) = &mut set.underlay {
        underlay.addresses = vec![format!("2001:db8:ff::{}/64", site + 1)];
    }
    for peer in &mut set.peers {
        peer.address = format!("2001:db8:ff::{}", 2 - site);
    }
}
