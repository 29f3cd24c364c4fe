package instance

import (
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

func TestOptionsSayWhatIsWrong(t *testing.T) {
	rule := func(fields map[string]any) map[string]any {
		if fields["verdict"] == nil {
			fields["verdict"] = "accept"
		}
		return map[string]any{"rules": []any{fields}}
	}
	for _, c := range []struct {
		options map[string]any
		want    string
	}{
		{map[string]any{"default": "maybe"}, `default: "maybe" is no verdict; write accept or drop`},
		{rule(map[string]any{"verdict": "reject"}), `rules[0].verdict: "reject" is no verdict`},
		{rule(map[string]any{"sourcePrefixes": []any{"10.1.0.0/24", "lan"}}), `rules[0].sourcePrefixes[1]: "lan" is no prefix; write for example 10.1.0.0/24`},
		{rule(map[string]any{"destinationPrefixes": []any{"10.0.0.0/33"}}), `rules[0].destinationPrefixes[0]: "10.0.0.0/33" is no prefix`},
		{rule(map[string]any{"protocol": "sctp"}), `rules[0].protocol: "sctp"; write tcp, udp, icmp or icmpv6, or leave it out`},
		{rule(map[string]any{"direction": "up"}), `rules[0].direction: "up"; write forward, reverse or both`},
		{rule(map[string]any{"destinationPorts": []any{"80"}}), "rules[0].destinationPorts: only for protocol tcp or udp"},
		{rule(map[string]any{"protocol": "tcp", "destinationPorts": []any{"http"}}), `rules[0].destinationPorts[0]: "http" is no port or range; write 80 or 8000-8080`},
		{rule(map[string]any{"protocol": "tcp", "destinationPorts": []any{"90-80"}}), `"90-80" is no port or range`},
		{rule(map[string]any{"protocol": "tcp", "destinationPorts": []any{"80 }; drop; {"}}), `is no port or range`},
		{rule(map[string]any{"protocol": "tcp", "destinationPorts": []any{"70000"}}), `"70000" is no port or range`},
		{rule(map[string]any{"port": "80"}), "rules[0]: "},
	} {
		s, err := structpb.NewStruct(c.options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readFilterOptions(s, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.options, err, c.want)
		}
	}
}

func TestOptionsAreFoundByTheirTypes(t *testing.T) {
	declared := []*api.VnfOption{
		{Name: "policy", Type: api.VnfOptionType_VNF_OPTION_TYPE_FIREWALL_RULES},
		{Name: "otherwise", Type: api.VnfOptionType_VNF_OPTION_TYPE_VERDICT, DefaultValue: structpb.NewStringValue("accept")},
	}
	given := options(t, map[string]any{"policy": []any{map[string]any{"verdict": "drop"}}})
	read, err := readFilterOptions(given, declared)
	if err != nil || len(read.rules) != 1 || read.verdict != "accept" {
		t.Errorf("got %+v, %v", read, err)
	}
	if read, err := readFilterOptions(nil, nil); err != nil || read.verdict != "drop" {
		t.Errorf("without options: %+v, %v", read, err)
	}
}

func TestFirewallRuleset(t *testing.T) {
	read, err := readFilterOptions(options(t, map[string]any{"rules": []any{
		map[string]any{"sourcePrefixes": []any{"10.1.0.0/24", "2001:db8::/32"}, "protocol": "tcp", "destinationPorts": []any{"80", "8000-8080"}, "verdict": "accept"},
		map[string]any{"sourcePrefixes": []any{"10.1.0.0/24"}, "destinationPrefixes": []any{"2001:db8::/32"}, "verdict": "accept"},
		map[string]any{"protocol": "icmpv6", "verdict": "accept", "direction": "both"},
		map[string]any{"destinationPrefixes": []any{"10.1.0.9/32"}, "verdict": "accept", "direction": "reverse"},
	}}), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `add table inet switchboard
delete table inet switchboard
table inet switchboard {
	chain zones {
		type filter hook prerouting priority raw; policy accept;
		meta mark 0x5b000001 notrack accept
		iifname { "i3", "e3" } ct zone set 3
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		meta mark 0x5b000001 accept
		ct state established,related accept
		ct state invalid drop
		iifname "i3" oifname "e3" jump forward3
		iifname "e3" oifname "i3" jump reverse3
	}
	chain forward3 {
		ip saddr { 10.1.0.0/24 } tcp dport { 80, 8000-8080 } counter accept
		ip6 saddr { 2001:db8::/32 } tcp dport { 80, 8000-8080 } counter accept
		meta l4proto ipv6-icmp counter accept
		counter drop
	}
	chain reverse3 {
		meta l4proto ipv6-icmp counter accept
		ip daddr { 10.1.0.9/32 } counter accept
		counter drop
	}
}
`
	if got := filterRuleset([]slot{{index: 3, filter: read}}); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestPoolsGiveEachAddressOnce(t *testing.T) {
	p, err := parsePool([]string{"203.0.113.16/30", "203.0.113.99", "2001:db8::/127"})
	if err != nil {
		t.Fatal(err)
	}
	used := map[netip.Addr]bool{}
	var given []string
	for {
		address, err := p.free(used)
		if err != nil {
			if !strings.Contains(err.Error(), "larger pool") {
				t.Error(err)
			}
			break
		}
		used[address] = true
		given = append(given, address.String())
	}
	// The first and last of a subnet are its own.
	if want := "203.0.113.17 203.0.113.18 203.0.113.99 2001:db8:: 2001:db8::1"; strings.Join(given, " ") != want {
		t.Errorf("got %v, want %s", given, want)
	}
	if _, err := parsePool([]string{"many"}); err == nil || !strings.Contains(err.Error(), `addressPool[0]: "many" is neither prefix nor address`) {
		t.Errorf("got %v", err)
	}
}
