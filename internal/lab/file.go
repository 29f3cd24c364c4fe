package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Laboratory is what a laboratory's file says.
type Laboratory struct {
	// Name begins the name of everything the laboratory makes: letters, digits and hyphens, at most 20.
	Name string
	// GlobalSite is the site that runs the Global Switchboard.
	GlobalSite string
	// API is where the northbound API listens on the host; port 0 takes a free one.
	API netip.AddrPort
	// MTU is the largest IP packet of the wide area, in bytes.
	MTU int
	// Hosts are customers' machines, Servers machines on the Internet side; they differ in what runs on them.
	Hosts, Servers []Host
	Sites          []string
	// EveryForwarders is how many forwarders each site has, Forwarders how many those have that are named there; one otherwise.
	EveryForwarders int
	Forwarders      map[string]int
	// SpareForwarders says that each forwarder has a second process, which takes over when the first ends.
	SpareForwarders bool
	Links           []Link
	VNFs            []VNF
	// Programs are what instances of VNFs with the driver "program" run, by VNF: a path and arguments.
	Programs map[string][]string

	line, forwardersLine int
}

// Host is a machine behind an interface of a site.
type Host struct {
	Name, Site, Interface string
	// VLAN is the IEEE 802.1Q tag the host's frames bear; 0 for none.
	VLAN uint16
	// Addresses with the length of their networks.
	Addresses []netip.Prefix
	// Gateways are the next hops of the default routes, at most one of each family.
	Gateways []netip.Addr
	// HTTP is the TCP port of a web server; 0 for none.
	HTTP uint16

	line  int
	field string
}

// Link is a pair of sites of the underlay.
type Link struct {
	From, To string
	// LatencyMS is one way.
	LatencyMS float64
	// RateMbps is that of each direction.
	RateMbps float64
}

// VNF is a catalogue entry whose controller the laboratory runs.
type VNF struct{ Name, ControllerSite string }

// Problem is one thing wrong in a file.
type Problem struct {
	Line int
	// Field is its path in the document, for example spec.hosts[1].addresses[0].
	Field       string
	Description string
	// Fix says what to write instead.
	Fix string
}

// FileError lists everything that is wrong in a file.
type FileError struct {
	File     string
	Problems []Problem
}

// Error has one line for each problem: file:line: field: description; fix.
func (e *FileError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, fmt.Sprintf("%s:%d: %s: %s; %s", e.File, p.Line, p.Field, p.Description, p.Fix))
	}
	return strings.Join(lines, "\n")
}

// Name patterns: interface names are Linux's, the others the platform's.
var (
	namePattern      = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	interfacePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,15}$`)
)

const (
	defaultMTU = 1500
	defaultAPI = "127.0.0.1:7470"
)

// ReadFile reads a laboratory's file. What is wrong in it is a *FileError that names every problem.
func ReadFile(path string) (*Laboratory, error) {
	text, err := ReadText(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text)
}

// MaximumFile bounds a laboratory's file, in bytes.
const MaximumFile = 4 << 20

// ReadText reads a laboratory's file as it is, whatever is behind the name: a device or a mistaken file must not fill
// memory.
func ReadText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, MaximumFile+1))
	if err == nil && len(text) > MaximumFile {
		err = fmt.Errorf("%s has more than %d bytes: name the file of a laboratory", path, MaximumFile)
	}
	return text, err
}

// Resources is a laboratory's file without its document of kind Laboratory: what `switchboard apply` takes. Lines keep
// their numbers.
func Resources(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	begin := 0
	for index := 0; index <= len(lines); index++ {
		if index < len(lines) && strings.TrimRight(lines[index], " \r") != "---" {
			continue
		}
		if laboratoryKind.MatchString(strings.Join(lines[begin:index], "\n")) {
			clear(lines[begin:index])
		}
		begin = index + 1
	}
	return []byte(strings.Join(lines, "\n"))
}

var laboratoryKind = regexp.MustCompile(`(?m)^kind:\s*Laboratory\s*(#.*)?$`)

// Parse reads a laboratory's file from memory; name is the file's for messages.
func Parse(name string, text []byte) (*Laboratory, error) {
	r := &reader{}
	laboratory := &Laboratory{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	found := 0
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &FileError{name, []Problem{{yamlLine(err), "document", strings.TrimPrefix(err.Error(), "yaml: "), "write valid YAML"}}}
		}
		if len(document.Content) == 0 || document.Content[0].Tag == "!!null" {
			continue
		}
		if r.document(laboratory, document.Content[0]) {
			found++
		}
	}
	switch {
	case found == 0:
		r.report(1, "kind", "no document is of kind Laboratory", "add one, or use `switchboard apply` for resources alone")
	case found > 1:
		r.report(1, "kind", "several documents are of kind Laboratory", "keep one")
	default:
		r.check(laboratory)
	}
	if len(r.problems) > 0 {
		sort.SliceStable(r.problems, func(a, b int) bool { return r.problems[a].Line < r.problems[b].Line })
		return nil, &FileError{name, r.problems}
	}
	return laboratory, nil
}

var yamlLinePattern = regexp.MustCompile(`line (\d+)`)

func yamlLine(err error) int {
	line := 1
	if found := yamlLinePattern.FindStringSubmatch(err.Error()); found != nil {
		fmt.Sscan(found[1], &line)
	}
	return line
}

// document takes one document and says whether it was the laboratory's own.
func (r *reader) document(laboratory *Laboratory, node *yaml.Node) bool {
	switch kind := child(node, "kind"); {
	case kind == nil:
		r.report(node.Line, "kind", "is missing", "write the kind of the resource, or Laboratory")
	case kind.Value == "Laboratory":
		r.laboratory(laboratory, node)
		return true
	case kind.Value == "Site":
		laboratory.Sites = append(laboratory.Sites, r.metadataName(node))
	case kind.Value == "Link":
		laboratory.Links = append(laboratory.Links, r.link(node))
	case strings.EqualFold(kind.Value, "Vnf"):
		vnf := VNF{Name: r.metadataName(node)}
		if site := child(child(node, "spec"), "controllerSite", "controller_site"); site != nil {
			vnf.ControllerSite = site.Value
		}
		laboratory.VNFs = append(laboratory.VNFs, vnf)
	}
	return false
}

// link reads what the underlay needs of a Link; the API checks the rest when it is applied.
func (r *reader) link(node *yaml.Node) Link {
	spec := child(node, "spec")
	if spec == nil {
		r.report(node.Line, "spec", "is missing", "write from, to, latencyMs and bandwidthMbps")
		return Link{}
	}
	link := Link{RateMbps: 1000}
	site := func(name string) string {
		value := child(spec, name)
		if value == nil {
			r.report(spec.Line, "spec."+name, "is missing", "name a site")
			return ""
		}
		return value.Value
	}
	link.From, link.To = site("from"), site("to")
	if value := child(spec, "latencyMs", "latency_ms"); value != nil {
		link.LatencyMS = r.number(value, "spec.latencyMs", 0, 10_000)
	}
	if value := child(spec, "bandwidthMbps", "bandwidth_mbps"); value != nil {
		link.RateMbps = r.number(value, "spec.bandwidthMbps", 0.001, 1_000_000)
	}
	return link
}

func (r *reader) laboratory(laboratory *Laboratory, node *yaml.Node) {
	var api, mtu *yaml.Node
	r.mapping(node, "", map[string]func(*yaml.Node, string){
		"apiVersion": func(*yaml.Node, string) {},
		"kind":       func(*yaml.Node, string) {},
		"metadata": func(node *yaml.Node, path string) {
			r.mapping(node, path, map[string]func(*yaml.Node, string){
				"name": func(node *yaml.Node, path string) { laboratory.Name = r.name(node, path, 20) },
			})
		},
		"spec": func(node *yaml.Node, path string) {
			r.mapping(node, path, map[string]func(*yaml.Node, string){
				"globalSite": func(node *yaml.Node, path string) { laboratory.GlobalSite = node.Value },
				"api":        func(node *yaml.Node, _ string) { api = node },
				"mtu":        func(node *yaml.Node, _ string) { mtu = node },
				"forwarders": func(node *yaml.Node, path string) { r.forwarders(laboratory, node, path) },
				"spareForwarders": func(node *yaml.Node, path string) {
					if err := node.Decode(&laboratory.SpareForwarders); err != nil {
						r.report(node.Line, path, fmt.Sprintf("%q is neither true nor false", node.Value), "write true or false")
					}
				},
				"hosts":    func(node *yaml.Node, path string) { laboratory.Hosts = r.hosts(node, path) },
				"servers":  func(node *yaml.Node, path string) { laboratory.Servers = r.hosts(node, path) },
				"programs": func(node *yaml.Node, path string) { laboratory.Programs = r.programs(node, path) },
			})
		},
	})
	if laboratory.Name == "" {
		r.report(node.Line, "metadata.name", "is missing", "name the laboratory")
	}
	if laboratory.GlobalSite == "" {
		r.report(node.Line, "spec.globalSite", "is missing", "name the site that runs the Global Switchboard")
	}
	laboratory.API = netip.MustParseAddrPort(defaultAPI)
	if api != nil {
		laboratory.API = r.addressAndPort(api, "spec.api")
	}
	laboratory.MTU = defaultMTU
	if mtu != nil {
		laboratory.MTU = int(r.number(mtu, "spec.mtu", 1280, 9000))
	}
	laboratory.line = node.Line
}

// programs reads a mapping of VNFs to paths with arguments.
func (r *reader) programs(node *yaml.Node, path string) map[string][]string {
	programs := map[string][]string{}
	if err := node.Decode(&programs); err != nil {
		r.report(node.Line, path, "is not a mapping of VNFs to lists of words", "write for example marker: [/usr/local/bin/marker, --quiet]")
		return nil
	}
	for name, words := range programs {
		if len(words) == 0 || !filepath.IsAbs(words[0]) {
			r.report(node.Line, path+"."+name, fmt.Sprintf("%q begins with no absolute path", words), "write the program's whole path, then its arguments")
		}
	}
	return programs
}

// forwarders reads a number for all sites, or one for each that is named.
func (r *reader) forwarders(laboratory *Laboratory, node *yaml.Node, path string) {
	if node.Kind != yaml.MappingNode {
		laboratory.EveryForwarders = int(r.number(node, path, 1, maximumForwarders))
		return
	}
	laboratory.Forwarders = map[string]int{}
	laboratory.forwardersLine = node.Line
	for index := 0; index+1 < len(node.Content); index += 2 {
		site := node.Content[index].Value
		laboratory.Forwarders[site] = int(r.number(node.Content[index+1], path+"."+site, 1, maximumForwarders))
	}
}

func (r *reader) hosts(node *yaml.Node, path string) []Host {
	var hosts []Host
	r.sequence(node, path, func(node *yaml.Node, path string) {
		host := Host{line: node.Line, field: path}
		r.mapping(node, path, map[string]func(*yaml.Node, string){
			"name": func(node *yaml.Node, path string) { host.Name = r.name(node, path, 63) },
			"site": func(node *yaml.Node, _ string) { host.Site = node.Value },
			"interface": func(node *yaml.Node, path string) {
				host.Interface = node.Value
				if !interfacePattern.MatchString(node.Value) {
					r.report(node.Line, path, fmt.Sprintf("%q is no interface name", node.Value), "use 1 to 15 letters, digits, '.', '_' and '-'")
				}
			},
			"vlan": func(node *yaml.Node, path string) { host.VLAN = uint16(r.number(node, path, 1, 4094)) },
			"http": func(node *yaml.Node, path string) { host.HTTP = uint16(r.number(node, path, 1, 65535)) },
			"addresses": func(node *yaml.Node, path string) {
				r.sequence(node, path, func(node *yaml.Node, path string) {
					host.Addresses = append(host.Addresses, r.prefix(node, path))
				})
			},
			"gateways": func(node *yaml.Node, path string) {
				r.sequence(node, path, func(node *yaml.Node, path string) {
					host.Gateways = append(host.Gateways, r.address(node, path))
				})
			},
		})
		hosts = append(hosts, host)
	})
	return hosts
}
