package resource

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// Document is one resource of a file.
type Document struct {
	// Source is the file's name.
	Source string
	// Line is where the document begins.
	Line int
	// Message is what could be read of it.
	Message *api.Resource

	root *yaml.Node
}

// Mistake is something wrong at a place of a file.
type Mistake struct {
	Source           string
	Line             int
	Field            string
	Description, Fix string
}

// String is one line in the manner of compilers: file:line: field: what is wrong; what to write.
func (m Mistake) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: ", m.Source, m.Line)
	if m.Field != "" {
		b.WriteString(m.Field + ": ")
	}
	b.WriteString(m.Description)
	if m.Fix != "" {
		b.WriteString("; " + m.Fix)
	}
	return b.String()
}

// LineOf is the line of a field such as "spec.vnfs[1].vnf"; of the nearest thing around it where it is missing.
func (d *Document) LineOf(field string) int {
	node, line := d.root, d.Line
	for _, step := range steps(field) {
		next, at := child(node, step)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return line
}

// steps takes a path apart: "a.b[1]" is a, b, [1].
func steps(field string) []string {
	var all []string
	for _, part := range strings.Split(field, ".") {
		name, rest, indexed := strings.Cut(part, "[")
		if name != "" {
			all = append(all, name)
		}
		for indexed {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			all = append(all, "["+index)
			_, rest, indexed = strings.Cut(rest, "[")
		}
	}
	return all
}

// child finds a step below a node, and its line: a member's is that of its name.
func child(node *yaml.Node, step string) (*yaml.Node, int) {
	node = resolved(node)
	if node == nil {
		return nil, 0
	}
	if index, ok := strings.CutPrefix(step, "["); ok {
		var i int
		if _, err := fmt.Sscanf(index, "%d", &i); err == nil && node.Kind == yaml.SequenceNode && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
		return nil, 0
	}
	if node.Kind != yaml.MappingNode {
		return nil, 0
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if name := node.Content[i].Value; name == step || jsonName(name) == step {
			return node.Content[i+1], node.Content[i].Line
		}
	}
	return nil, 0
}

// resolved follows an alias to what it stands for.
func resolved(node *yaml.Node) *yaml.Node {
	for node != nil && (node.Kind == yaml.AliasNode || node.Kind == yaml.DocumentNode) {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		} else if len(node.Content) > 0 {
			node = node.Content[0]
		} else {
			return nil
		}
	}
	return node
}

// jsonName is the camel-case spelling of a snake-case name.
func jsonName(name string) string {
	var b strings.Builder
	upper := false
	for _, c := range name {
		switch {
		case c == '_':
			upper = true
		case upper:
			b.WriteString(strings.ToUpper(string(c)))
			upper = false
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// Duplicates finds resources that are described more than once, over all files.
func Duplicates(documents []*Document) []Mistake {
	var all []Mistake
	seen := map[chain.Key]*Document{}
	for _, d := range documents {
		key := KeyOf(d.Message)
		first, twice := seen[key]
		switch {
		case key.Name == "": // reported as missing
		case twice:
			all = append(all, Mistake{d.Source, d.LineOf("metadata.name"), "metadata.name",
				fmt.Sprintf("%s is given twice, first at %s:%d", key, first.Source, first.LineOf("metadata.name")), "remove one of them, or rename it"})
		default:
			seen[key] = d
		}
	}
	return all
}

// Covered reports whether a mistake that a later check found is told already by one found in reading the same place: a
// value that could not be read looks as if it were missing.
func Covered(known []Mistake, m Mistake) bool {
	for _, k := range known {
		if k.Source == m.Source && (k.Field == m.Field || strings.HasPrefix(k.Field, m.Field+".") || strings.HasPrefix(k.Field, m.Field+"[") ||
			strings.HasPrefix(m.Field, k.Field+".") || strings.HasPrefix(m.Field, k.Field+"[")) && (k.Line == m.Line || k.Field == m.Field) {
			return true
		}
	}
	return false
}
