// Package resource turns what customers and operators write into domain values, and back into text: resource files
// (YAML or JSON) into messages of switchboard.api.v1, and those messages into package chain's types, once.
//
// Invariants: every mistake of a file or request is found in one go, each with its place, what is wrong and what to
// write; nothing unknown is skipped; what is written by Encode is read back by ReadFile as the same resource.
package resource

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// APIVersion is what a file's apiVersion says.
const APIVersion = "switchboard/v1"

// kindName is how a kind is called in files and on the command line.
type kindName struct {
	kind chain.Kind
	// file is the value of `kind:`.
	file string
	// words are what the command line takes, the plural first.
	words []string
	// field is the member of Resource's oneof.
	field protoreflect.Name
}

var kindNames = []kindName{
	{chain.KindSite, "Site", []string{"sites", "site"}, "site"},
	{chain.KindLink, "Link", []string{"links", "link"}, "link"},
	{chain.KindNetwork, "Network", []string{"networks", "network"}, "network"},
	{chain.KindCustomer, "Customer", []string{"customers", "customer"}, "customer"},
	{chain.KindVnf, "Vnf", []string{"vnfs", "vnf"}, "vnf"},
	{chain.KindDeployment, "VnfDeployment", []string{"deployments", "deployment", "vnfdeployments", "vnfdeployment"}, "vnf_deployment"},
	{chain.KindInstance, "VnfInstance", []string{"instances", "instance", "vnfinstances", "vnfinstance"}, "vnf_instance"},
	{chain.KindEdge, "Edge", []string{"edges", "edge"}, "edge"},
	{chain.KindChain, "Chain", []string{"chains", "chain"}, "chain"},
	{chain.KindRoute, "Route", []string{"routes", "route"}, "route"},
	{chain.KindMove, "Move", []string{"moves", "move"}, "move"},
}

// ParseKind reads a kind as the command line and the API take it: singular or plural, any case.
func ParseKind(word string) (chain.Kind, bool) {
	word = strings.ToLower(word)
	for _, k := range kindNames {
		if slices.Contains(k.words, word) {
			return k.kind, true
		}
	}
	return "", false
}

// KindWords lists the plural of every kind.
func KindWords() []string {
	words := make([]string, len(kindNames))
	for i, k := range kindNames {
		words[i] = k.words[0]
	}
	return words
}

// FileKind is how files call a kind.
func FileKind(kind chain.Kind) string {
	for _, k := range kindNames {
		if k.kind == kind {
			return k.file
		}
	}
	return string(kind)
}

// Observed reports whether resources of a kind are shown and never applied.
func Observed(kind chain.Kind) bool { return kind != "" && !slices.Contains(chain.AppliedKinds, kind) }

// KindOf is the kind of a message, "" where none is set.
func KindOf(message *api.Resource) chain.Kind {
	set := message.ProtoReflect().WhichOneof(oneofKind)
	for _, k := range kindNames {
		if set != nil && set.Name() == k.field {
			return k.kind
		}
	}
	return ""
}

// KeyOf is the key of a message.
func KeyOf(message *api.Resource) chain.Key {
	return chain.Key{Kind: KindOf(message), Customer: chain.CustomerName(message.GetMetadata().GetCustomer()),
		Name: message.GetMetadata().GetName()}
}

var oneofKind = (&api.Resource{}).ProtoReflect().Descriptor().Oneofs().ByName("kind")

// Spec is the specification inside a message, nil where there is none.
func Spec(message *api.Resource) proto.Message {
	m := message.ProtoReflect()
	set := m.WhichOneof(oneofKind)
	if set == nil {
		return nil
	}
	body := m.Get(set).Message()
	field := body.Descriptor().Fields().ByName("spec")
	if field == nil || !body.Has(field) {
		return nil
	}
	return body.Get(field).Message().Interface()
}

// Word is an enumeration's value as files write it: CHAIN_PHASE_ACTIVE is "active"; "" for the unspecified one.
func Word(value protoreflect.Enum) string {
	d := value.Descriptor().Values().ByNumber(value.Number())
	if d == nil || value.Number() == 0 {
		return ""
	}
	return enumWord(d)
}

// enumWord is the name without the type's prefix, in lower case, words joined by hyphens.
func enumWord(value protoreflect.EnumValueDescriptor) string {
	prefix := enumPrefix(value.Parent().(protoreflect.EnumDescriptor))
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix)), "_", "-")
}

// enumPrefix is what all values of an enumeration begin with, by buf's style.
func enumPrefix(enum protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(enum.Values().Get(0).Name()), "UNSPECIFIED")
}
