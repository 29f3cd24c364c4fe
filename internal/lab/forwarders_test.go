package lab

import (
	"fmt"
	"strings"
	"testing"
)

func TestForwardersOfEachSite(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "a [f1] b [f1]",
		"forwarders: 2":          "a [f1 f2] b [f1 f2]",
		"forwarders: {b: 3}":     "a [f1] b [f1 f2 f3]",
		"spareForwarders: false": "a [f1] b [f1]",
	} {
		laboratory, err := Parse("lab.yaml", []byte(strings.Replace(smallest, "globalSite: a", "globalSite: a\n  "+text, 1)))
		if err != nil {
			t.Fatal(err)
		}
		all := crewsOf(laboratory)
		if got := fmt.Sprintf("a %v b %v", all["a"].names(), all["b"].names()); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestCrewsGrowAndShrink: numbers are not given again, what leaves is remembered, and an interface stays with its forwarder or goes
// with all others of that to one heir.
func TestCrewsGrowAndShrink(t *testing.T) {
	laboratory := &Laboratory{Sites: []string{"a"}, Hosts: []Host{{Site: "a", Interface: "lan0"}, {Site: "a", Interface: "lan1"},
		{Site: "a", Interface: "lan2"}, {Site: "b", Interface: "lan9"}}}
	c := crewsOf(laboratory)["a"]
	for _, step := range []struct {
		count                   int
		first                   string
		names, leaving, drivers string
	}{
		{1, "", "[f1]", "[]", "map[lan0:1 lan1:1 lan2:1]"},
		{3, "", "[f1 f2 f3]", "[]", "map[lan0:1 lan1:1 lan2:1]"},
		{2, "f1", "[f2 f3]", "[1]", "map[lan0:2 lan1:2 lan2:2]"},
		{1, "", "[f2]", "[1 3]", "map[lan0:2 lan1:2 lan2:2]"},
		{2, "", "[f2 f4]", "[1 3]", "map[lan0:2 lan1:2 lan2:2]"},
		{2, "f2", "[f4 f5]", "[1 3 2]", "map[lan0:4 lan1:4 lan2:4]"},
	} {
		if err := c.resize(step.count, step.first); err != nil {
			t.Fatal(err)
		}
		c.drive(laboratory, "a")
		if got := fmt.Sprintf("%v %v %v", c.names(), c.Leaving, c.Interfaces); got != step.names+" "+step.leaving+" "+step.drivers {
			t.Errorf("%d forwarders, without %q: %s, want %s %s %s", step.count, step.first, got, step.names, step.leaving, step.drivers)
		}
	}
	for want, try := range map[string]func() error{
		"0 forwarders: a site has 1 to 200":               func() error { return c.resize(0, "") },
		"there is no forwarder f1: use one of f4, f5":     func() error { return c.resize(1, "f1") },
		"more than 200 forwarders have run at the site: ": func() error { return c.resize(200, "") },
		"201 forwarders: a site has 1 to 200":             func() error { return c.resize(201, "") },
	} {
		if err := try(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestInterfacesSpreadOverForwarders: a laboratory that begins with several has its interfaces at all of them.
func TestInterfacesSpreadOverForwarders(t *testing.T) {
	laboratory := &Laboratory{Sites: []string{"a"}, EveryForwarders: 2, Hosts: []Host{{Site: "a", Interface: "lan0"}, {Site: "a", Interface: "lan1"},
		{Site: "a", Interface: "lan2"}}}
	if got := fmt.Sprint(crewsOf(laboratory)["a"].Interfaces); got != "map[lan0:1 lan1:2 lan2:1]" {
		t.Errorf("%s", got)
	}
}
