//! Has ports deal packets out so that they arrive at their homes ([`crate::home`]): by the outer UDP source port where they come out of
//! tunnels, by the inner packet's own addresses and ports elsewhere.
//!
//! What arrives elsewhere all the same is handed over; nothing here has to be right for a packet to be steered right.
//!
//! - The kernel deals the frames of packet sockets by a [`program`], which works out homes as workers do.
//! - A network card cannot. But it can deal out what comes from tunnels ([`card`]).

pub mod card;

use crate::entropy::{MIX, PORT_BITS};
use crate::home::Homes;
use packet_socket::program::{Condition, Label, Operand, Operation, Program, Width, Writer};
use wire::{ethernet, icmpv4, icmpv6, ip, mpls_in_udp, tcp, udp, vxlan, vxlan_gpe};

use Condition::{HasAnyOf, Is, IsNotBelowIndex};
use Operand::{Index, Number};
use Operation::{Add, And, Multiply, Or, ShiftLeft, ShiftRight, Xor};

/// Bits of a fragment's offset, and the one that says that more follow (RFC 791, section 3.1).
const FRAGMENT: u32 = 0x3fff;
/// Bits of a tag that name a VLAN (IEEE 802.1Q).
const VLAN: u32 = 0xfff;
const TCP: u32 = tcp::PROTOCOL as u32;
const UDP: u32 = udp::PROTOCOL as u32;

/// Places of the program's memory.
mod place {
    /// The ends, and both ports.
    pub const SOURCE: u32 = 0;
    pub const DESTINATION: u32 = 1;
    pub const PORTS: u32 = 2;
    /// Two numbers to multiply; their upper halves, then.
    pub const ONE: u32 = 3;
    pub const OTHER: u32 = 4;
    /// Their lower halves.
    pub const LOW_ONE: u32 = 5;
    pub const LOW_OTHER: u32 = 6;
    /// Products of halves, and what is in the middle.
    pub const LOW_LOW: u32 = 7;
    pub const LOW_HIGH: u32 = 8;
    pub const HIGH_LOW: u32 = 9;
    pub const MIDDLE: u32 = 10;
    /// The sum of products.
    pub const SUM_HIGH: u32 = 11;
    pub const SUM_LOW: u32 = 12;
    /// A product.
    pub const LOW: u32 = 13;
    /// Where the packet begins in the frame.
    pub const START: u32 = 14;
    pub const HIGH: u32 = 15;
}

/// The program by which the kernel deals the frames of an interface out among workers. Of the tags in front of a packet it knows the one
/// that the kernel takes out. `has_tunnels` says whether tunnels end at the interface: in front of their packets there is no tag.
pub fn program(homes: &Homes, has_tunnels: bool) -> Program {
    let mut program = Dealing {
        writer: Writer::default(),
        homes,
        has_tunnels,
    };
    program.write();
    program.writer.finish()
}

struct Dealing<'a> {
    writer: Writer,
    homes: &'a Homes,
    has_tunnels: bool,
}

/// Where the parts of the program go on.
struct Ways {
    /// X is where the transport header begins, which shows ports.
    ports: Label,
    /// The same, of UDP.
    udp: Label,
    /// A is the identifier of an echo.
    echo: Label,
    without_ports: Label,
}

impl Dealing<'_> {
    fn write(&mut self) {
        let w = &mut self.writer;
        let (v4, v6) = (w.label(), w.label());
        let ways = Ways {
            ports: w.label(),
            udp: w.label(),
            echo: w.label(),
            without_ports: w.label(),
        };
        self.find_packet(&v4, &v6);
        self.writer.put(v4);
        self.read_v4(&ways);
        self.writer.put(v6);
        self.read_v6(&ways);
        self.read_ports(ways);
    }

    /// Goes on where packets of its version do, with X where it begins.
    fn find_packet(&mut self, v4: &Label, v6: &Label) {
        let w = &mut self.writer;
        let (labels, service_header, at_start, found) =
            (w.label(), w.label(), w.label(), w.label());
        w.load_ether_type();
        w.jump_if(Is(ethernet::IPV4.into()), &at_start);
        w.jump_if(Is(ethernet::IPV6.into()), &at_start);
        w.jump_if(Is(ethernet::MPLS.into()), &labels);
        w.jump_if(Is(ethernet::NSH.into()), &service_header);
        w.end_with(0);
        w.put(labels);
        w.set(2 * wire::mpls::ENTRY_LENGTH as u32);
        w.jump(&found);
        w.put(service_header);
        // Its length is in words of four bytes (RFC 8300, section 2.2).
        w.load(Width::Byte, 1);
        w.apply(And, Number(0x3f));
        w.apply(ShiftLeft, Number(2));
        w.jump(&found);
        w.put(at_start);
        w.set(0);
        w.put(found);
        w.keep(place::START);
        w.make_index();
        w.load_behind_index(Width::Byte, 0);
        w.apply(ShiftRight, Number(4));
        w.jump_if(Is(4), v4);
        w.jump_if(Is(6), v6);
        w.end_with(0);
    }

    fn read_v4(&mut self, ways: &Ways) {
        let w = &mut self.writer;
        for (at, end) in [(12, place::SOURCE), (16, place::DESTINATION)] {
            w.load_behind_index(Width::Word, at);
            w.keep(end);
        }
        w.load_behind_index(Width::Half, 6);
        w.jump_if(HasAnyOf(FRAGMENT), &ways.without_ports);
        w.load_behind_index(Width::Byte, 9);
        w.keep(place::ONE);
        w.load_behind_index(Width::Byte, 0);
        w.apply(And, Number(0xf));
        w.apply(ShiftLeft, Number(2));
        w.apply(Add, Index);
        w.make_index();
        let echoes = [icmpv4::ECHO_REQUEST, icmpv4::ECHO_REPLY];
        self.read_transport(ways, (ip::ICMP, echoes));
    }

    fn read_v6(&mut self, ways: &Ways) {
        for (at, end) in [(8, place::SOURCE), (24, place::DESTINATION)] {
            self.fold(at);
            self.writer.keep(end);
        }
        let w = &mut self.writer;
        w.recall_index(place::START);
        w.load_behind_index(Width::Byte, 6);
        w.keep(place::ONE);
        w.recall(place::START);
        w.apply(Add, Number(wire::ipv6::HEADER_LENGTH as u32));
        w.make_index();
        let echoes = [icmpv6::ECHO_REQUEST, icmpv6::ECHO_REPLY];
        self.read_transport(ways, (ip::ICMPV6, echoes));
    }

    /// X is where the transport header begins, and [`place::ONE`] its protocol.
    fn read_transport(&mut self, ways: &Ways, (protocol, echoes): (u8, [u8; 2])) {
        let w = &mut self.writer;
        let control = w.label();
        w.recall(place::ONE);
        w.jump_if(Is(TCP), &ways.ports);
        w.jump_if(Is(UDP), &ways.udp);
        w.jump_if(Is(protocol.into()), &control);
        w.jump(&ways.without_ports);
        w.put(control);
        w.load_behind_index(Width::Byte, 0);
        for echo in echoes {
            w.jump_if(Is(echo.into()), &ways.echo);
        }
        w.jump(&ways.without_ports);
    }

    fn read_ports(&mut self, ways: Ways) {
        let w = &mut self.writer;
        let (tunnel, mix, settle) = (w.label(), w.label(), w.label());
        w.put(ways.udp);
        if self.has_tunnels {
            // What is behind labels or a tag is a customer's, whatever its ports are.
            w.recall(place::START);
            w.jump_if(HasAnyOf(u32::MAX), &ways.ports);
            w.load_tag();
            w.jump_if(HasAnyOf(VLAN), &ways.ports);
            w.load_behind_index(Width::Half, 2);
            for port in [vxlan::PORT, mpls_in_udp::PORT, vxlan_gpe::PORT] {
                w.jump_if(Is(port.into()), &tunnel);
            }
        }
        w.put(ways.ports);
        w.load_behind_index(Width::Word, 0);
        w.jump(&mix);
        w.put(ways.echo);
        w.load_behind_index(Width::Half, 4);
        w.make_index();
        w.apply(ShiftLeft, Number(16));
        w.apply(Or, Index);
        w.jump(&mix);
        w.put(ways.without_ports);
        w.set(0);
        w.put(mix);
        w.keep(place::PORTS);
        self.mix();
        let w = &mut self.writer;
        w.apply(ShiftRight, Number(u32::BITS - PORT_BITS));
        w.jump(&settle);
        w.put(tunnel);
        w.load_behind_index(Width::Half, 0);
        w.apply(And, Number((1 << PORT_BITS) - 1));
        w.put(settle);
        w.apply(Multiply, Number(self.homes.workers() as u32));
        w.apply(ShiftRight, Number(PORT_BITS));
        w.end();
    }

    /// A = the entropy of the connection, as [`crate::entropy::Entropy`] has it.
    fn mix(&mut self) {
        let entropy = *self.homes.entropy();
        let w = &mut self.writer;
        begin_sum(w);
        for (end, number) in [
            (place::SOURCE, place::ONE),
            (place::DESTINATION, place::OTHER),
        ] {
            w.recall(end);
            w.apply(Xor, Number(entropy.ends));
            w.keep(number);
        }
        add_product(w);
        w.recall(place::PORTS);
        w.apply(Xor, Number(entropy.ports));
        w.keep(place::ONE);
        // The ports, the other one in front.
        w.recall(place::PORTS);
        w.apply(ShiftRight, Number(16));
        w.keep(place::OTHER);
        w.recall_index(place::OTHER);
        w.recall(place::PORTS);
        w.apply(ShiftLeft, Number(16));
        w.apply(Or, Index);
        w.apply(Xor, Number(entropy.ports));
        w.keep(place::OTHER);
        add_product(w);
        fold_sum(w);
        w.apply(Multiply, Number(MIX));
    }

    /// A = the IPv6 address at so many bytes of the packet, as an end.
    fn fold(&mut self, at: u32) {
        let words = self.homes.entropy().words;
        let w = &mut self.writer;
        begin_sum(w);
        for (pair, keys) in words.chunks_exact(2).enumerate() {
            for (word, key) in keys.iter().enumerate() {
                let at = at + 8 * pair as u32 + 4 * word as u32;
                w.recall_index(place::START);
                w.load_behind_index(Width::Word, at);
                w.apply(Add, Number(*key));
                w.keep([place::ONE, place::OTHER][word]);
            }
            add_product(w);
        }
        fold_sum(w);
    }
}

fn begin_sum(w: &mut Writer) {
    w.set(0);
    w.keep(place::SUM_HIGH);
    w.keep(place::SUM_LOW);
}

/// A = both halves of the sum in one.
fn fold_sum(w: &mut Writer) {
    w.recall(place::SUM_HIGH);
    w.recall_index(place::SUM_LOW);
    w.apply(Xor, Index);
}

/// Adds the product of [`place::ONE`] and [`place::OTHER`], of 64 bits, to the sum. The machine multiplies 32 bits and keeps 32: halves are
/// multiplied, as on paper.
fn add_product(w: &mut Writer) {
    for (number, low) in [
        (place::ONE, place::LOW_ONE),
        (place::OTHER, place::LOW_OTHER),
    ] {
        lower_half(w, number);
        w.keep(low);
        upper_half(w, number);
        w.keep(number);
    }
    for (one, other, to) in [
        (place::LOW_ONE, place::LOW_OTHER, place::LOW_LOW),
        (place::LOW_ONE, place::OTHER, place::LOW_HIGH),
        (place::ONE, place::LOW_OTHER, place::HIGH_LOW),
        (place::ONE, place::OTHER, place::HIGH),
    ] {
        w.recall(one);
        w.recall_index(other);
        w.apply(Multiply, Index);
        w.keep(to);
    }
    upper_half(w, place::LOW_LOW);
    w.keep(place::MIDDLE);
    for part in [place::LOW_HIGH, place::HIGH_LOW] {
        lower_half(w, part);
        add_to(w, place::MIDDLE);
        upper_half(w, part);
        add_to(w, place::HIGH);
    }
    upper_half(w, place::MIDDLE);
    add_to(w, place::HIGH);
    lower_half(w, place::LOW_LOW);
    w.keep(place::LOW);
    w.recall(place::MIDDLE);
    w.apply(ShiftLeft, Number(16));
    add_to(w, place::LOW);
    // Into the sum; one more above where the lower halves run over.
    w.recall(place::LOW);
    add_to(w, place::SUM_LOW);
    let fits = w.label();
    w.recall_index(place::LOW);
    w.jump_if(IsNotBelowIndex, &fits);
    w.set(1);
    add_to(w, place::SUM_HIGH);
    w.put(fits);
    w.recall(place::HIGH);
    add_to(w, place::SUM_HIGH);
}

fn lower_half(w: &mut Writer, of: u32) {
    w.recall(of);
    w.apply(And, Number(0xffff));
}

fn upper_half(w: &mut Writer, of: u32) {
    w.recall(of);
    w.apply(ShiftRight, Number(16));
}

/// A place = the place + A, and so is A.
fn add_to(w: &mut Writer, place: u32) {
    w.recall_index(place);
    w.apply(Add, Index);
    w.keep(place);
}
