package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

// Encode writes a resource in the form that files have, its members in the order of the contract.
func Encode(message *api.Resource) *yaml.Node {
	kind := FileKind(KindOf(message))
	document := &yaml.Node{Kind: yaml.MappingNode}
	add(document, "apiVersion", text(APIVersion))
	add(document, "kind", text(kind))
	add(document, "metadata", encodeMessage(message.GetMetadata().ProtoReflect()))
	set := message.ProtoReflect().WhichOneof(oneofKind)
	if set == nil {
		return document
	}
	body := message.ProtoReflect().Get(set).Message()
	if body.Descriptor().Fields().ByName("spec") == nil {
		add(document, "status", observed(body))
		return document
	}
	for _, name := range []protoreflect.Name{"spec", "status"} {
		if field := body.Descriptor().Fields().ByName(name); field != nil && body.Has(field) {
			add(document, string(name), encodeMessage(body.Get(field).Message()))
		}
	}
	return document
}

// observed is all of a kind that has no specification; what the kind calls its status is not nested in another one.
func observed(body protoreflect.Message) *yaml.Node {
	whole := encodeMessage(body)
	for i := 0; i+1 < len(whole.Content); i += 2 {
		if inner := whole.Content[i+1]; whole.Content[i].Value == "status" && inner.Kind == yaml.MappingNode {
			whole.Content = slices.Replace(whole.Content, i, i+2, inner.Content...)
			break
		}
	}
	return whole
}

func add(mapping *yaml.Node, name string, value *yaml.Node) {
	mapping.Content = append(mapping.Content, text(name), value)
}

func text(value string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(value)
	if strings.Contains(value, "\n") {
		node.Style = yaml.LiteralStyle
	}
	return node
}

func scalarNode(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

func encodeMessage(m protoreflect.Message) *yaml.Node {
	switch value := m.Interface().(type) {
	case *timestamppb.Timestamp:
		return text(value.AsTime().UTC().Format(time.RFC3339Nano))
	case *structpb.Struct:
		return encodeJSON(value.AsMap())
	case *structpb.Value:
		return encodeJSON(value.AsInterface())
	}
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if m.Has(field) {
			add(mapping, field.JSONName(), encodeField(field, m.Get(field)))
		}
	}
	return mapping
}

func encodeField(field protoreflect.FieldDescriptor, value protoreflect.Value) *yaml.Node {
	switch {
	case field.IsMap():
		mapping := &yaml.Node{Kind: yaml.MappingNode}
		var names []string
		value.Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool { names = append(names, k.String()); return true })
		slices.Sort(names)
		for _, name := range names {
			add(mapping, name, encodeValue(field.MapValue(), value.Map().Get(protoreflect.ValueOfString(name).MapKey())))
		}
		return mapping
	case field.IsList():
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range value.List().Len() {
			list.Content = append(list.Content, encodeValue(field, value.List().Get(i)))
		}
		if field.Kind() != protoreflect.MessageKind {
			list.Style = yaml.FlowStyle
		}
		return list
	}
	return encodeValue(field, value)
}

func encodeValue(field protoreflect.FieldDescriptor, value protoreflect.Value) *yaml.Node {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return encodeMessage(value.Message())
	case protoreflect.EnumKind:
		if d := field.Enum().Values().ByNumber(value.Enum()); d != nil && value.Enum() != 0 {
			return text(enumWord(d))
		}
		return text("unspecified")
	case protoreflect.StringKind:
		return text(value.String())
	case protoreflect.BoolKind:
		return scalarNode("!!bool", strconv.FormatBool(value.Bool()))
	case protoreflect.DoubleKind:
		return encodeJSON(value.Float())
	}
	return scalarNode("!!int", fmt.Sprint(value.Interface()))
}

// encodeJSON writes a value of JSON; the members of objects in order of their names.
func encodeJSON(value any) *yaml.Node {
	switch v := value.(type) {
	case nil:
		return scalarNode("!!null", "null")
	case bool:
		return scalarNode("!!bool", strconv.FormatBool(v))
	case string:
		return text(v)
	case float64:
		if v == float64(int64(v)) {
			return scalarNode("!!int", strconv.FormatInt(int64(v), 10))
		}
		return scalarNode("!!float", strconv.FormatFloat(v, 'g', -1, 64))
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, item := range v {
			list.Content = append(list.Content, encodeJSON(item))
		}
		return list
	case map[string]any:
		mapping := &yaml.Node{Kind: yaml.MappingNode}
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			add(mapping, name, encodeJSON(v[name]))
		}
		return mapping
	}
	return text(fmt.Sprint(value))
}

// YAML writes resources as documents of one file.
func YAML(messages []*api.Resource) ([]byte, error) {
	var out bytes.Buffer
	if len(messages) == 0 {
		return nil, nil // an encoder that was given nothing fails
	}
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	for _, m := range messages {
		if err := encoder.Encode(Encode(m)); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), encoder.Close()
}

// JSON writes one resource, or several as the items of a List, in the form that files have.
func JSON(messages []*api.Resource, single bool) ([]byte, error) {
	var out bytes.Buffer
	if single && len(messages) == 1 {
		writeJSON(&out, Encode(messages[0]), "")
	} else {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, m := range messages {
			list.Content = append(list.Content, Encode(m))
		}
		whole := &yaml.Node{Kind: yaml.MappingNode}
		add(whole, "apiVersion", text(APIVersion))
		add(whole, "kind", text(listKind))
		add(whole, "items", list)
		writeJSON(&out, whole, "")
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func writeJSON(out *bytes.Buffer, node *yaml.Node, indent string) {
	inner := indent + "  "
	switch node.Kind {
	case yaml.MappingNode:
		writeBracketed(out, "{", "}", len(node.Content)/2, indent, func(i int) {
			quoted(out, node.Content[2*i].Value)
			out.WriteString(": ")
			writeJSON(out, node.Content[2*i+1], inner)
		})
	case yaml.SequenceNode:
		writeBracketed(out, "[", "]", len(node.Content), indent, func(i int) { writeJSON(out, node.Content[i], inner) })
	default:
		if node.Tag == "!!str" || node.Tag == "" {
			quoted(out, node.Value)
			return
		}
		out.WriteString(node.Value)
	}
}

func writeBracketed(out *bytes.Buffer, open, closing string, count int, indent string, item func(int)) {
	out.WriteString(open)
	for i := range count {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteString("\n" + indent + "  ")
		item(i)
	}
	if count > 0 {
		out.WriteString("\n" + indent)
	}
	out.WriteString(closing)
}

func quoted(out *bytes.Buffer, value string) {
	encoded, _ := json.Marshal(value) // a string always has a JSON form
	out.Write(encoded)
}
