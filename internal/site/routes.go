package site

import (
	"cmp"
	"slices"
	"strings"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// mostRoutes is what forwarders take of a path.
const mostRoutes = 1024

// pathRoutes are the routes of a path that new connections take, by their sites, with weights that every site makes alike. None where
// all have the same sites for the VNFs: then there is nothing to choose.
func pathRoutes(p *path) []*rules.Route {
	fractions := map[string]float64{}
	sites := map[string][]string{}
	vnfs := map[string]bool{}
	for _, r := range p.current() {
		if r.Fraction <= 0 {
			continue
		}
		name := strings.Join(r.Sites, "/")
		vnfs[name] = true
		name = r.IngressSite + "/" + name + "/" + r.EgressSite
		fractions[name] += r.Fraction
		sites[name] = slices.Concat([]string{r.IngressSite}, r.Sites, []string{r.EgressSite})
	}
	if len(vnfs) < 2 {
		return nil
	}
	names := sortedKeys(fractions)
	shares := make([]float64, len(names))
	for i, name := range names {
		shares[i] = fractions[name]
	}
	var all []*rules.Route
	for i, weight := range chain.Weights(shares) {
		all = append(all, &rules.Route{Weight: weight, Sites: sites[names[i]]})
	}
	if len(all) > mostRoutes { // the least ones' connections go by weights
		slices.SortStableFunc(all, func(a, b *rules.Route) int { return cmp.Compare(b.Weight, a.Weight) })
		all = all[:mostRoutes]
	}
	return all
}

// routes are those of the path's routes that pass this site, and where they begin.
func (c *computation) routes(p *path) ([]*rules.Route, []*rules.Ingress) {
	passing := slices.DeleteFunc(pathRoutes(p), func(r *rules.Route) bool { return !slices.Contains(r.Sites, c.in.Site) })
	begin := map[string]*rules.Ingress{}
	for _, r := range passing {
		begin[r.Sites[0]] = &rules.Ingress{Site: r.Sites[0]}
	}
	everything := map[string]bool{}
	for _, e := range p.ingress {
		ingress := begin[e.site]
		if ingress == nil {
			continue
		}
		everything[e.site] = everything[e.site] || len(e.prefixes) == 0
		ingress.Prefixes = append(ingress.Prefixes, e.prefixes...)
	}
	var ingresses []*rules.Ingress
	for _, site := range sortedKeys(begin) {
		ingress := begin[site]
		slices.Sort(ingress.Prefixes)
		ingress.Prefixes = slices.Compact(ingress.Prefixes)
		if everything[site] {
			ingress.Prefixes = nil
		}
		ingresses = append(ingresses, ingress)
	}
	return passing, ingresses
}
