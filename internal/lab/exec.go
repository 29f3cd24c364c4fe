package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// Exec replaces this process by a program inside the namespace of a site, host, server or VNF instance. It returns only
// on failure.
func Exec(root, name, machine string, words []string) error {
	name, err := FindName(root, name)
	if err != nil {
		return err
	}
	namespace, err := hostnet.OpenNamespace(Prefix(name) + machine)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("laboratory %s has no %q: use one of %s", name, machine, strings.Join(Machines(name), ", "))
	}
	if err != nil {
		return err
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	// Its children are the laboratory's: `lab down` ends what is still running.
	environment := append(os.Environ(), markVariable+"="+name+"/exec")
	return namespace.Do(func() error {
		if err := unix.Exec(program, words, environment); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		return nil
	})
}

// Sites lists the sites of a laboratory.
func Sites(root, name string) ([]string, error) {
	name, err := FindName(root, name)
	if err != nil {
		return nil, err
	}
	laboratory, err := ReadFile(stateOf(root, name).file())
	if err != nil {
		return nil, err
	}
	return laboratory.Sites, nil
}

// Machines lists what Exec can run programs in.
func Machines(name string) []string {
	namespaces, err := hostnet.NamespaceNames(Prefix(name))
	if err != nil {
		return nil
	}
	machines := make([]string, 0, len(namespaces))
	for _, namespace := range namespaces {
		machines = append(machines, strings.TrimPrefix(namespace, Prefix(name)))
	}
	return machines
}
