package matches

import (
	"reflect"
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

func TestMatchesSayWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		match *api.Match
		want  string
	}{
		{&api.Match{SourcePrefixes: []string{"10.1.0.0/24", "10.1"}}, `sourcePrefixes[1]: "10.1" is no prefix; write for example 10.1.0.0/24`},
		{&api.Match{DestinationPrefixes: []string{"::/200"}}, `destinationPrefixes[0]: "::/200" is no prefix`},
		{&api.Match{Protocols: []string{"tcp", "256"}}, `protocols[1]: "256" is no protocol`},
		{&api.Match{SourcePorts: []string{"90-80"}}, `sourcePorts[0]: the range "90-80" ends before it begins; write "80-90"`},
		{&api.Match{DestinationPorts: []string{"70000"}}, `destinationPorts[0]: "70000" is no port or range of ports`},
	} {
		f := &chain.Findings{}
		if Parse("", test.match, f); len(f.All) != 1 || !strings.HasPrefix(f.All[0].String(), test.want) {
			t.Errorf("%v: %v, want %s", test.match, f.All, test.want)
		}
	}
}

func match(t *testing.T, m *api.Match) chain.Match {
	t.Helper()
	f := &chain.Findings{}
	parsed := Parse("", m, f)
	if len(f.All) > 0 {
		t.Fatal(f.All)
	}
	return parsed
}

func TestNarrowerMatchesComeFirst(t *testing.T) {
	all := match(t, &api.Match{})
	tcp := match(t, &api.Match{Protocols: []string{"tcp"}})
	web := match(t, &api.Match{Protocols: []string{"6"}, DestinationPorts: []string{"80", "8000-8080"}})
	lan := match(t, &api.Match{SourcePrefixes: []string{"10.1.0.0/24"}})
	got := chain.MostSpecificFirst([]chain.Match{all, tcp, lan, web}, func(m chain.Match) chain.Match { return m })
	if want := []chain.Match{lan, web, tcp, all}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestOverlapNeedsEveryField(t *testing.T) {
	a := match(t, &api.Match{SourcePrefixes: []string{"10.1.0.0/16"}, DestinationPorts: []string{"80-90"}})
	for text, other := range map[string]struct {
		m    *api.Match
		want bool
	}{
		"inside":          {&api.Match{SourcePrefixes: []string{"10.1.2.0/24"}, DestinationPorts: []string{"85"}}, true},
		"other port":      {&api.Match{SourcePrefixes: []string{"10.1.2.0/24"}, DestinationPorts: []string{"91"}}, false},
		"other prefix":    {&api.Match{SourcePrefixes: []string{"10.2.0.0/16"}}, false},
		"other family":    {&api.Match{SourcePrefixes: []string{"::/0"}}, false},
		"everything":      {&api.Match{}, true},
		"touching ranges": {&api.Match{DestinationPorts: []string{"90-100"}}, true},
	} {
		b := match(t, other.m)
		if a.Overlaps(b) != other.want || b.Overlaps(a) != other.want {
			t.Errorf("%s: overlap %v, want %v", text, a.Overlaps(b), other.want)
		}
	}
}

func TestAnEdgeNarrowsAMatchToWhatIsBehindIt(t *testing.T) {
	for _, test := range []struct{ match, behind, want, joined []string }{
		{nil, []string{"10.9.0.0/24"}, []string{"10.9.0.0/24"}, []string{"10.9.0.0/24"}},
		{[]string{"10.0.0.0/8"}, []string{"10.9.0.0/24", "10.8.0.0/24"}, []string{"10.9.0.0/24", "10.8.0.0/24"}, []string{"10.9.0.0/24", "10.8.0.0/24"}},
		{[]string{"10.9.0.7/32", "2001:db8::/64"}, []string{"10.9.0.0/24"}, []string{"10.9.0.7/32"}, []string{"10.9.0.7/32"}},
		{[]string{"10.1.0.0/24"}, nil, []string{"10.1.0.0/24"}, []string{"10.1.0.0/24"}},
		{[]string{"10.1.0.0/24"}, []string{"10.9.0.0/24"}, nil, []string{"10.9.0.0/24"}},
	} {
		m := match(t, &api.Match{SourcePrefixes: test.match})
		got, any := m.From(test.behind)
		if !reflect.DeepEqual(got.SourceStrings(), test.want) || any != (len(test.want) > 0) {
			t.Errorf("%v from %v: %v, %v", test.match, test.behind, got.SourceStrings(), any)
		}
		if joined := m.FromJoined(test.behind).SourceStrings(); !reflect.DeepEqual(joined, test.joined) {
			t.Errorf("%v from %v that joined: %v", test.match, test.behind, joined)
		}
	}
}

// Users behind an edge can be a chain's only where the match, both ends and the protocol have a family in common.
func TestJoiningNeedsAFamilyInCommon(t *testing.T) {
	v4, v6, both := []string{"10.9.0.0/24"}, []string{"2001:db8:9::/48"}, []string{"10.9.0.0/24", "2001:db8:9::/48"}
	internet4, internet := []string{"0.0.0.0/0"}, []string{"0.0.0.0/0", "::/0"}
	for name, c := range map[string]struct {
		match    *api.Match
		from, to []string
		want     bool
	}{
		"everything":                          {&api.Match{}, v4, internet, true},
		"IPv6 destinations":                   {&api.Match{DestinationPrefixes: []string{"::/0"}}, v4, internet, false},
		"IPv6 destinations, both families":    {&api.Match{DestinationPrefixes: []string{"::/0"}}, both, internet, true},
		"IPv6 users, egress without":          {&api.Match{}, v6, internet4, false},
		"match of both, no family in common":  {&api.Match{DestinationPrefixes: []string{"::/0", "192.0.2.0/24"}}, v4, v6, false},
		"destinations not behind the egress":  {&api.Match{DestinationPrefixes: []string{"192.0.2.0/24"}}, v4, []string{"198.51.100.0/24"}, false},
		"planned users of the other family":   {&api.Match{SourcePrefixes: v6}, v4, internet, false},
		"other planned users":                 {&api.Match{SourcePrefixes: []string{"10.1.0.0/24"}}, v4, internet, true},
		"ICMPv6 from IPv4 users":              {&api.Match{Protocols: []string{"icmpv6"}}, v4, internet, false},
		"ICMP or TCP from IPv6 users":         {&api.Match{Protocols: []string{"icmp", "tcp"}}, v6, internet, true},
		"an edge that names no prefixes":      {&api.Match{DestinationPrefixes: []string{"::/0"}}, nil, internet, true},
		"an egress that takes all":            {&api.Match{DestinationPrefixes: []string{"::/0"}}, v6, nil, true},
		"no prefix, which nobody sends from":  {&api.Match{}, []string{"10.9.0.0"}, internet, false},
		"no prefix at the egress, as nothing": {&api.Match{}, v4, []string{"all"}, false},
	} {
		if got := match(t, c.match).JoinedBy(c.from, c.to); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
