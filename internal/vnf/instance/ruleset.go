package instance

import (
	"fmt"
	"net/netip"
	"strings"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// slot is a place in an instance with all that its rules need.
type slot struct {
	record *record
	index  int
	filter filterOptions
	// source is the address that a NAT puts in, per place; invalid where the instance is none.
	source netip.Addr
	// vlan tells a transparent instance's places apart.
	vlan int
}

// A ruleset replaces the whole table in one transaction: connections that are established stay so, and no packet sees
// half of it.
const replaceTable = "add table %[1]s switchboard\ndelete table %[1]s switchboard\ntable %[1]s switchboard {\n"

// filterRuleset is a stateful firewall: what belongs to an accepted connection passes, the first rule that matches a new
// one decides.
func filterRuleset(slots []slot) string {
	var b strings.Builder
	fmt.Fprintf(&b, replaceTable, "inet")
	writeZones(&b, slots)
	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n")
	passProbes(&b)
	b.WriteString("\t\tct state established,related accept\n\t\tct state invalid drop\n")
	for _, s := range slots {
		fmt.Fprintf(&b, "\t\tiifname %q oifname %q jump forward%d\n", ingressName(s.index), egressName(s.index), s.index)
		fmt.Fprintf(&b, "\t\tiifname %q oifname %q jump reverse%d\n", egressName(s.index), ingressName(s.index), s.index)
	}
	b.WriteString("\t}\n")
	for _, s := range slots {
		writeFilterChain(&b, fmt.Sprintf("forward%d", s.index), s.filter, "forward", s.filter.verdict)
		writeFilterChain(&b, fmt.Sprintf("reverse%d", s.index), s.filter, "reverse", s.filter.verdict)
	}
	b.WriteString("}\n")
	return b.String()
}

// writeZones gives each place a connection tracking zone, the same on both sides.
func writeZones(b *strings.Builder, slots []slot) {
	b.WriteString("\tchain zones {\n\t\ttype filter hook prerouting priority raw; policy accept;\n")
	fmt.Fprintf(b, "\t\tmeta mark %#x notrack accept\n", hostnet.ProbeMark)
	for _, s := range slots {
		fmt.Fprintf(b, "\t\tiifname { %q, %q } ct zone set %d\n", ingressName(s.index), egressName(s.index), s.index)
	}
	b.WriteString("\t}\n")
}

// passProbes lets the agent's probes through; no packet from outside bears their mark.
func passProbes(b *strings.Builder) {
	fmt.Fprintf(b, "\t\tmeta mark %#x accept\n", hostnet.ProbeMark)
}

func writeFilterChain(b *strings.Builder, name string, options filterOptions, direction, verdict string) {
	fmt.Fprintf(b, "\tchain %s {\n", name)
	for _, rule := range options.rules {
		if !speaksOf(rule, direction) {
			continue
		}
		for _, line := range filterLines(rule) {
			fmt.Fprintf(b, "\t\t%scounter %s\n", line, rule.Verdict)
		}
	}
	fmt.Fprintf(b, "\t\tcounter %s\n\t}\n", verdict)
}

func speaksOf(rule *api.FirewallRule, direction string) bool {
	return rule.Direction == "both" || rule.Direction == direction || rule.Direction == "" && direction == "forward"
}

// filterLines are a rule's conditions, once for each address family that it can match.
func filterLines(rule *api.FirewallRule) []string {
	transport := ""
	switch {
	case len(rule.DestinationPorts) > 0:
		transport = fmt.Sprintf("%s dport { %s } ", rule.Protocol, strings.Join(rule.DestinationPorts, ", "))
	case rule.Protocol == "icmpv6":
		transport = "meta l4proto ipv6-icmp "
	case rule.Protocol != "":
		transport = "meta l4proto " + rule.Protocol + " "
	}
	if len(rule.SourcePrefixes)+len(rule.DestinationPrefixes) == 0 {
		return []string{transport}
	}
	var lines []string
	for _, family := range []string{"ip", "ip6"} {
		source, destination := ofFamily(rule.SourcePrefixes, family), ofFamily(rule.DestinationPrefixes, family)
		if len(rule.SourcePrefixes) > 0 && len(source) == 0 || len(rule.DestinationPrefixes) > 0 && len(destination) == 0 {
			continue
		}
		line := ""
		if len(source) > 0 {
			line += fmt.Sprintf("%s saddr { %s } ", family, strings.Join(source, ", "))
		}
		if len(destination) > 0 {
			line += fmt.Sprintf("%s daddr { %s } ", family, strings.Join(destination, ", "))
		}
		lines = append(lines, line+transport)
	}
	return lines
}

func ofFamily(prefixes []string, family string) []string {
	var kept []string
	for _, text := range prefixes {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() == (family == "ip") {
			kept = append(kept, text)
		}
	}
	return kept
}

// natRuleset rewrites the source of what goes from ingress to egress to the place's address.
func natRuleset(slots []slot) string {
	var b strings.Builder
	fmt.Fprintf(&b, replaceTable, "inet")
	writeZones(&b, slots)
	b.WriteString("\tchain rewrite {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n")
	for _, s := range slots {
		if s.source.Is4() {
			fmt.Fprintf(&b, "\t\tiifname %q oifname %q snat ip to %s\n", ingressName(s.index), egressName(s.index), s.source)
		} else if s.source.IsValid() {
			fmt.Fprintf(&b, "\t\tiifname %q oifname %q snat ip6 to %s\n", ingressName(s.index), egressName(s.index), s.source)
		}
	}
	b.WriteString("\t}\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n")
	passProbes(&b)
	b.WriteString("\t\tct state established,related accept\n\t\tct state invalid drop\n")
	for _, s := range slots {
		fmt.Fprintf(&b, "\t\tiifname %q oifname %q counter accept\n", ingressName(s.index), egressName(s.index))
	}
	b.WriteString("\t}\n}\n")
	return b.String()
}

// bridgeRuleset filters frames without state, a VLAN per place.
func bridgeRuleset(slots []slot) string {
	var b strings.Builder
	fmt.Fprintf(&b, replaceTable, "bridge")
	b.WriteString("\tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n")
	passProbes(&b)
	for _, s := range slots {
		fmt.Fprintf(&b, "\t\tiifname %q vlan id %d jump forward%d\n", ingressLink, s.vlan, s.index)
		fmt.Fprintf(&b, "\t\tiifname %q vlan id %d jump reverse%d\n", egressLink, s.vlan, s.index)
	}
	b.WriteString("\t}\n")
	for _, s := range slots {
		writeFilterChain(&b, fmt.Sprintf("forward%d", s.index), s.filter, "forward", s.filter.verdict)
		// Without state nobody knows an answer from a new connection: what is not forbidden by a reverse rule passes.
		writeFilterChain(&b, fmt.Sprintf("reverse%d", s.index), s.filter, "reverse", "accept")
	}
	b.WriteString("}\n")
	return b.String()
}
