package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/resource"
)

func newApplyCommand() *cobra.Command {
	flags := &clientFlags{}
	var files []string
	var dryRun bool
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change resources, all or none",
		Example: "  switchboard apply -f examples/chains/web.yaml\n" +
			"  switchboard apply -f directory --dry-run\n  cat chain.yaml | switchboard apply -f -",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usageError{errors.New("apply: say what with -f FILE, -f DIRECTORY or -f -")}
			}
			documents, mistakes, err := readResources(files, command.InOrStdin())
			if err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil && len(mistakes) == 0 {
				return err
			}
			if documents, err = skipObserved(command.ErrOrStderr(), documents, len(mistakes)); err != nil {
				return err
			}
			if len(mistakes) > 0 {
				return &fileMistakes{withRemoteMistakes(command.Context(), client, documents, mistakes)}
			}
			return apply(command.Context(), command.OutOrStdout(), client, documents, dryRun)
		},
	}
	flags.add(command)
	command.Flags().StringArrayVarP(&files, "filename", "f", nil, "file, directory of .yaml, .yml and .json files, or - for standard input")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "check, and say what would change")
	return command
}

// skipObserved leaves out what only the platform says, so that everything that get shows can be applied again.
func skipObserved(notes io.Writer, documents []*resource.Document, mistakes int) ([]*resource.Document, error) {
	skipped := 0
	applied := slices.DeleteFunc(slices.Clone(documents), func(d *resource.Document) bool {
		kind := resource.KindOf(d.Message)
		if !resource.Observed(kind) {
			return false
		}
		fmt.Fprintf(notes, "%s/%s skipped: it is observed, not applied\n", kind, resource.KeyOf(d.Message).Path())
		skipped++
		return true
	})
	if len(applied) == 0 && skipped > 0 && mistakes == 0 {
		return nil, errors.New("nothing is left to be applied")
	}
	return applied, nil
}

// fileMistakes are mistakes in files; each is a line of its own.
type fileMistakes struct{ mistakes []resource.Mistake }

// Error lists all of them.
func (e *fileMistakes) Error() string {
	lines := make([]string, len(e.mistakes))
	for i, m := range e.mistakes {
		lines[i] = m.String()
	}
	return fmt.Sprintf("%s, nothing was applied\n%s", countMistakes(len(lines)), strings.Join(lines, "\n"))
}

func countMistakes(n int) string {
	if n == 1 {
		return "1 mistake"
	}
	return fmt.Sprintf("%d mistakes", n)
}

// readResources reads the resources of files, directories and standard input.
func readResources(files []string, input io.Reader) ([]*resource.Document, []resource.Mistake, error) {
	var documents []*resource.Document
	var mistakes []resource.Mistake
	read := func(name string, text []byte) {
		d, m := resource.ReadFile(name, text)
		documents, mistakes = append(documents, d...), append(mistakes, m...)
	}
	for _, file := range files {
		if file == "-" {
			text, err := readBounded(input)
			if err != nil {
				return nil, nil, err
			}
			read("standard input", text)
			continue
		}
		names, err := filesOf(file)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			file, err := os.Open(name)
			if err != nil {
				return nil, nil, err
			}
			text, err := readBounded(file)
			file.Close()
			if err != nil {
				return nil, nil, err
			}
			read(name, text)
		}
	}
	return documents, append(mistakes, resource.Duplicates(documents)...), nil
}

// readBounded reads up to a byte more than a resource file may have: a device or a mistaken file must not fill memory.
func readBounded(from io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(from, resource.MaximumFile+1))
}

// filesOf is the file itself, or the resource files of a directory in order.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("directory %s has no .yaml, .yml or .json file", path)
	}
	return names, nil
}

// withRemoteMistakes adds what the server finds wrong in documents that could not be read whole: every mistake at once.
// Without a server only those in the files are told.
func withRemoteMistakes(ctx context.Context, client apiv1connect.SwitchboardServiceClient, documents []*resource.Document, mistakes []resource.Mistake) []resource.Mistake {
	if client == nil || len(documents) == 0 {
		return mistakes
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	_, err := client.Apply(ctx, connect.NewRequest(&apiv1.ApplyRequest{Resources: messages(documents), DryRun: true}))
	for _, m := range placed(documents, violations(err)) {
		if !resource.Covered(mistakes, m) {
			mistakes = append(mistakes, m)
		}
	}
	sortByPlace(mistakes)
	return mistakes
}

func sortByPlace(mistakes []resource.Mistake) {
	slices.SortStableFunc(mistakes, func(a, b resource.Mistake) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), cmp.Compare(a.Line, b.Line))
	})
}

func messages(documents []*resource.Document) []*apiv1.Resource {
	all := make([]*apiv1.Resource, len(documents))
	for i, d := range documents {
		all[i] = d.Message
	}
	return all
}

// mistakeIn gives a mistake its place in the file.
func mistakeIn(d *resource.Document, field, description, fix string) resource.Mistake {
	return resource.Mistake{Source: d.Source, Line: d.LineOf(field), Field: field, Description: description, Fix: fix}
}

// placed gives violations their place in the files.
func placed(documents []*resource.Document, found []*apiv1.FieldViolation) []resource.Mistake {
	var all []resource.Mistake
	for _, v := range found {
		if int(v.Resource) >= len(documents) {
			continue
		}
		all = append(all, mistakeIn(documents[v.Resource], v.Field, v.Description, v.Fix))
	}
	sortByPlace(all)
	return all
}

// apply sends documents and says what became of each.
func apply(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, documents []*resource.Document, dryRun bool) error {
	answer, err := client.Apply(ctx, connect.NewRequest(&apiv1.ApplyRequest{Resources: messages(documents), DryRun: dryRun}))
	if found := placed(documents, violations(err)); len(found) > 0 {
		return &fileMistakes{found}
	}
	if err != nil {
		return plain(err)
	}
	suffix := ""
	if dryRun {
		suffix = " (dry run)"
	}
	for _, o := range answer.Msg.Outcomes {
		result := strings.ToLower(strings.TrimPrefix(o.Result.String(), "APPLY_RESULT_"))
		fmt.Fprintf(out, "%s/%s %s%s\n", o.Kind, path(o.Metadata.GetCustomer(), o.Metadata.GetName()), result, suffix)
	}
	return nil
}

func path(customer, name string) string {
	if customer == "" {
		return name
	}
	return customer + "/" + name
}
