package site

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// Config describes a site's process. It is read from a YAML file; see docs/site.md.
type Config struct {
	// Site is the name of this site, GlobalSite that of the one where the Global Switchboard runs.
	Site       string `yaml:"site"`
	GlobalSite string `yaml:"globalSite"`
	Bus        Bus    `yaml:"bus"`
	// Forwarders run here; at least one.
	Forwarders []Forwarder `yaml:"forwarders"`
	// EdgeInterfaces are those that edges may use.
	EdgeInterfaces []EdgeInterface `yaml:"edgeInterfaces"`
	VNF            VNFSettings     `yaml:"vnf"`
}

// Bus is the site's message bus server.
type Bus struct {
	// Listen is the host:port for other sites; empty for a site that only dials.
	Listen string `yaml:"listen"`
	// Agents is the host:port for this site's own agents; empty: 127.0.0.1:4222.
	Agents string `yaml:"agents"`
	Peers  []Peer `yaml:"peers"`
	// Store is the directory that keeps the site's state.
	Store string `yaml:"store"`
	// Identity is the directory with the site's key and certificates; needed with listen or peers.
	Identity string `yaml:"identity"`
	// Refuse names sites whose certificates count no more.
	Refuse []string `yaml:"refuse"`
}

// Peer is another site to keep a link with.
type Peer struct {
	Site string `yaml:"site"`
	// Address is its listen address; empty where only it can dial.
	Address string `yaml:"address"`
}

// EdgeInterface is a Linux interface that edges may use.
type EdgeInterface struct {
	Name string `yaml:"name"`
	// Forwarder drives it; empty: the first.
	Forwarder string `yaml:"forwarder"`
}

// VNFSettings are for the agents that make VNF instances.
type VNFSettings struct {
	// NamespacePrefix begins the names of instances' network namespaces; empty: "switchboard-<site>-".
	NamespacePrefix string `yaml:"namespacePrefix"`
	// AddressPool is for NAT deployments that bring no pool of their own.
	AddressPool []string `yaml:"addressPool"`
	// Programs are what instances of VNFs with the driver "program" run, by VNF: a path and arguments.
	Programs map[string][]string `yaml:"programs"`
}

// Drivers of a forwarder's ports.
const (
	DriverAFPacket = "af_packet"
	DriverAFXDP    = "af_xdp"
)

const (
	leastMTU      = 1280 // IPv6's least link MTU (RFC 8200 section 5)
	largestMTU    = 9216
	maximumPeers  = 1024
	maximumLength = 15 // of a Linux interface's name
)

// LoadConfig reads a file. Its error lists everything that is wrong, each with line, field and fix.
func LoadConfig(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

// ParseConfig reads a configuration's text.
func ParseConfig(text []byte) (*Config, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("not YAML: %s; check indentation and quotes there", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	config := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	check := &check{root: &root}
	if err := decoder.Decode(config); err != nil {
		check.addDecoding(err)
		return nil, check.error()
	}
	config.check(check)
	return config, check.error()
}

// check gathers what is wrong.
type check struct {
	root     *yaml.Node
	problems []error
}

var unknownField = regexp.MustCompile(`^line (\d+): field (\S+) not found in type .*$`)

func (c *check) addDecoding(err error) {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		c.problems = append(c.problems, fmt.Errorf("empty or not a mapping: %w; begin with `site: NAME`", err))
		return
	}
	for _, text := range typed.Errors {
		if parts := unknownField.FindStringSubmatch(text); parts != nil {
			text = fmt.Sprintf("line %s: %s: no such field; remove it or correct its name", parts[1], parts[2])
		}
		c.problems = append(c.problems, errors.New(text))
	}
}

// add reports a field's problem at the line where it stands, or where its nearest parent does.
func (c *check) add(field, format string, a ...any) {
	c.problems = append(c.problems, fmt.Errorf("line %d: %s: %s", lineOf(c.root, field), field, fmt.Sprintf(format, a...)))
}

func (c *check) error() error { return errors.Join(c.problems...) }

// lineOf finds the line of a field such as "bus.peers[1].site".
func lineOf(node *yaml.Node, field string) int {
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	line := max(1, node.Line)
	for _, part := range strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := child(node, part)
		if next == nil {
			return line
		}
		node, line = next, next.Line
	}
	return line
}

func child(node *yaml.Node, part string) *yaml.Node {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == part {
				return node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		var index int
		if _, err := fmt.Sscanf(part, "%d", &index); err == nil && index < len(node.Content) {
			return node.Content[index]
		}
	}
	return nil
}

var siteName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *Config) check(k *check) {
	checkName(k, "site", c.Site)
	checkName(k, "globalSite", c.GlobalSite)
	c.Bus.check(k, c.Site)
	if len(c.Forwarders) == 0 {
		k.add("forwarders", "empty; name at least one forwarder")
	}
	names := map[string]bool{}
	for i := range c.Forwarders {
		field := fmt.Sprintf("forwarders[%d]", i)
		c.Forwarders[i].check(k, field)
		if names[c.Forwarders[i].Name] {
			k.add(field+".name", "%q is named twice; give each forwarder a name of its own", c.Forwarders[i].Name)
		}
		names[c.Forwarders[i].Name] = true
	}
	for i := range c.EdgeInterfaces {
		e := &c.EdgeInterfaces[i]
		checkInterface(k, fmt.Sprintf("edgeInterfaces[%d].name", i), e.Name)
		if e.Forwarder == "" && len(c.Forwarders) > 0 {
			e.Forwarder = c.Forwarders[0].Name
		}
		if !names[e.Forwarder] {
			k.add(fmt.Sprintf("edgeInterfaces[%d].forwarder", i), "%q is not in forwarders; use one of theirs", e.Forwarder)
		}
	}
	c.VNF.check(k)
	c.VNF.NamespacePrefix = cmp.Or(c.VNF.NamespacePrefix, "switchboard-"+c.Site+"-")
}

func (v *VNFSettings) check(k *check) {
	if strings.ContainsAny(v.NamespacePrefix, "/ \t\n") {
		k.add("vnf.namespacePrefix", "%q; use a prefix without slashes and spaces", v.NamespacePrefix)
	}
	for name, words := range v.Programs {
		if len(words) == 0 || !filepath.IsAbs(words[0]) {
			k.add("vnf.programs."+name, "%q; write an absolute path and arguments, as a list", words)
		}
	}
	for i, text := range v.AddressPool {
		if _, err := netip.ParsePrefix(text); err != nil {
			k.add(fmt.Sprintf("vnf.addressPool[%d]", i), "%q is no prefix; write for example 203.0.113.16/28", text)
		}
	}
}

func (b *Bus) check(k *check, site string) {
	if b.Store == "" {
		k.add("bus.store", "empty; give the directory that shall keep the site's state")
	}
	if b.Identity == "" && (b.Listen != "" || len(b.Peers) > 0) {
		k.add("bus.identity", "empty; give the directory with the site's key and certificates, needed with listen or peers")
	}
	checkListen(k, "bus.listen", b.Listen)
	checkListen(k, "bus.agents", b.Agents)
	if len(b.Peers) > maximumPeers {
		k.add("bus.peers", "%d sites; name at most %d", len(b.Peers), maximumPeers)
	}
	seen := map[string]bool{site: true}
	for i, p := range b.Peers {
		field := fmt.Sprintf("bus.peers[%d]", i)
		checkName(k, field+".site", p.Site)
		if seen[p.Site] {
			k.add(field+".site", "%q is this site or named twice; remove it", p.Site)
		}
		seen[p.Site] = true
		checkListen(k, field+".address", p.Address)
	}
	for i, refused := range b.Refuse {
		field := fmt.Sprintf("bus.refuse[%d]", i)
		checkName(k, field, refused)
		if seen[refused] {
			k.add(field, "%q is this site or in peers; remove it there", refused)
		}
	}
}

func (f *Forwarder) check(k *check, field string) {
	checkName(k, field+".name", f.Name)
	if prefix, err := netip.ParsePrefix(f.TunnelAddress); err != nil || !prefix.Addr().IsGlobalUnicast() {
		k.add(field+".tunnelAddress", "%q is no address with prefix length; write for example 192.0.2.1/24", f.TunnelAddress)
	}
	for i, text := range f.Gateways {
		if _, err := netip.ParseAddr(text); err != nil {
			k.add(fmt.Sprintf("%s.gateways[%d]", field, i), "%q is no address; write for example 192.0.2.254", text)
		}
	}
	checkInterface(k, field+".interface", f.Interface)
	if f.MTU == 0 {
		f.MTU = 1500
	}
	if f.MTU < leastMTU || f.MTU > largestMTU {
		k.add(field+".mtu", "%d bytes; give %d to %d", f.MTU, leastMTU, largestMTU)
	}
	f.Driver = cmp.Or(f.Driver, DriverAFPacket)
	if f.Driver != DriverAFPacket && f.Driver != DriverAFXDP {
		k.add(field+".driver", "%q; use %s or %s", f.Driver, DriverAFPacket, DriverAFXDP)
	}
	for _, name := range sortedKeys(f.Devices) {
		at := field + ".devices." + name
		checkInterface(k, at, name)
		if devargs := f.Devices[name]; devargs == "" || strings.ContainsFunc(devargs, unicode.IsSpace) {
			k.add(at, "%q are no arguments of a DPDK device; write for example 0000:03:00.0", devargs)
		}
	}
}

func checkName(k *check, field, name string) {
	if !siteName.MatchString(name) {
		k.add(field, "%q is no name; use 1 to 63 lower-case letters, digits and hyphens, beginning with a letter", name)
	}
}

func checkInterface(k *check, field, name string) {
	if name == "" || len(name) > maximumLength || strings.ContainsAny(name, "/ \t\n:") {
		k.add(field, "%q is no interface name; use 1 to %d characters without slash, colon and space", name, maximumLength)
	}
}

func checkListen(k *check, field, address string) {
	if address == "" {
		return
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		k.add(field, "%q is no address; write host:port, for example 192.0.2.1:7400", address)
	}
}
