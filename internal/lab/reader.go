package lab

import (
	"fmt"
	"net/netip"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader walks YAML nodes and collects what is wrong.
type reader struct{ problems []Problem }

func (r *reader) report(line int, field, description, fix string) {
	r.problems = append(r.problems, Problem{line, field, description, fix})
}

// mapping hands each member to its function; unknown and repeated ones are problems.
func (r *reader) mapping(node *yaml.Node, path string, members map[string]func(*yaml.Node, string)) {
	if node.Kind != yaml.MappingNode {
		r.report(node.Line, orDocument(path), "is not a mapping", "write fields with values, one on each line")
		return
	}
	seen := map[string]bool{}
	for index := 0; index+1 < len(node.Content); index += 2 {
		key, value := node.Content[index], node.Content[index+1]
		field := join(path, key.Value)
		take, known := members[key.Value]
		switch {
		case !known:
			r.report(key.Line, field, "is unknown", "use one of "+strings.Join(sorted(members), ", "))
		case seen[key.Value]:
			r.report(key.Line, field, "is written twice", "keep one")
		default:
			take(value, field)
		}
		seen[key.Value] = true
	}
}

func (r *reader) sequence(node *yaml.Node, path string, item func(*yaml.Node, string)) {
	if node.Kind != yaml.SequenceNode {
		r.report(node.Line, path, "is not a list", "begin each item with '- '")
		return
	}
	for index, value := range node.Content {
		item(value, fmt.Sprintf("%s[%d]", path, index))
	}
}

func (r *reader) name(node *yaml.Node, path string, longest int) string {
	if !namePattern.MatchString(node.Value) || len(node.Value) > longest {
		r.report(node.Line, path, fmt.Sprintf("%q is no name", node.Value),
			fmt.Sprintf("use 1 to %d lower-case letters, digits and hyphens, beginning with a letter", longest))
	}
	return node.Value
}

func (r *reader) number(node *yaml.Node, path string, least, most float64) float64 {
	value, err := strconv.ParseFloat(node.Value, 64)
	if err != nil {
		r.report(node.Line, path, fmt.Sprintf("%q is no number", node.Value), fmt.Sprintf("write %g to %g", least, most))
		return least
	}
	if !(value >= least && value <= most) {
		r.report(node.Line, path, node.Value+" is out of range", fmt.Sprintf("write %g to %g", least, most))
		return least
	}
	return value
}

func (r *reader) prefix(node *yaml.Node, path string) netip.Prefix {
	prefix, err := netip.ParsePrefix(node.Value)
	if err != nil {
		r.report(node.Line, path, fmt.Sprintf("%q is no address with a prefix length", node.Value), "write for example 10.1.0.10/24")
	}
	return prefix
}

func (r *reader) address(node *yaml.Node, path string) netip.Addr {
	address, err := netip.ParseAddr(node.Value)
	if err != nil {
		r.report(node.Line, path, fmt.Sprintf("%q is no IP address", node.Value), "write for example 10.1.0.1")
	}
	return address
}

func (r *reader) addressAndPort(node *yaml.Node, path string) netip.AddrPort {
	value, err := netip.ParseAddrPort(node.Value)
	if err != nil {
		r.report(node.Line, path, fmt.Sprintf("%q is no address with a port", node.Value), "write for example "+defaultAPI)
	}
	return value
}

// metadataName reads a resource's name; the API checks its form.
func (r *reader) metadataName(node *yaml.Node) string {
	name := child(child(node, "metadata"), "name")
	if name == nil || name.Value == "" {
		r.report(node.Line, "metadata.name", "is missing", "name the resource")
		return ""
	}
	return name.Value
}

// child finds a member of a mapping by any of its names; nil where there is none.
func child(node *yaml.Node, names ...string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for index := 0; index+1 < len(node.Content); index += 2 {
		for _, name := range names {
			if node.Content[index].Value == name {
				return node.Content[index+1]
			}
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orDocument(path string) string {
	if path == "" {
		return "document"
	}
	return path
}

func sorted(members map[string]func(*yaml.Node, string)) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
