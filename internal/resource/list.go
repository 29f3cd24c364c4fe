package resource

import (
	"bytes"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// ListYAML writes messages that are no resources, such as events, as one document of a kind with the messages as its items.
// It cannot be applied.
func ListYAML[M proto.Message](kind string, items []M) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(listOf(kind, items)); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// ListJSON is ListYAML in JSON.
func ListJSON[M proto.Message](kind string, items []M) []byte {
	var out bytes.Buffer
	writeJSON(&out, listOf(kind, items), "")
	out.WriteByte('\n')
	return out.Bytes()
}

func listOf[M proto.Message](kind string, items []M) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, one := range items {
		list.Content = append(list.Content, encodeMessage(one.ProtoReflect()))
	}
	whole := &yaml.Node{Kind: yaml.MappingNode}
	add(whole, "apiVersion", text(APIVersion))
	add(whole, "kind", text(kind))
	add(whole, "items", list)
	return whole
}
