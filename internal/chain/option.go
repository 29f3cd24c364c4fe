package chain

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
)

// OptionTypes are the types of a VNF's options.
var OptionTypes = []string{"string", "integer", "number", "boolean", "prefix", "prefix-list", "firewall-rules", "verdict"}

// checkOption reports what is wrong with a value of an option: values are those of JSON.
func checkOption(f *Findings, field, kind string, value any) {
	switch kind {
	case "string":
		if _, ok := value.(string); !ok {
			wrongType(f, field, "a string", value)
		}
	case "integer":
		if n, ok := value.(float64); !ok || n != math.Trunc(n) || !finite(n) {
			wrongType(f, field, "an integer", value)
		}
	case "number":
		if n, ok := value.(float64); !ok || !finite(n) {
			wrongType(f, field, "a number", value)
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			wrongType(f, field, "true or false", value)
		}
	case "prefix":
		checkPrefixValue(f, field, value)
	case "prefix-list":
		eachString(f, field, "a list of prefixes", value, checkPrefixValue)
	case "verdict":
		checkWord(f, field, value, "accept", "drop")
	case "firewall-rules":
		checkRules(f, field, value)
	}
}

func wrongType(f *Findings, field, wanted string, value any) {
	f.Add(field, fmt.Sprintf("%s is not %s", describe(value), wanted), "write "+wanted)
}

// describe names a JSON value for people.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprint(value)
}

func checkPrefixValue(f *Findings, field string, value any) {
	text, ok := value.(string)
	if !ok {
		wrongType(f, field, "a prefix such as 10.1.0.0/24", value)
		return
	}
	ParsePrefix(f, field, text)
}

// mappedBits are those before the IPv4 address in an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2).
const mappedBits = 96

// ParsePrefix reads a prefix in CIDR notation; the bits behind its length must be 0. No packet bears an IPv4-mapped
// address, so a prefix of those is refused.
func ParsePrefix(f *Findings, field, text string) netip.Prefix {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		fix := "write for example 10.1.0.0/24 or 2001:db8::/64"
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			fix = fmt.Sprintf("write %s/%d for the one address", a, a.BitLen())
		}
		f.Add(field, fmt.Sprintf("%q is no prefix", text), fix)
	case p.Addr().Is4In6():
		fix := "write it as IPv4, for example 10.1.0.0/24"
		if bits := p.Bits() - mappedBits; bits >= 0 {
			fix = fmt.Sprintf("write %s", netip.PrefixFrom(p.Addr().Unmap(), bits).Masked())
		}
		f.Add(field, fmt.Sprintf("%q is IPv4 written as IPv6", text), fix)
	case p != p.Masked():
		f.Add(field, fmt.Sprintf("%q has address bits behind its length", text), fmt.Sprintf("write %s", p.Masked()))
	}
	return p.Masked()
}

func eachString(f *Findings, field, wanted string, value any, check func(*Findings, string, any)) {
	list, ok := value.([]any)
	if !ok {
		wrongType(f, field, wanted, value)
		return
	}
	for i, item := range list {
		check(f, fmt.Sprintf("%s[%d]", field, i), item)
	}
}

// checkWord takes one of several words; the empty one, last, stands for a field left out.
func checkWord(f *Findings, field string, value any, words ...string) {
	for _, w := range words {
		if value == w {
			return
		}
	}
	fix := "write " + strings.Join(words, " or ")
	if shorter, optional := strings.CutSuffix(fix, " or "); optional {
		fix = shorter + ", or leave it out"
	}
	f.Add(field, describe(value)+" is not allowed", fix)
}

// ruleFields are the fields of a firewall rule and their checks.
var ruleFields = map[string]func(f *Findings, field string, value any){
	"sourcePrefixes": func(f *Findings, field string, v any) {
		eachString(f, field, "a list of prefixes", v, checkPrefixValue)
	},
	"destinationPrefixes": func(f *Findings, field string, v any) {
		eachString(f, field, "a list of prefixes", v, checkPrefixValue)
	},
	"protocol": func(f *Findings, field string, v any) { checkWord(f, field, v, "tcp", "udp", "icmp", "icmpv6", "") },
	"destinationPorts": func(f *Findings, field string, v any) {
		eachString(f, field, "a list of ports", v, checkPortValue)
	},
	"verdict":   func(f *Findings, field string, v any) { checkWord(f, field, v, "accept", "drop") },
	"direction": func(f *Findings, field string, v any) { checkWord(f, field, v, "forward", "reverse", "both", "") },
}

func checkPortValue(f *Findings, field string, value any) {
	text, ok := value.(string)
	if !ok {
		f.Add(field, describe(value)+" is not a string", `write "80" or "8000-8080", in quotes`)
		return
	}
	ParsePorts(f, field, text)
}

func checkRules(f *Findings, field string, value any) {
	list, ok := value.([]any)
	if !ok {
		wrongType(f, field, "a list of firewall rules", value)
		return
	}
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		rule, ok := item.(map[string]any)
		if !ok {
			wrongType(f, at, "a firewall rule", item)
			continue
		}
		for _, name := range sortedKeys(rule) {
			if check := ruleFields[name]; check != nil {
				check(f, at+"."+name, rule[name])
			} else {
				f.Add(at+"."+name, "a firewall rule has no such field", "use one of "+strings.Join(sortedKeys(ruleFields), ", "))
			}
		}
		if _, given := rule["verdict"]; !given {
			f.Add(at+".verdict", "is missing", "write accept or drop")
		}
		if ports, given := rule["destinationPorts"]; given && ports != nil && rule["protocol"] != "tcp" && rule["protocol"] != "udp" {
			f.Add(at+".destinationPorts", "ports need the protocol tcp or udp", "add protocol: tcp or protocol: udp")
		}
	}
}
