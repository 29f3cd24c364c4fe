package instance

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

// filterOptions configure a filter for one place.
type filterOptions struct {
	rules []*api.FirewallRule
	// verdict is for packets that no rule speaks of: "accept" or "drop".
	verdict string
}

// readFilterOptions reads a chain's options by the types that the VNF declares: the rules are the option of type
// FIREWALL_RULES, the verdict that of type VERDICT. Without declarations they are called "rules" and "default".
func readFilterOptions(options *structpb.Struct, declared []*api.VnfOption) (filterOptions, error) {
	read := filterOptions{verdict: "drop"}
	name, value := optionOf(options, declared, api.VnfOptionType_VNF_OPTION_TYPE_VERDICT, "default")
	if value != nil {
		read.verdict = value.GetStringValue()
	}
	if err := checkVerdict(name, read.verdict); err != nil {
		return filterOptions{}, err
	}
	name, value = optionOf(options, declared, api.VnfOptionType_VNF_OPTION_TYPE_FIREWALL_RULES, "rules")
	for i, item := range value.GetListValue().GetValues() {
		field := fmt.Sprintf("%s[%d]", name, i)
		rule := &api.FirewallRule{}
		text, err := json.Marshal(item.AsInterface())
		if err == nil {
			err = protojson.Unmarshal(text, rule)
		}
		if err != nil {
			return filterOptions{}, fmt.Errorf("%s: %v", field, err)
		}
		if err := checkRule(field, rule); err != nil {
			return filterOptions{}, err
		}
		read.rules = append(read.rules, rule)
	}
	return read, nil
}

// optionOf finds the value of the option of a type, or its declared default.
func optionOf(options *structpb.Struct, declared []*api.VnfOption, kind api.VnfOptionType, name string) (string, *structpb.Value) {
	var fallback *structpb.Value
	for _, option := range declared {
		if option.Type == kind {
			name, fallback = option.Name, option.DefaultValue
			break
		}
	}
	if value := options.GetFields()[name]; value != nil {
		return name, value
	}
	return name, fallback
}

func checkVerdict(field, verdict string) error {
	if verdict != "accept" && verdict != "drop" {
		return fmt.Errorf("%s: %q is no verdict; write accept or drop", field, verdict)
	}
	return nil
}

// checkRule makes sure that a rule can be written into a ruleset: nothing of it reaches nft that was not parsed here.
func checkRule(field string, rule *api.FirewallRule) error {
	if err := checkVerdict(field+".verdict", rule.Verdict); err != nil {
		return err
	}
	for name, list := range map[string][]string{"sourcePrefixes": rule.SourcePrefixes, "destinationPrefixes": rule.DestinationPrefixes} {
		for i, text := range list {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("%s.%s[%d]: %q is no prefix; write for example 10.1.0.0/24", field, name, i, text)
			}
			list[i] = p.Masked().String()
		}
	}
	switch rule.Protocol {
	case "", "tcp", "udp", "icmp", "icmpv6":
	default:
		return fmt.Errorf("%s.protocol: %q; write tcp, udp, icmp or icmpv6, or leave it out", field, rule.Protocol)
	}
	switch rule.Direction {
	case "", "forward", "reverse", "both":
	default:
		return fmt.Errorf("%s.direction: %q; write forward, reverse or both", field, rule.Direction)
	}
	if len(rule.DestinationPorts) > 0 && rule.Protocol != "tcp" && rule.Protocol != "udp" {
		return fmt.Errorf("%s.destinationPorts: only for protocol tcp or udp", field)
	}
	for i, text := range rule.DestinationPorts {
		from, to, isRange := strings.Cut(text, "-")
		if !isRange {
			to = from
		}
		first, errFirst := strconv.ParseUint(from, 10, 16)
		last, errLast := strconv.ParseUint(to, 10, 16)
		if errFirst != nil || errLast != nil || first > last {
			return fmt.Errorf("%s.destinationPorts[%d]: %q is no port or range; write 80 or 8000-8080", field, i, text)
		}
		rule.DestinationPorts[i] = fmt.Sprint(first)
		if last != first {
			rule.DestinationPorts[i] = fmt.Sprintf("%d-%d", first, last)
		}
	}
	return nil
}
