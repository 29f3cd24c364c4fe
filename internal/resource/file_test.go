package resource

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

const sample = `# a comment
apiVersion: switchboard/v1
kind: Chain
metadata: {name: web, customer: acme, labels: {team: "7"}}
spec:
  ingress: {edges: &edges [lan], match: {source_ports: ["1-2"]}}
  vnfs:
    - vnf: firewall
      options: {rules: [{verdict: accept}], depth: 1.5, on: true, none: null}
  egress: {edges: *edges}
  demand: {forwardMbps: 1e2}
---
{"kind": "Site", "metadata": {"name": "s"}, "spec": {"kind": "SITE_KIND_EDGE_CLOUD", "capacity": 7}}
---
kind: site
metadata: {name: t}
spec: {kind: EdgeCloud}
`

func TestOneSchemaInManySpellings(t *testing.T) {
	documents, mistakes := ReadFile("sample.yaml", []byte(sample))
	if len(mistakes) > 0 || len(documents) != 3 {
		t.Fatalf("%d documents, mistakes %v", len(documents), mistakes)
	}
	c := documents[0].Message.GetChain().GetSpec()
	if c.Ingress.Match.SourcePorts[0] != "1-2" || c.Egress.Edges[0] != "lan" || c.Demand.ForwardMbps != 100 ||
		c.Vnfs[0].Options.Fields["depth"].GetNumberValue() != 1.5 || documents[0].Message.Metadata.Labels["team"] != "7" {
		t.Errorf("chain %v", c)
	}
	for _, d := range documents[1:] {
		if d.Message.GetSite().GetSpec().GetKind() != api.SiteKind_SITE_KIND_EDGE_CLOUD {
			t.Errorf("site %v", d.Message)
		}
	}
}

// Lists are read item by item, with the lines of each; what is wrong with the list itself is said.
func TestLists(t *testing.T) {
	const text = `apiVersion: switchboard/v1
kind: List
metadata: {resourceVersion: ""}
items:
  - {kind: Site, metadata: {name: a}, spec: {kind: edge-cloud}}
  - kind: Site
    metadata: {name: b}
    spec: {kind: data-centre}
---
[{"kind": "Site", "metadata": {"name": "c"}, "spec": {"kind": "edge-cloud"}},
 {"kind": "List", "items": []}]
`
	documents, mistakes := ReadFile("list.yaml", []byte(text))
	if len(mistakes) > 0 || len(documents) != 3 {
		t.Fatalf("%d documents, mistakes %v", len(documents), mistakes)
	}
	for i, want := range []int{5, 8, 10} {
		if got := documents[i].LineOf("spec.kind"); got != want || documents[i].Message.Metadata.Name != string(rune('a'+i)) {
			t.Errorf("document %d: %v on line %d, want %d", i, documents[i].Message, got, want)
		}
	}
	for wrong, want := range map[string]string{
		"kind: List":                            "w:1: items: is missing; write the resources, one after each hyphen",
		"kind: List\nitems: {a: 1}":             "w:2: items: a mapping is not a list; write the resources, one after each hyphen",
		"kind: List\nitem: []\nitems: []":       "w:2: item: a list has no such field; use apiVersion, kind, metadata, items",
		"kind: List\napiVersion: v1\nitems: []": `w:2: apiVersion: "v1" is unknown; write apiVersion: switchboard/v1`,
		"- 7":                                   "w:1: a resource is a mapping, not 7; write apiVersion, kind, metadata and spec",
		strings.Repeat("[", 80) + strings.Repeat("]", 80): "w:1: values nest deeper than 64; write it flatter",
	} {
		if _, mistakes := ReadFile("w", []byte(wrong)); len(mistakes) == 0 || mistakes[0].String() != want {
			t.Errorf("%q: %v, want %s", wrong, mistakes, want)
		}
	}
}

func TestLinesOfFields(t *testing.T) {
	documents, _ := ReadFile("sample.yaml", []byte(sample))
	for field, want := range map[string]int{
		"kind": 3, "metadata.name": 4, "spec": 5, "spec.ingress.match.sourcePorts[0]": 6, "spec.vnfs[0].vnf": 8,
		"spec.vnfs[0].options.rules[0].verdict": 9, "spec.vnfs[7].vnf": 7, "spec.egress.edges[0]": 6, "spec.demand.reverseMbps": 11,
	} {
		if got := documents[0].LineOf(field); got != want {
			t.Errorf("%s is on line %d, want %d", field, got, want)
		}
	}
}

func TestFileThatIsTooLarge(t *testing.T) {
	_, mistakes := ReadFile("big.yaml", []byte(strings.Repeat("#", MaximumFile+1)))
	if len(mistakes) != 1 || !strings.Contains(mistakes[0].String(), "divide it into files of at most 4194304 bytes") {
		t.Errorf("mistakes %v", mistakes)
	}
}

// Aliases of aliases would grow without end.
func TestFileThatGrows(t *testing.T) {
	text := "kind: Chain\nmetadata: {name: c}\nspec:\n  vnfs:\n    - vnf: v\n      options:\n        a: &a [1,1,1,1,1,1,1,1,1,1]\n"
	for c := 'b'; c <= 'j'; c++ {
		before := string(c - 1)
		text += "        " + string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+before+",", 10), ",") + "]\n"
	}
	_, mistakes := ReadFile("bomb.yaml", []byte(text))
	if len(mistakes) == 0 || !strings.Contains(mistakes[len(mistakes)-1].String(), "aliases make it too large") {
		t.Errorf("mistakes %v", mistakes)
	}
}

// No text ends the program, and what is read without a mistake is written and read back as the same.
func FuzzReadFile(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("kind: List\nitems: &a [*a, {kind: Site, metadata: {name: s}, spec: {}}]\n---\n[[], {kind: Route}]"))
	f.Add([]byte("kind: Link\nmetadata: &a {labels: {<<: *a}}\nspec: {from: [}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		documents, mistakes := ReadFile("fuzz.yaml", text)
		for _, d := range documents {
			findings := &chain.Findings{}
			Parse(d.Message, findings)
			for _, finding := range findings.All {
				if line := d.LineOf(finding.Field); line < 1 {
					t.Errorf("%s is on line %d", finding, line)
				}
			}
		}
		if len(mistakes) > 0 {
			return
		}
		for _, d := range documents {
			written, err := YAML([]*api.Resource{d.Message})
			if err != nil {
				t.Fatal(err)
			}
			again, mistakes := ReadFile("again.yaml", written)
			if len(mistakes) > 0 || len(again) != 1 || Spec(d.Message) != nil && !proto.Equal(Spec(again[0].Message), Spec(d.Message)) {
				t.Fatalf("came back with %v from\n%s", mistakes, written)
			}
		}
	})
}

// No resources are no documents.
func TestNothingIsWrittenAsNothing(t *testing.T) {
	if text, err := YAML(nil); err != nil || len(text) != 0 {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := JSON(nil, false); err != nil || !strings.Contains(string(text), `"items": []`) {
		t.Errorf("%q, %v", text, err)
	}
}
