package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// forwarderName is that of each site's only forwarder.
const forwarderName = "f1"

// configure writes every process's files and says what shall run.
func (s state) configure(p *plan) ([]process, error) {
	programs, err := findPrograms("switchboard-underlay", "switchboard-forwarder", "switchboard-te")
	if err != nil {
		return nil, err
	}
	text, err := p.underlayFile()
	if err != nil {
		return nil, err
	}
	if err := writeFile(s.underlayFile(), text, 0o644); err != nil {
		return nil, err
	}
	processes := []process{{
		Name: "underlay", Namespace: p.underlayNamespace(),
		Arguments: []string{programs["switchboard-underlay"], "--config", s.underlayFile(), "--status", s.underlayStatus()},
	}}
	for _, server := range p.machines() {
		if server.HTTP != 0 {
			processes = append(processes, process{
				Name: "http-" + server.Name, Namespace: p.Namespace(server.Name),
				Arguments: []string{programs["switchboard"], "lab", "serve-http", "--listen", fmt.Sprintf(":%d", server.HTTP)},
			})
		}
	}
	return processes, nil
}

// findPrograms finds this program and others beside it, else in PATH.
func findPrograms(names ...string) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	found := map[string]string{"switchboard": self}
	for _, name := range names {
		beside := filepath.Join(filepath.Dir(self), name)
		if information, err := os.Stat(beside); err == nil && information.Mode()&0o111 != 0 {
			found[name] = beside
			continue
		}
		if found[name], err = exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s is neither beside %s nor in PATH: run `make build`", name, self)
		}
	}
	return found, nil
}
