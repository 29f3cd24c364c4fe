package api

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strictJSON is JSON as protobuf maps it. Fields that do not exist are refused, not skipped: a misspelt field would
// otherwise be a resource that says less than its author thinks.
type strictJSON struct{ name string }

// Name is the codec's name in content types.
func (c strictJSON) Name() string { return c.name }

// IsBinary says that messages are text.
func (strictJSON) IsBinary() bool { return false }

// Marshal encodes a message.
func (strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return protojson.Marshal(m)
}

// MarshalAppend encodes a message behind what is there.
func (strictJSON) MarshalAppend(to []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(to, m)
}

// MarshalStable encodes a message the same way every time, as far as JSON's spaces allow.
func (c strictJSON) MarshalStable(message any) ([]byte, error) { return c.Marshal(message) }

// Unmarshal decodes a message. An empty text is the empty message.
func (strictJSON) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", message)
	}
	if len(text) == 0 {
		return nil
	}
	return protojson.UnmarshalOptions{}.Unmarshal(text, m)
}
