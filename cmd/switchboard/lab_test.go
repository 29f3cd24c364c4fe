package main

import (
	"os"
	"strings"
	"testing"
)

// Every mistake of a laboratory's file is found before anything is built, those of its laboratory and of its resources.
func TestLaboratoryIsCheckedAsAWhole(t *testing.T) {
	const file = "../../examples/lab/four-sites.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if documents, err := checkLaboratory(file, text); err != nil || len(documents) < 10 {
		t.Fatalf("the example: %d resources, %v", len(documents), err)
	}
	wrong := strings.NewReplacer("driver: nftables-nat", "driver: program", "vnf: nat, site: dc", "vnf: nut, site: dc",
		"  globalSite:", "  mtu: 9\n  globalSite:").Replace(string(text))
	_, err = checkLaboratory("wrong.yaml", []byte(wrong))
	for _, want := range []string{
		"3 mistakes", "spec.mtu: 9 is out of range", "spec.attachment: the driver program makes no instances of attachment gateway", `there is no VNF "nut"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	_, err = checkLaboratory("bare.yaml", []byte("kind: Laboratory\nmetadata: {name: BAD}\nspec: {globalSite: x, banana: 1}\n"))
	for _, want := range []string{"metadata.name", "spec.banana"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say what is wrong with %s", err, want)
		}
	}
}
