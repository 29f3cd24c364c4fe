package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/switchboard-project/switchboard/internal/bus"
)

// globalProcessName is that of the Global Switchboard in records and logs.
const globalProcessName = "global"

// busPort is where other sites reach a site's bus, on its control address.
const busPort = 7400

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
		Name: underlayProcess, Namespace: p.underlayNamespace(),
		Arguments: []string{programs["switchboard-underlay"], "--config", s.underlayFile(), "--status", s.underlayStatus()},
		Forwards:  true,
	}}
	authority, err := bus.NewAuthority(s.path("authority"))
	if err != nil {
		return nil, err
	}
	for _, site := range p.SitePlans {
		if _, err := authority.EnrolSite(site.Name, s.sitePath(site.Name, "identity")); err != nil {
			return nil, err
		}
		two, err := s.configureSite(p, site, programs)
		if err != nil {
			return nil, err
		}
		processes = append(processes, two...)
	}
	processes = append(processes, s.globalProcess(p, programs))
	for _, vnf := range p.VNFs {
		one, err := s.configureVNF(p, vnf, programs)
		if err != nil {
			return nil, err
		}
		processes = append(processes, one)
	}
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

// configureSite writes a site's file and returns its process and its forwarders'.
func (s state) configureSite(p *plan, site sitePlan, programs map[string]string) ([]process, error) {
	file := s.siteConfiguration(site.Name)
	if err := writeYAML(file, s.siteFile(p, site)); err != nil {
		return nil, err
	}
	processes := []process{{
		Name: siteProcess(site.Name), Namespace: site.Namespace,
		Arguments: []string{programs["switchboard"], "site", "--config", file},
	}}
	for _, f := range site.Forwarders {
		credentials := s.credentials(site.Name, "forwarder."+f.Name)
		one := process{
			Name: forwarderProcess(site.Name, f.Number), Namespace: site.Namespace,
			Arguments: []string{
				programs["switchboard-forwarder"], "--site", site.Name, "--name", f.Name,
				"--credentials", credentials, "--state-directory", s.sitePath(site.Name, "forwarder-"+f.Name),
				"--flow-directory", s.flowTables(flowDirectory(site.Name, f.Number)),
			},
			WaitFor: []string{credentials}, Forwards: true,
		}
		if f.Number > 1 {
			one.Arguments = append(one.Arguments, "--metrics", fmt.Sprintf("127.0.0.1:%d", metricsPort+f.Number-1))
		}
		if p.SpareForwarders {
			one.Arguments = append(one.Arguments, "--spare")
			spare := one
			spare.Name += spareSuffix
			processes = append(processes, spare)
		}
		processes = append(processes, one)
	}
	return processes, nil
}

// spareSuffix ends the name of a forwarder's second process.
const spareSuffix = ".spare"

// metricsPort is where a site's first forwarder serves metrics, on its loopback interface; the others follow.
const metricsPort = 9470

// underlayProcess is the name of the wide area's process in records and logs.
const underlayProcess = "underlay"

func (s state) siteConfiguration(site string) string { return s.sitePath(site, "site.yaml") }

func siteProcess(site string) string { return "site-" + site }

// globalProcess is the Global Switchboard. It lives in the namespace of its site, where the bus is, and serves the API
// on sockets that the supervisor opened on the host.
func (s state) globalProcess(p *plan, programs map[string]string) process {
	credentials := s.credentials(p.GlobalSite, "controller.default")
	return process{
		Name: globalProcessName, Namespace: p.site(p.GlobalSite).Namespace,
		Arguments: []string{
			programs["switchboard"], "global", "--credentials", credentials, "--listen", "fd:3", "--listen", "fd:4",
			"--te", programs["switchboard-te"], "--token-file", s.tokenFile(),
		},
		WaitFor: []string{credentials}, Listens: true,
	}
}

// siteFile is the configuration of `switchboard site`.
func (s state) siteFile(p *plan, site sitePlan) any {
	peers := []map[string]any{}
	for _, other := range p.SitePlans {
		if other.Name != site.Name {
			peers = append(peers, map[string]any{"site": other.Name, "address": busAddress(other)})
		}
	}
	interfaces := []map[string]any{}
	for _, segment := range p.Segments {
		if segment.Site == site.Name {
			interfaces = append(interfaces, map[string]any{"name": segment.Interface, "forwarder": site.Interfaces[segment.Interface]})
		}
	}
	forwarders := []map[string]any{}
	for _, f := range site.Forwarders {
		if !f.Leaving {
			forwarders = append(forwarders, map[string]any{
				"name": f.Name, "tunnelAddress": f.Tunnel.String(), "interface": f.Interface, "mtu": p.MTU,
			})
		}
	}
	return map[string]any{
		"site": site.Name, "globalSite": p.GlobalSite,
		"bus": map[string]any{
			"listen": busAddress(site), "agents": "127.0.0.1:4222", "peers": peers,
			"store": s.sitePath(site.Name, "store"), "identity": s.sitePath(site.Name, "identity"),
		},
		"forwarders":     forwarders,
		"edgeInterfaces": interfaces,
		"vnf":            map[string]any{"namespacePrefix": Prefix(p.Name), "programs": p.Programs},
	}
}

// configureVNF writes a VNF controller's file and returns its process, at the site that the catalogue entry names or
// else the global one.
func (s state) configureVNF(p *plan, vnf VNF, programs map[string]string) (process, error) {
	site := p.site(cmp.Or(vnf.ControllerSite, p.GlobalSite))
	file := s.path("vnf", vnf.Name+".yaml")
	credentials := s.credentials(site.Name, "service.default")
	err := writeYAML(file, map[string]any{"globalSite": p.GlobalSite, "credentials": credentials})
	return process{
		Name: "vnf-" + vnf.Name, Namespace: site.Namespace,
		Arguments: []string{programs["switchboard"], "vnf", vnf.Name, "--config", file},
		WaitFor:   []string{credentials},
	}, err
}

func busAddress(site sitePlan) string {
	return netip.AddrPortFrom(site.Control.Addr(), busPort).String()
}

func (s state) sitePath(site string, parts ...string) string {
	return s.path(append([]string{"sites", site}, parts...)...)
}

// credentials is the file in which a site's process lets an agent in.
func (s state) credentials(site, agent string) string {
	return s.sitePath(site, "store", "credentials", agent+".json")
}

func writeYAML(path string, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	return writeFile(path, text, 0o644)
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
