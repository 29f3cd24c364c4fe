package chain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// World is every resource that was applied.
type World map[Key]Resource

// Specs of a world by key.

// Site finds a site.
func (w World) Site(name SiteName) (SiteSpec, bool) {
	s, ok := w[Key{Kind: KindSite, Name: string(name)}].Spec.(SiteSpec)
	return s, ok
}

// Vnf finds a catalogue entry.
func (w World) Vnf(name VnfName) (VnfSpec, bool) {
	v, ok := w[Key{Kind: KindVnf, Name: string(name)}].Spec.(VnfSpec)
	return v, ok
}

// Edge finds the edge that a customer means by a name: its own, else a shared one.
func (w World) Edge(customer CustomerName, name string) (Key, EdgeSpec, bool) {
	for _, owner := range []CustomerName{customer, ""} {
		key := Key{Kind: KindEdge, Customer: owner, Name: name}
		if e, ok := w[key].Spec.(EdgeSpec); ok {
			return key, e, true
		}
	}
	return Key{}, EdgeSpec{}, false
}

// Keys lists the keys of a kind in order; "" lists all.
func (w World) Keys(kind Kind) []Key {
	var keys []Key
	for k := range w {
		if kind == "" || k.Kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.Compare)
	return keys
}

// CheckReferences reports what is wrong with a resource of the world in view of the others.
func (w World) CheckReferences(key Key, f *Findings) {
	switch spec := w[key].Spec.(type) {
	case LinkSpec:
		w.site(f, "spec.from", spec.From)
		w.site(f, "spec.to", spec.To)
		w.checkParallel(key, spec, f)
	case NetworkSpec:
		w.checkOnlyNetwork(key, f)
	case VnfSpec:
		w.site(f, "spec.controllerSite", spec.ControllerSite)
	case DeploymentSpec:
		w.checkDeployment(key, spec, f)
	case EdgeSpec:
		w.checkEdge(key, spec, f)
	case ChainSpec:
		w.checkChain(key, spec, f)
	}
}

// checkParallel: forwarders of two sites write the steering context in one way, whichever of several links they use.
func (w World) checkParallel(key Key, link LinkSpec, f *Findings) {
	written := func(l LinkSpec) string { return cmp.Or(l.Encapsulation, "vxlan-mpls") }
	for _, other := range w.Keys(KindLink) {
		beside := w[other].Spec.(LinkSpec)
		same := beside.From == link.From && beside.To == link.To || beside.From == link.To && beside.To == link.From
		if other != key && same && written(beside) != written(link) {
			f.Add("spec.encapsulation", fmt.Sprintf("%s joins the same sites with %s", other, written(beside)), "write the same for both")
			return
		}
	}
}

func (w World) site(f *Findings, field string, name SiteName) bool {
	if name == "" {
		return false // reported as missing
	}
	if _, ok := w.Site(name); !ok {
		f.Add(field, fmt.Sprintf("there is no site %q", name), w.known(KindSite))
		return false
	}
	return true
}

// known is the fix for a dangling reference.
func (w World) known(kind Kind) string {
	keys := w.Keys(kind)
	if len(keys) == 0 {
		return "apply a " + string(kind) + " first, or in the same file"
	}
	text := "name one of "
	for i, k := range keys {
		if i == 8 {
			return text + ", …"
		}
		if i > 0 {
			text += ", "
		}
		text += k.Path()
	}
	return text
}

func (w World) checkDeployment(key Key, d DeploymentSpec, f *Findings) {
	if d.Vnf != "" {
		if _, ok := w.Vnf(d.Vnf); !ok {
			f.Add("spec.vnf", fmt.Sprintf("there is no VNF %q", d.Vnf), w.known(KindVnf))
		}
	}
	if w.site(f, "spec.site", d.Site) {
		if site, _ := w.Site(d.Site); d.Capacity > site.Capacity {
			f.Add("spec.capacity", fmt.Sprintf("%v is more than the %v load units of site %q", d.Capacity, site.Capacity, d.Site),
				"write at most what the site has, or give the site more capacity")
		}
	}
	for _, other := range w.Keys(KindDeployment) {
		o := w[other].Spec.(DeploymentSpec)
		if other == key || d.Vnf == "" {
			continue
		}
		if o.Vnf == d.Vnf && o.Site == d.Site {
			f.Add("spec.site", fmt.Sprintf("deployment %q offers VNF %q at site %q already", other.Name, d.Vnf, d.Site),
				"change that deployment, or name another site")
		}
		if p, q, clash := firstOverlap(d.AddressPool, o.AddressPool); clash {
			f.Add("spec.addressPool", fmt.Sprintf("%s overlaps %s of deployment %q", p, q, other.Name), "give each deployment addresses of its own")
		}
	}
}

func firstOverlap(a, b []netip.Prefix) (p, q netip.Prefix, found bool) {
	for _, p := range a {
		for _, q := range b {
			if p.IsValid() && q.IsValid() && p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return p, q, false
}

func (w World) checkEdge(key Key, e EdgeSpec, f *Findings) {
	if !w.site(f, "spec.site", e.Site) {
		return
	}
	for _, other := range w.Keys(KindEdge) {
		o := w[other].Spec.(EdgeSpec)
		if other == key || o.Site != e.Site {
			continue
		}
		if tag, shared := e.sharedTag(o); shared && o.Interface == e.Interface && e.Interface != "" {
			f.Add("spec.interface", fmt.Sprintf("edge %s has interface %q with VLAN %d at site %q", other.Path(), e.Interface, tag, e.Site),
				"give each edge an interface or VLAN of its own")
		}
		if o.What == "internet" && e.What == "internet" {
			continue
		}
		if other.Customer == key.Customer && key.Customer != "" {
			if p, q, clash := firstOverlap(specific(e.Prefixes), specific(o.Prefixes)); clash {
				f.Add("spec.prefixes", fmt.Sprintf("%s overlaps %s of edge %s at the same site", p, q, other.Path()),
					"give each edge of the customer at a site prefixes of its own")
			}
		}
	}
}

// specific leaves out default routes: they give way to any longer prefix.
func specific(prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Bits() == 0 })
}

func (w World) checkChain(key Key, c ChainSpec, f *Findings) {
	ingress := w.checkChainEdges(key, "spec.ingress.edges", c.Ingress, f)
	egress := w.checkChainEdges(key, "spec.egress.edges", c.Egress, f)
	for i, e := range egress {
		if slices.Contains(ingress, e) && e.Name != "" {
			f.Add(fmt.Sprintf("spec.egress.edges[%d]", i), fmt.Sprintf("edge %s is an ingress of the chain too", e.Path()),
				"name different edges as ingress and egress")
		}
	}
	w.checkEgressSites(egress, f)
	w.checkVlans(c, ingress, f)
	for i, key := range egress {
		if e, ok := w[key].Spec.(EdgeSpec); ok && len(e.Vlans) > 0 {
			f.Add(fmt.Sprintf("spec.egress.edges[%d]", i), fmt.Sprintf("edge %s has several VLANs, and nothing says which packets leave by", key.Path()),
				"name an edge with one VLAN (vlan instead of vlans)")
		}
	}
	for i, use := range c.Vnfs {
		if use.Vnf == "" {
			continue
		}
		vnf, ok := w.Vnf(use.Vnf)
		if !ok {
			f.Add(fmt.Sprintf("spec.vnfs[%d].vnf", i), fmt.Sprintf("there is no VNF %q", use.Vnf), w.known(KindVnf))
			continue
		}
		vnf.CheckOptions(f, fmt.Sprintf("spec.vnfs[%d].options", i), use.Options)
	}
}

func (w World) checkChainEdges(key Key, field string, names []string, f *Findings) []Key {
	keys := make([]Key, len(names))
	for i, name := range names {
		if name == "" {
			continue
		}
		edge, _, ok := w.Edge(key.Customer, name)
		if !ok {
			f.Add(fmt.Sprintf("%s[%d]", field, i), fmt.Sprintf("customer %q has no edge %q, and there is no shared one", key.Customer, name),
				"name an edge of the customer or a shared edge")
		}
		keys[i] = edge
	}
	return keys
}

// checkVlans refuses a match on VLANs that an ingress edge has none of, and VLANs that no ingress edge has.
func (w World) checkVlans(c ChainSpec, ingress []Key, f *Findings) {
	if len(c.Match.Vlans) == 0 {
		return
	}
	var carried []uint16
	for i, key := range ingress {
		e, known := w[key].Spec.(EdgeSpec)
		if !known {
			return // it is refused already
		}
		if carried = append(carried, e.Tags()...); !slices.ContainsFunc(e.Tags(), func(v uint16) bool { return c.Match.Bears(uint32(v)) }) {
			f.Add(fmt.Sprintf("spec.ingress.edges[%d]", i), fmt.Sprintf("edge %s carries none of the VLANs of the match", key.Path()),
				"name an edge of kind vlan that does, or correct spec.ingress.match.vlans")
			return
		}
	}
	for i, v := range c.Match.Vlans {
		if v != 0 && !slices.Contains(carried, v) {
			f.Add(fmt.Sprintf("spec.ingress.match.vlans[%d]", i), fmt.Sprintf("no ingress edge carries VLAN %d", v),
				fmt.Sprintf("write one of %v, or add it to the vlans of an edge", carried))
		}
	}
}

// checkEgressSites refuses egress sites that share some destinations and not others. Sites with the same destinations are
// each other's alternative, of which traffic engineering takes one for each ingress; sites with none in common are told
// apart by destination. Both at once is not supported.
func (w World) checkEgressSites(egress []Key, f *Findings) {
	type place struct {
		site     SiteName
		prefixes []netip.Prefix
		last     int // edge
	}
	var places []place
	for i, key := range egress {
		e, ok := w[key].Spec.(EdgeSpec)
		if !ok {
			continue
		}
		at := slices.IndexFunc(places, func(p place) bool { return p.site == e.Site })
		if at < 0 {
			at = len(places)
			places = append(places, place{site: e.Site})
		}
		places[at].prefixes, places[at].last = append(places[at].prefixes, e.Prefixes...), i
	}
	same, apart := 0, 0
	for j, b := range places {
		for _, a := range places[:j] {
			field := fmt.Sprintf("spec.egress.edges[%d]", b.last)
			switch p := firstShared(a.prefixes, b.prefixes); {
			case SamePrefixes(a.prefixes, b.prefixes):
				same++
			case p.IsValid():
				f.Add(field, fmt.Sprintf("sites %s and %s both lead to %s, but not to all the same destinations", b.site, a.site, p),
					"give the edges at both sites the same prefixes, or none in common")
				return
			default:
				apart++
			}
			if same > 0 && apart > 0 {
				f.Add(field, fmt.Sprintf("some egress sites are each other's alternative and site %s is not", b.site),
					"make a chain of its own for each set of destinations")
				return
			}
		}
	}
}

// firstShared is a prefix of both lists, invalid where there is none.
func firstShared(a, b []netip.Prefix) netip.Prefix {
	for _, p := range a {
		if slices.Contains(b, p) {
			return p
		}
	}
	return netip.Prefix{}
}

// References lists what a resource of the world refers to.
func (w World) References(key Key) []Key {
	site := func(names ...SiteName) []Key {
		var keys []Key
		for _, n := range names {
			keys = append(keys, Key{Kind: KindSite, Name: string(n)})
		}
		return keys
	}
	switch spec := w[key].Spec.(type) {
	case LinkSpec:
		return site(spec.From, spec.To)
	case VnfSpec:
		return site(spec.ControllerSite)
	case DeploymentSpec:
		return append(site(spec.Site), Key{Kind: KindVnf, Name: string(spec.Vnf)})
	case EdgeSpec:
		return site(spec.Site)
	case ChainSpec:
		var keys []Key
		for _, name := range append(slices.Clone(spec.Ingress), spec.Egress...) {
			if edge, _, ok := w.Edge(key.Customer, name); ok {
				keys = append(keys, edge)
			}
		}
		for _, use := range spec.Vnfs {
			keys = append(keys, Key{Kind: KindVnf, Name: string(use.Vnf)})
		}
		return keys
	}
	return nil
}

// Referrers lists what refers to a resource, in order.
func (w World) Referrers(key Key) []Key {
	var found []Key
	for _, k := range w.Keys("") {
		if slices.Contains(w.References(k), key) {
			found = append(found, k)
		}
	}
	return found
}
