package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/switchboard-project/switchboard/internal/resource"
	"github.com/switchboard-project/switchboard/internal/show"
)

// addOutput gives a command the flag -o with the forms it has, the first as default.
func addOutput(command *cobra.Command, output *string, forms ...string) {
	command.Flags().StringVarP(output, "output", "o", forms[0], inWords(forms))
	completeFlag(command, "output", fixed(forms...))
}

// checkOutput refuses a form that a command does not have.
func checkOutput(output string, forms ...string) error {
	if slices.Contains(forms, output) {
		return nil
	}
	return usageError{fmt.Errorf("--output %q: use %s", output, inWords(forms))}
}

// inWords is "a, b or c".
func inWords(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// writeList writes messages that are no resources: one document of a kind in JSON or YAML, else the rows of a table.
func writeList[M proto.Message](out io.Writer, form, kind string, items []M, rows func() [][]string) error {
	var text []byte
	var err error
	switch form {
	case "json":
		text = resource.ListJSON(kind, items)
	case "yaml":
		text, err = resource.ListYAML(kind, items)
	default:
		return show.Rows(out, rows())
	}
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}
