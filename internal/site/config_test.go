package site

import (
	"strings"
	"testing"
)

const goodConfig = `site: edge-a
globalSite: core
bus:
  listen: 10.0.0.2:7400
  peers:
    - {site: core, address: 10.0.0.1:7400}
  store: /tmp/edge-a
  identity: /tmp/edge-a/identity
forwarders:
  - name: f1
    tunnelAddress: 192.0.2.2/24
    interface: wan0
edgeInterfaces:
  - name: lan0
`

func TestConfigFillsDefaults(t *testing.T) {
	c, err := ParseConfig([]byte(goodConfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Forwarders[0].MTU != 1500 || c.Forwarders[0].Driver != DriverAFPacket || c.EdgeInterfaces[0].Forwarder != "f1" ||
		c.VNF.NamespacePrefix != "switchboard-edge-a-" {
		t.Errorf("got %+v", c)
	}
}

func TestConfigSaysWhereAndHow(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"site: edge-a\n", "site: Edge A\n", `line 1: site: "Edge A" is no name; use 1 to 63 lower-case letters`},
		{"globalSite: core", "globalsite: core", "line 2: globalsite: no such field; remove it or correct its name"},
		{"globalSite: core\n", "", `line 1: globalSite: "" is no name`},
		{"10.0.0.2:7400", "10.0.0.2", `line 4: bus.listen: "10.0.0.2" is no address; write host:port`},
		{"{site: core,", "{site: edge-a,", `line 6: bus.peers[0].site: "edge-a" is this site or named twice; remove it`},
		{"  store: /tmp/edge-a\n", "  store: /tmp/edge-a\n  refuse: [core]\n", `bus.refuse[0]: "core" is this site or in peers; remove it there`},
		{"  store: /tmp/edge-a\n", "", "bus.store: empty; give the directory"},
		{"  identity: /tmp/edge-a/identity\n", "", "bus.identity: empty; give the directory with the site's key"},
		{"192.0.2.2/24", "192.0.2.2", `line 11: forwarders[0].tunnelAddress: "192.0.2.2" is no address with prefix length; write for example 192.0.2.1/24`},
		{"interface: wan0", "interface: a-name-that-is-too-long", `line 12: forwarders[0].interface: "a-name-that-is-too-long" is no interface name`},
		{"interface: wan0", "interface: wan0\n    mtu: 576", "line 13: forwarders[0].mtu: 576 bytes; give 1280 to 9216"},
		{"interface: wan0", "interface: wan0\n    driver: dpdk", `line 13: forwarders[0].driver: "dpdk"; use af_packet or af_xdp`},
		{"interface: wan0", "interface: wan0\n    devices: {lan0: 0000 03}", `forwarders[0].devices.lan0: "0000 03" are no arguments of a DPDK device; write for example 0000:03:00.0`},
		{"interface: wan0", "interface: wan0\n    devices: {lan0: \"\"}", `forwarders[0].devices.lan0: "" are no arguments of a DPDK device`},
		{"interface: wan0", "interface: wan0\n    devices: {a/b: net_tap0}", `forwarders[0].devices.a/b: "a/b" is no interface name`},
		{"interface: wan0", "interface: wan0\n    mtu: large", "line 13: cannot unmarshal"},
		{"interface: wan0", "interface: wan0\n    gateways: [here]", `line 13: forwarders[0].gateways[0]: "here" is no address; write for example 192.0.2.254`},
		{"- name: lan0", "- {name: lan0, forwarder: f2}", `edgeInterfaces[0].forwarder: "f2" is not in forwarders; use one of theirs`},
		{"edgeInterfaces:", "vnf: {addressPool: [many]}\nedgeInterfaces:", `line 13: vnf.addressPool[0]: "many" is no prefix; write for example 203.0.113.16/28`},
		{"edgeInterfaces:", "vnf: {namespacePrefix: a/b}\nedgeInterfaces:", `line 13: vnf.namespacePrefix: "a/b"; use a prefix without slashes`},
		{"  - name: f1", "  - name: f1\n  - name: f1", `forwarders[1].name: "f1" is named twice`},
		{goodConfig, "", "begin with `site: NAME`"},
		{goodConfig, "site: [", "not YAML: line 1"},
	} {
		text := strings.Replace(goodConfig, test.old, test.new, 1)
		_, err := ParseConfig([]byte(text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q for %q: %v\nwant %s", test.new, test.old, err, test.want)
		}
	}
}

func TestConfigTellsEverythingAtOnce(t *testing.T) {
	_, err := ParseConfig([]byte("site: A\nglobalSite: B\nforwarders: []\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("want four problems (site, globalSite, store, forwarders), got: %v", err)
	}
}
