package lab

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// reservedNames are namespaces and interfaces that the laboratory itself makes.
var (
	reservedNames      = []string{"underlay", "switch"}
	reservedInterfaces = regexp.MustCompile(`^(lo|` + WANInterface + `|wan[0-9]+|` + ControlInterface + `)$`)
)

// maximumSites is bounded by the addresses of the wide area's two networks.
const maximumSites = 250

// check finds what is wrong between the parts of a file.
func (r *reader) check(laboratory *Laboratory) {
	line := laboratory.line
	sites := map[string]bool{}
	for _, site := range laboratory.Sites {
		if sites[site] {
			r.report(line, "metadata.name", fmt.Sprintf("site %q is described twice", site), "keep one")
		}
		sites[site] = true
	}
	switch {
	case len(sites) == 0:
		r.report(line, "kind", "no document is of kind Site", "describe at least one site")
		return
	case len(sites) > maximumSites:
		r.report(line, "kind", fmt.Sprintf("%d sites", len(sites)), fmt.Sprintf("keep to %d", maximumSites))
	}
	known := func(at int, field, site string) {
		if !sites[site] {
			r.report(at, field, fmt.Sprintf("there is no site %q", site), "use one of "+strings.Join(laboratory.Sites, ", "))
		}
	}
	if laboratory.GlobalSite != "" {
		known(line, "spec.globalSite", laboratory.GlobalSite)
	}
	for _, site := range slices.Sorted(maps.Keys(laboratory.Forwarders)) {
		known(laboratory.forwardersLine, "spec.forwarders."+site, site)
	}
	r.checkLinks(laboratory, known)
	for _, vnf := range laboratory.VNFs {
		if vnf.ControllerSite != "" {
			known(line, "spec.controllerSite", vnf.ControllerSite)
		}
	}
	r.checkHosts(laboratory, sites, known)
}

func (r *reader) checkLinks(laboratory *Laboratory, known func(int, string, string)) {
	pairs := map[[2]string]bool{}
	for _, link := range laboratory.Links {
		known(laboratory.line, "spec.from", link.From)
		known(laboratory.line, "spec.to", link.To)
		pair := [2]string{min(link.From, link.To), max(link.From, link.To)}
		if link.From == link.To {
			r.report(laboratory.line, "spec.to", fmt.Sprintf("the link joins %q to itself", link.From), "join two sites")
		} else if pairs[pair] {
			r.report(laboratory.line, "spec", fmt.Sprintf("%s and %s are linked twice", pair[0], pair[1]), "keep one link")
		}
		pairs[pair] = true
	}
}

func (r *reader) checkHosts(laboratory *Laboratory, taken map[string]bool, known func(int, string, string)) {
	names := map[string]bool{}
	for _, name := range reservedNames {
		names[name] = true
	}
	for site := range taken {
		names[site] = true
	}
	type place struct {
		site, link string
		vlan       uint16
		address    netip.Addr
	}
	owners := map[place]string{}
	for _, host := range laboratory.machines() {
		for index, address := range host.Addresses {
			at := place{host.Site, host.Interface, host.VLAN, address.Addr()}
			if owner, twice := owners[at]; twice && address.IsValid() {
				r.report(host.line, fmt.Sprintf("%s.addresses[%d]", host.field, index),
					fmt.Sprintf("%s is host %q's, on the same network", address.Addr(), owner), "choose another")
			}
			owners[at] = host.Name
		}
		if host.Name == "" {
			r.report(host.line, host.field+".name", "is missing", "name the host")
		} else if names[host.Name] {
			r.report(host.line, host.field+".name", fmt.Sprintf("%q is the name of a site, another host or part of the laboratory", host.Name), "choose another")
		}
		names[host.Name] = true
		known(host.line, host.field+".site", host.Site)
		if host.Interface == "" {
			r.report(host.line, host.field+".interface", "is missing", "name the site's interface that the host is behind")
		}
		if reservedInterfaces.MatchString(host.Interface) {
			r.report(host.line, host.field+".interface", fmt.Sprintf("%q is the laboratory's own", host.Interface), "choose another")
		}
		r.checkAddresses(host)
	}
}

func (r *reader) checkAddresses(host Host) {
	if len(host.Addresses) == 0 {
		r.report(host.line, host.field+".addresses", "is missing", "write at least one address with its prefix length")
	}
	families := map[bool]bool{}
	for index, gateway := range host.Gateways {
		field := fmt.Sprintf("%s.gateways[%d]", host.field, index)
		if !gateway.IsValid() {
			continue
		}
		if families[gateway.Is6()] {
			r.report(host.line, field, "a second gateway of the same family", "keep one")
		}
		families[gateway.Is6()] = true
		if !onLink(host.Addresses, gateway) {
			r.report(host.line, field, fmt.Sprintf("%s is not in the network of any address", gateway), "use an address of one of the host's networks")
		}
	}
}

func onLink(addresses []netip.Prefix, gateway netip.Addr) bool {
	for _, address := range addresses {
		if address.IsValid() && address.Contains(gateway) {
			return true
		}
	}
	return false
}

// machines are hosts and servers.
func (l *Laboratory) machines() []Host {
	return append(append([]Host{}, l.Hosts...), l.Servers...)
}
