package resource

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// MaximumFile bounds a resource file, in bytes: what one apply carries fits one message of the bus.
const MaximumFile = 4 << 20

// maximumDepth bounds how deep values nest, aliases followed.
const maximumDepth = 64

// ReadFile reads the resources of a file: YAML documents divided by "---", or JSON; each is a resource, a list of them, or
// of kind List with the resources as its items. Documents with mistakes are returned
// as far as they could be read, so that further checks can find what else is wrong.
func ReadFile(source string, text []byte) ([]*Document, []Mistake) {
	r := &reader{source: source}
	if len(text) > MaximumFile {
		r.mistake(1, "", fmt.Sprintf("the file has more than %d bytes", MaximumFile), fmt.Sprintf("divide it into files of at most %d bytes", MaximumFile))
		return nil, r.mistakes
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var documents []*Document
	for {
		var root yaml.Node
		err := decoder.Decode(&root)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.syntax(err)
			break
		}
		documents = append(documents, r.documents(&root, 0)...)
	}
	if len(documents) == 0 && len(r.mistakes) == 0 {
		r.mistake(1, "", "the file holds no resource", "write apiVersion, kind, metadata and spec")
	}
	return documents, r.mistakes
}

// reader collects the mistakes of one file.
type reader struct {
	source   string
	mistakes []Mistake
	// nodes counts what was read: aliases can make a small file huge.
	nodes int
}

func (r *reader) mistake(line int, field, description, fix string) {
	r.mistakes = append(r.mistakes, Mistake{r.source, line, field, description, fix})
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) syntax(err error) {
	line := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	r.mistake(line, "", "not YAML: "+yamlLine.ReplaceAllString(err.Error(), ""), "check indentation, colons and quotes near this line")
}

// header is the order of a document's members.
var header = []string{"apiVersion", "kind", "metadata", "spec", "status"}

// listKind is the kind of a document that holds others, as its items; a list of documents does as well.
const listKind = "List"

// documents reads what is between two dividers: a resource, or a list of them.
func (r *reader) documents(root *yaml.Node, depth int) []*Document {
	top := resolved(root)
	switch {
	case top == nil || top.Kind == yaml.ScalarNode && top.Tag == "!!null":
		return nil // nothing between two dividers
	case !r.budget(top, "", depth):
		return nil
	case top.Kind == yaml.SequenceNode:
		return r.items(top, depth)
	case top.Kind == yaml.MappingNode:
		if kind, _ := child(top, "kind"); kind != nil && strings.EqualFold(kind.Value, listKind) {
			return r.listDocument(top, depth)
		}
	}
	if document := r.document(top); document != nil {
		return []*Document{document}
	}
	return nil
}

// listDocument reads a document of kind List.
func (r *reader) listDocument(top *yaml.Node, depth int) []*Document {
	members := r.members(top, "")
	for _, m := range members {
		if !slices.Contains(listMembers, m.name) {
			r.mistake(m.key.Line, m.name, "a list has no such field", "use "+strings.Join(listMembers, ", "))
		}
	}
	r.version(memberOf(members, "apiVersion"))
	switch items := memberOf(members, "items"); {
	case items == nil || items.Tag == "!!null":
		r.mistake(top.Line, "items", "is missing", "write the resources, one after each hyphen")
	case items.Kind != yaml.SequenceNode:
		r.mistake(items.Line, "items", nodeName(items)+" is not a list", "write the resources, one after each hyphen")
	default:
		return r.items(items, depth)
	}
	return nil
}

// listMembers are those of a document of kind List; its metadata says nothing.
var listMembers = []string{"apiVersion", "kind", "metadata", "items"}

func (r *reader) items(list *yaml.Node, depth int) []*Document {
	var all []*Document
	for _, item := range list.Content {
		all = append(all, r.documents(item, depth+1)...)
	}
	return all
}

// version checks what a document says of its form; it may say nothing, as there is only one.
func (r *reader) version(node *yaml.Node) {
	if node != nil && node.Value != APIVersion {
		r.mistake(node.Line, "apiVersion", fmt.Sprintf("%q is unknown", node.Value), "write apiVersion: "+APIVersion)
	}
}

func (r *reader) document(top *yaml.Node) *Document {
	if top.Kind != yaml.MappingNode {
		r.mistake(top.Line, "", "a resource is a mapping, not "+nodeName(top), "write apiVersion, kind, metadata and spec")
		return nil
	}
	members := r.members(top, "")
	for _, m := range members {
		if indexOf(header, m.name) < 0 {
			r.mistake(m.key.Line, m.name, "a resource has no such field", "use "+strings.Join(header, ", "))
		}
	}
	d := &Document{Source: r.source, Line: top.Line, root: top, Message: &api.Resource{Metadata: &api.Metadata{}}}
	r.version(memberOf(members, "apiVersion"))
	kind := r.kind(top, memberOf(members, "kind"))
	if kind == nil {
		return nil
	}
	if metadata := memberOf(members, "metadata"); metadata != nil {
		r.message(metadata, "metadata", d.Message.Metadata.ProtoReflect(), 0)
	} else {
		r.mistake(top.Line, "metadata", "is missing", "write metadata with a name")
	}
	r.body(d, kind, top, memberOf(members, "spec"))
	return d
}

// body reads the specification. Status is the system's to say: what a file holds of it is let pass unread.
func (r *reader) body(d *Document, kind *kindName, top, spec *yaml.Node) {
	m := d.Message.ProtoReflect()
	field := m.Descriptor().Fields().ByName(kind.field)
	body := m.Mutable(field).Message()
	specField := body.Descriptor().Fields().ByName("spec")
	if specField == nil {
		return // observed kinds: refused by Parse
	}
	if spec == nil || spec.Tag == "!!null" {
		r.mistake(top.Line, "spec", "is missing", "write what the "+kind.file+" is to be")
		return
	}
	r.message(spec, "spec", body.Mutable(specField).Message(), 0)
}

func (r *reader) kind(top, node *yaml.Node) *kindName {
	names := make([]string, len(chain.AppliedKinds))
	for i, k := range chain.AppliedKinds {
		names[i] = FileKind(k)
	}
	list := strings.Join(names, ", ")
	if node == nil || node.Value == "" {
		r.mistake(top.Line, "kind", "is missing", "write one of "+list)
		return nil
	}
	for i, k := range kindNames {
		if strings.EqualFold(k.file, node.Value) {
			return &kindNames[i]
		}
	}
	r.mistake(node.Line, "kind", fmt.Sprintf("%q is unknown", node.Value), "write one of "+list)
	return nil
}

// member is one entry of a mapping.
type member struct {
	name       string
	key, value *yaml.Node
}

// members lists a mapping's entries; a name given twice is a mistake.
func (r *reader) members(node *yaml.Node, field string) []member {
	var all []member
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		name := key.Value
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			r.mistake(key.Line, field, "the name of a field is a word, not "+nodeName(key), "write name: value")
			continue
		}
		if line, twice := seen[name]; twice {
			r.mistake(key.Line, join(field, name), fmt.Sprintf("is given twice, first on line %d", line), "remove one of them")
			continue
		}
		seen[name] = key.Line
		all = append(all, member{name, key, resolved(node.Content[i+1])})
	}
	return all
}

func memberOf(members []member, name string) *yaml.Node {
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func indexOf(list []string, word string) int {
	for i, w := range list {
		if w == word {
			return i
		}
	}
	return -1
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// nodeName names a value for people.
func nodeName(node *yaml.Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Tag == "!!null":
		return "nothing"
	case node.Tag == "!!str":
		return fmt.Sprintf("the string %q", node.Value)
	}
	return node.Value
}
