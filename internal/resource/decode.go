package resource

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// maximumNodes bounds the values of a file, aliases followed.
const maximumNodes = 1 << 20

// budget reports whether another value may be read.
func (r *reader) budget(node *yaml.Node, field string, depth int) bool {
	r.nodes++
	switch {
	case r.nodes == maximumNodes:
		r.mistake(node.Line, field, "the file's aliases make it too large", "write it without aliases, or divide it")
	case depth > maximumDepth:
		r.mistake(node.Line, field, fmt.Sprintf("values nest deeper than %d", maximumDepth), "write it flatter")
	}
	return r.nodes < maximumNodes && depth <= maximumDepth
}

// message reads a mapping into a message by its descriptor.
func (r *reader) message(node *yaml.Node, field string, m protoreflect.Message, depth int) {
	if !r.budget(node, field, depth) {
		return
	}
	if node.Kind != yaml.MappingNode {
		if node.Tag != "!!null" {
			r.mistake(node.Line, field, nodeName(node)+" is not a mapping", "write its fields as name: value")
		}
		return
	}
	for _, member := range r.members(node, field) {
		at := join(field, member.name)
		descriptor := m.Descriptor().Fields().ByJSONName(member.name)
		if descriptor == nil {
			descriptor = m.Descriptor().Fields().ByTextName(member.name)
		}
		if descriptor == nil || m.Has(descriptor) {
			r.unknown(member, at, m.Descriptor(), descriptor)
			continue
		}
		if member.value == nil || member.value.Tag == "!!null" {
			continue // as if it were not there
		}
		r.field(member.value, join(field, descriptor.JSONName()), m, descriptor, depth+1)
	}
}

func (r *reader) unknown(member member, at string, m protoreflect.MessageDescriptor, known protoreflect.FieldDescriptor) {
	if known != nil {
		r.mistake(member.key.Line, at, fmt.Sprintf("is given twice, also as %s", known.JSONName()), "remove one of them")
		return
	}
	names := make([]string, m.Fields().Len())
	for i := range names {
		names[i] = m.Fields().Get(i).JSONName()
		if strings.EqualFold(strings.ReplaceAll(member.name, "-", ""), names[i]) || closeTo(member.name, names[i]) {
			r.mistake(member.key.Line, at, "there is no such field", "did you mean "+names[i]+"?")
			return
		}
	}
	r.mistake(member.key.Line, at, "there is no such field", "use "+strings.Join(names, ", "))
}

// closeTo reports whether a word is a known one but for one letter, or for its unit.
func closeTo(a, b string) bool {
	for _, unit := range []string{"Mbps", "Ms"} {
		if name, has := strings.CutSuffix(b, unit); has && closeTo(a, name) {
			return true
		}
	}
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		return i == len(a) || a[i+1:] == b[i+1:]
	}
	return a[i:] == b[i+1:]
}

func (r *reader) field(node *yaml.Node, at string, m protoreflect.Message, d protoreflect.FieldDescriptor, depth int) {
	switch {
	case d.IsMap():
		r.mapField(node, at, m, d)
	case d.IsList():
		r.list(node, at, m, d, depth)
	case d.Kind() == protoreflect.MessageKind:
		if value, ok := r.submessage(node, at, d, m.NewField(d).Message(), depth); ok {
			m.Set(d, protoreflect.ValueOfMessage(value))
		}
	default:
		if value, ok := r.scalar(node, at, d); ok {
			m.Set(d, value)
		}
	}
}

func (r *reader) list(node *yaml.Node, at string, m protoreflect.Message, d protoreflect.FieldDescriptor, depth int) {
	if node.Kind != yaml.SequenceNode {
		r.mistake(node.Line, at, nodeName(node)+" is not a list", "write one entry after each hyphen, or [a, b]")
		return
	}
	list := m.Mutable(d).List()
	for i, raw := range node.Content {
		item, where := resolved(raw), fmt.Sprintf("%s[%d]", at, i)
		if !r.budget(item, where, depth) {
			return
		}
		if d.Kind() == protoreflect.MessageKind {
			if value, ok := r.submessage(item, where, d, list.NewElement().Message(), depth+1); ok {
				list.Append(protoreflect.ValueOfMessage(value))
				continue
			}
			list.Append(list.NewElement()) // later entries keep their index
			continue
		}
		value, ok := r.scalar(item, where, d)
		if !ok {
			value = list.NewElement()
		}
		list.Append(value)
	}
}

func (r *reader) mapField(node *yaml.Node, at string, m protoreflect.Message, d protoreflect.FieldDescriptor) {
	if node.Kind != yaml.MappingNode {
		r.mistake(node.Line, at, nodeName(node)+" is not a mapping", "write name: value")
		return
	}
	entries := m.Mutable(d).Map()
	for _, member := range r.members(node, at) {
		if member.value == nil {
			continue
		}
		if value, ok := r.scalar(member.value, join(at, member.name), d.MapValue()); ok {
			entries.Set(protoreflect.ValueOfString(member.name).MapKey(), value)
		}
	}
}

// submessage reads a message, which may be one of those that stand for any JSON value, or a time.
func (r *reader) submessage(node *yaml.Node, at string, d protoreflect.FieldDescriptor, m protoreflect.Message, depth int) (protoreflect.Message, bool) {
	switch d.Message().FullName() {
	case "google.protobuf.Struct", "google.protobuf.Value":
		value, ok := r.json(node, at, depth)
		if !ok {
			return nil, false
		}
		if d.Message().Name() == "Value" {
			return value.ProtoReflect(), true
		}
		fields := value.GetStructValue()
		if fields == nil {
			r.mistake(node.Line, at, nodeName(node)+" is not a mapping", "write name: value")
			return nil, false
		}
		return fields.ProtoReflect(), true
	case "google.protobuf.Timestamp":
		return nil, false // the system's own, written by get; ignored
	}
	r.message(node, at, m, depth)
	return m, true
}

// json reads any value.
func (r *reader) json(node *yaml.Node, at string, depth int) (*structpb.Value, bool) {
	if !r.budget(node, at, depth) {
		return nil, false
	}
	switch node.Kind {
	case yaml.MappingNode:
		fields := map[string]*structpb.Value{}
		for _, member := range r.members(node, at) {
			value, ok := r.json(member.value, join(at, member.name), depth+1)
			if !ok {
				return nil, false
			}
			fields[member.name] = value
		}
		return structpb.NewStructValue(&structpb.Struct{Fields: fields}), true
	case yaml.SequenceNode:
		list := &structpb.ListValue{}
		for i, raw := range node.Content {
			value, ok := r.json(resolved(raw), fmt.Sprintf("%s[%d]", at, i), depth+1)
			if !ok {
				return nil, false
			}
			list.Values = append(list.Values, value)
		}
		return structpb.NewListValue(list), true
	}
	switch node.Tag {
	case "!!null":
		return structpb.NewNullValue(), true
	case "!!bool":
		return structpb.NewBoolValue(strings.EqualFold(node.Value, "true")), true
	case "!!int", "!!float":
		var number float64
		if err := node.Decode(&number); err != nil || math.IsNaN(number) || math.IsInf(number, 0) {
			r.mistake(node.Line, at, node.Value+" is no number that JSON has", "write a finite number")
			return nil, false
		}
		return structpb.NewNumberValue(number), true
	}
	return structpb.NewStringValue(node.Value), true
}

// scalar reads one value of the field's type.
func (r *reader) scalar(node *yaml.Node, at string, d protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	none := protoreflect.Value{}
	wrong := func(wanted, fix string) (protoreflect.Value, bool) {
		r.mistake(node.Line, at, nodeName(node)+" is not "+wanted, fix)
		return none, false
	}
	if node.Kind != yaml.ScalarNode {
		return wrong("a single value", "write "+wantedType(d))
	}
	switch d.Kind() {
	case protoreflect.StringKind:
		if node.Tag != "!!str" {
			return wrong("a string", fmt.Sprintf("write it in quotes: %q", node.Value))
		}
		return protoreflect.ValueOfString(node.Value), true
	case protoreflect.BoolKind:
		if node.Tag != "!!bool" {
			return wrong("true or false", "write true or false, without quotes")
		}
		return protoreflect.ValueOfBool(strings.EqualFold(node.Value, "true")), true
	case protoreflect.DoubleKind:
		var number float64
		if node.Tag != "!!int" && node.Tag != "!!float" || node.Decode(&number) != nil {
			return wrong("a number", "write a number, without quotes and units")
		}
		return protoreflect.ValueOfFloat64(number), true
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		bits := map[protoreflect.Kind]int{protoreflect.Uint32Kind: 32, protoreflect.Uint64Kind: 64}[d.Kind()]
		number, err := strconv.ParseUint(strings.ReplaceAll(node.Value, "_", ""), 0, bits)
		if node.Tag != "!!int" && !(bits == 64 && node.Tag == "!!str") || err != nil {
			wanted := fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64)>>(64-bits))
			return wrong(wanted, "write "+wanted+", without quotes and units")
		}
		if bits == 32 {
			return protoreflect.ValueOfUint32(uint32(number)), true
		}
		return protoreflect.ValueOfUint64(number), true
	case protoreflect.EnumKind:
		return r.enum(node, at, d.Enum())
	}
	return wrong("readable", "remove it")
}

func wantedType(d protoreflect.FieldDescriptor) string {
	switch d.Kind() {
	case protoreflect.StringKind:
		return "a string"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return "one of " + strings.Join(enumWords(d.Enum()), ", ")
	}
	return "a number"
}

func enumWords(enum protoreflect.EnumDescriptor) []string {
	var words []string
	for i := 1; i < enum.Values().Len(); i++ {
		words = append(words, enumWord(enum.Values().Get(i)))
	}
	return words
}

// enum takes edge-cloud, edge_cloud, EdgeCloud and SITE_KIND_EDGE_CLOUD alike.
func (r *reader) enum(node *yaml.Node, at string, enum protoreflect.EnumDescriptor) (protoreflect.Value, bool) {
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	given := strings.TrimPrefix(plain(node.Value), plain(enumPrefix(enum)))
	for i := 1; i < enum.Values().Len(); i++ {
		if v := enum.Values().Get(i); plain(enumWord(v)) == given {
			return protoreflect.ValueOfEnum(v.Number()), true
		}
	}
	r.mistake(node.Line, at, nodeName(node)+" is unknown", "write one of "+strings.Join(enumWords(enum), ", "))
	return protoreflect.Value{}, false
}
