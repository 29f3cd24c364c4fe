package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

const smallest = `kind: Laboratory
metadata: {name: tiny}
spec:
  globalSite: a
  hosts:
    - name: h
      site: a
      interface: lan0
      addresses: [10.0.0.2/24]
      gateways: [10.0.0.1]
---
kind: Site
metadata: {name: a}
---
kind: Site
metadata: {name: b}
---
kind: Link
metadata: {name: a-b}
spec: {from: a, to: b, latencyMs: 5, bandwidthMbps: 100}
`

func TestParseReadsTheExample(t *testing.T) {
	laboratory, err := ReadFile("../../examples/lab/four-sites.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(laboratory.Sites) != 4 || len(laboratory.Links) != 6 {
		t.Errorf("%d sites and %d links", len(laboratory.Sites), len(laboratory.Links))
	}
}

func TestParseNamesLineFieldAndFix(t *testing.T) {
	cases := []struct{ name, from, to, want string }{
		{"no laboratory", "kind: Laboratory", "kind: Site", "lab.yaml:1: kind: no document is of kind Laboratory"},
		{"unknown field", "globalSite: a", "globalSite: a\n  mtus: 3", "lab.yaml:5: spec.mtus: is unknown; use one of api, forwarders, globalSite, hosts, mtu, programs, servers, spareForwarders"},
		{"repeated field", "      site: a", "      site: a\n      site: a", "lab.yaml:8: spec.hosts[0].site: is written twice; keep one"},
		{"no global site", "  globalSite: a\n", "", "lab.yaml:1: spec.globalSite: is missing"},
		{"global site unknown", "globalSite: a", "globalSite: c", `lab.yaml:1: spec.globalSite: there is no site "c"; use one of a, b`},
		{"bad name", "name: tiny", "name: Tiny_Lab", `lab.yaml:2: metadata.name: "Tiny_Lab" is no name`},
		{"long name", "name: tiny", "name: a-name-of-more-than-twenty", "lab.yaml:2: metadata.name:"},
		{"MTU small", "globalSite: a", "globalSite: a\n  mtu: 500", "lab.yaml:5: spec.mtu: 500 is out of range; write 1280 to 9000"},
		{"MTU no number", "globalSite: a", "globalSite: a\n  mtu: big", `lab.yaml:5: spec.mtu: "big" is no number`},
		{"forwarders no number", "globalSite: a", "globalSite: a\n  forwarders: many", `lab.yaml:5: spec.forwarders: "many" is no number; write 1 to 200`},
		{"no forwarder", "globalSite: a", "globalSite: a\n  forwarders: {a: 0}", `lab.yaml:5: spec.forwarders.a: 0 is out of range; write 1 to 200`},
		{"forwarders nowhere", "globalSite: a", "globalSite: a\n  forwarders: {c: 2}", `lab.yaml:5: spec.forwarders.c: there is no site "c"; use one of a, b`},
		{"spares", "globalSite: a", "globalSite: a\n  spareForwarders: some", `lab.yaml:5: spec.spareForwarders: "some" is neither true nor false; write true or false`},
		{"second underlay interface taken", "lan0", "wan7", `lab.yaml:6: spec.hosts[0].interface: "wan7" is the laboratory's own`},
		{"API address", "globalSite: a", "globalSite: a\n  api: here", `lab.yaml:5: spec.api: "here" is no address with a port; write for example 127.0.0.1:7470`},
		{"address twice", "  hosts:\n", "  hosts:\n    - {name: g, site: a, interface: lan0, addresses: [10.0.0.2/24]}\n",
			`lab.yaml:7: spec.hosts[1].addresses[0]: 10.0.0.2 is host "g"'s, on the same network; choose another`},
		{"hosts no list", "hosts:\n    - name: h", "hosts:\n      name: h", "lab.yaml:6: spec.hosts: is not a list"},
		{"host's site", "      site: a", "      site: z", `lab.yaml:6: spec.hosts[0].site: there is no site "z"`},
		{"host's name", "name: h\n", "name: b\n", `lab.yaml:6: spec.hosts[0].name: "b" is the name of a site`},
		{"host's interface", "lan0", "an-interface-name", `lab.yaml:8: spec.hosts[0].interface: "an-interface-name" is no interface name`},
		{"interface taken", "lan0", "wan0", `lab.yaml:6: spec.hosts[0].interface: "wan0" is the laboratory's own`},
		{"address without length", "10.0.0.2/24", "10.0.0.2", `lab.yaml:9: spec.hosts[0].addresses[0]: "10.0.0.2" is no address with a prefix length`},
		{"no address", "addresses: [10.0.0.2/24]", "addresses: []", "lab.yaml:6: spec.hosts[0].addresses: is missing"},
		{"gateway", "[10.0.0.1]", "[10.9.0.1]", "lab.yaml:6: spec.hosts[0].gateways[0]: 10.9.0.1 is not in the network of any address"},
		{"two gateways", "[10.0.0.1]", "[10.0.0.1, 10.0.0.3]", "lab.yaml:6: spec.hosts[0].gateways[1]: a second gateway of the same family"},
		{"VLAN", "interface: lan0", "interface: lan0\n      vlan: 5000", "lab.yaml:9: spec.hosts[0].vlan: 5000 is out of range; write 1 to 4094"},
		{"port", "interface: lan0", "interface: lan0\n      http: 0", "lab.yaml:9: spec.hosts[0].http: 0 is out of range"},
		{"link to nowhere", "to: b", "to: z", `spec.to: there is no site "z"`},
		{"link to itself", "to: b", "to: a", `spec.to: the link joins "a" to itself`},
		{"link's latency", "latencyMs: 5", "latencyMs: -1", "lab.yaml:20: spec.latencyMs: -1 is out of range"},
		{"link's rate", "bandwidthMbps: 100", "bandwidthMbps: 0", "lab.yaml:20: spec.bandwidthMbps: 0 is out of range"},
		{"link's end", "from: a, ", "", "lab.yaml:20: spec.from: is missing; name a site"},
		{"no YAML", "spec: {from", "spec: {{from", "lab.yaml:"},
		{"site without name", "metadata: {name: b}", "metadata: {}", "lab.yaml:15: metadata.name: is missing"},
		{"site twice", "metadata: {name: b}", "metadata: {name: a}", `site "a" is described twice`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(smallest, c.from, c.to, 1)
			if text == smallest {
				t.Fatalf("%q is not in the file", c.from)
			}
			_, err := Parse("lab.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if !errors.As(err, new(*FileError)) {
				t.Errorf("%T is no *FileError", err)
			}
		})
	}
}

func TestParseReportsEverythingAtOnce(t *testing.T) {
	text := strings.NewReplacer("globalSite: a", "globalSite: z", "lan0", "lo", "10.0.0.2/24", "nowhere").Replace(smallest)
	_, err := Parse("lab.yaml", []byte(text))
	var file *FileError
	if !errors.As(err, &file) || len(file.Problems) < 3 {
		t.Errorf("got %v", err)
	}
}

func TestResourcesKeepTheirLines(t *testing.T) {
	resources := string(Resources([]byte(smallest)))
	if strings.Contains(resources, "Laboratory") || strings.Contains(resources, "globalSite") {
		t.Errorf("the laboratory is left:\n%s", resources)
	}
	whole, left := strings.Split(smallest, "\n"), strings.Split(resources, "\n")
	if len(whole) != len(left) {
		t.Fatalf("%d lines became %d", len(whole), len(left))
	}
	for number, line := range left {
		if line != "" && line != whole[number] {
			t.Errorf("line %d was %q and is %q", number+1, whole[number], line)
		}
	}
	if strings.Count(resources, "kind: Site") != 2 || strings.Count(resources, "kind: Link") != 1 {
		t.Errorf("resources are missing:\n%s", resources)
	}
}

func TestPlanDecidesEveryNameAndAddress(t *testing.T) {
	laboratory, err := Parse("lab.yaml", []byte(smallest))
	if err != nil {
		t.Fatal(err)
	}
	p := newPlan(laboratory, crewsOf(laboratory))
	var text strings.Builder
	for _, site := range p.SitePlans {
		fmt.Fprintf(&text, "%s %s %s", site.Namespace, site.Control, site.ControlPort)
		for _, f := range site.Forwarders {
			fmt.Fprintf(&text, " %s %s %s %s", f.Name, f.Interface, f.Port, f.Tunnel)
		}
		fmt.Fprintf(&text, " %s\n", site.Interfaces["lan0"])
	}
	for _, segment := range p.Segments {
		fmt.Fprintf(&text, "%s %s: %s %s %s\n", segment.Site, segment.Interface, segment.Bridge, segment.Port, segment.Hosts[0].Port)
	}
	want := "tiny.a 198.18.1.1/24 c0 f1 wan0 w0 198.19.0.1/16 f1\ntiny.b 198.18.1.2/24 c1 f1 wan0 w1 198.19.0.2/16 \na lan0: b0 s0 h0\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
	underlay, err := p.underlayFile()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"latency_ms": 5`, `"rate_mbps": 100`, `"mtu": 1500`} {
		if !strings.Contains(string(underlay), part) {
			t.Errorf("no %s in %s", part, underlay)
		}
	}
}

func TestMACsAreStableAndDistinct(t *testing.T) {
	if first, again := macFor("a", "b"), macFor("a", "b"); first.String() != again.String() {
		t.Error("one interface has two addresses")
	}
	if macFor("a", "b").String() == macFor("b", "a").String() {
		t.Error("two interfaces have one address")
	}
	if macFor("a", "b")[0]&3 != 2 {
		t.Error("the address is not a locally administered unicast one")
	}
}

func TestPrefixOfOneLaboratoryBeginsNoOther(t *testing.T) {
	if strings.HasPrefix(Prefix("demo-2")+"a", Prefix("demo")) {
		t.Error("demo would remove demo-2")
	}
}

func TestStartTimeTellsProcessesApart(t *testing.T) {
	start, err := startTime(os.Getpid())
	if err != nil || start == 0 {
		t.Fatalf("%d, %v", start, err)
	}
	if !(processRecord{PID: os.Getpid(), Start: start}).running() {
		t.Error("this process does not run")
	}
	if (processRecord{PID: os.Getpid(), Start: start + 1}).running() {
		t.Error("a reused number passes for the process")
	}
}
