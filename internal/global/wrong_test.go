package global

import (
	"cmp"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// update writes what the code says now into testdata: go test ./internal/global -run WrongFiles -update
var update = flag.Bool("update", false, "write the present output into testdata")

// wrongFiles holds files and the mistakes that must be found in each, in sections:
//
//	-- name --
//	the file
//	== mistakes
//	file:line: field: what is wrong; what to write
const wrongFiles = "testdata/wrong.txt"

// leastWrongFiles is how many the table must have.
const leastWrongFiles = 60

// Every mistake of a file is found at once, each with its place, what is wrong and the fix.
func TestWrongFiles(t *testing.T) {
	text, err := os.ReadFile(wrongFiles)
	if err != nil {
		t.Fatal(err)
	}
	g := withTopology(t)
	sections := strings.Split("\n"+string(text), "\n-- ")
	var updated strings.Builder
	updated.WriteString(strings.TrimPrefix(sections[0], "\n"))
	for _, section := range sections[1:] {
		name, rest, _ := strings.Cut(section, " --\n")
		file, want, _ := strings.Cut(rest, "\n== mistakes\n")
		got := strings.Join(mistakesIn(g, file), "\n")
		want = strings.Trim(want, "\n")
		if got == "" {
			t.Errorf("%s: no mistake is found", name)
		}
		if got != want && !*update {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
		updated.WriteString("\n-- " + name + " --\n" + file + "\n== mistakes\n" + got + "\n")
	}
	if n := len(sections) - 1; n < leastWrongFiles {
		t.Errorf("%d wrong files, at least %d are wanted", n, leastWrongFiles)
	}
	if *update {
		if err := os.WriteFile(wrongFiles, []byte(updated.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// withTopology is a Global Switchboard's memory without a bus: the topology of the tests was applied.
func withTopology(t *testing.T) *Global {
	t.Helper()
	g := &Global{world: chain.World{}, messages: map[chain.Key]*api.Resource{}}
	documents, mistakes := resource.ReadFile("topology.yaml", []byte(topology+"---"+webChain))
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	for _, d := range documents {
		g.remember(d.Message)
	}
	return g
}

// mistakesIn is what reading a file and checking its resources finds, as the command line prints it.
func mistakesIn(g *Global, file string) []string {
	documents, mistakes := resource.ReadFile("file.yaml", []byte(file))
	mistakes = append(mistakes, resource.Duplicates(documents)...)
	var messages []*api.Resource
	for _, d := range documents {
		messages = append(messages, d.Message)
	}
	_, findings := g.check(messages)
	for _, f := range findings {
		d := documents[f.Resource]
		m := resource.Mistake{Source: d.Source, Line: d.LineOf(f.Field), Field: f.Field, Description: f.Description, Fix: f.Fix}
		if !resource.Covered(mistakes, m) {
			mistakes = append(mistakes, m)
		}
	}
	slices.SortStableFunc(mistakes, func(a, b resource.Mistake) int { return cmp.Compare(a.Line, b.Line) })
	lines := make([]string, len(mistakes))
	for i, m := range mistakes {
		lines[i] = m.String()
	}
	return lines
}
