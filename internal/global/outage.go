package global

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// OutagePolicy says when something that failed loses its routes, and when it may have routes again. Zero values take the
// defaults.
type OutagePolicy struct {
	// Instances is how long all instances of a deployment are dead before chains are routed around it. Default 1 s.
	Instances time.Duration
	// Forwarders is how long all forwarders of a site are away before chains are routed around it. Default 5 s.
	Forwarders time.Duration
	// Site is how long a site cannot be reached before it counts as gone; its forwarders may well be at work. Default 30 s.
	Site time.Duration
	// Recovered is how long what was away must be there before it gets routes again. Default 10 s.
	Recovered time.Duration
}

func (p *OutagePolicy) defaults() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&p.Instances, time.Second)
	set(&p.Forwarders, 5*time.Second)
	set(&p.Site, 30*time.Second)
	set(&p.Recovered, 10*time.Second)
}

// outages are what new routes must not use, and why.
type outages struct {
	// away are sites, down the deployments at them and those without a healthy instance.
	away map[chain.SiteName]string
	down map[chain.Placement]string
	// downFor are deployments that work, but not for some chain.
	downFor map[chain.Key]map[chain.Placement]string
	// resting are sites and deployments that work again, but not for long: used where nothing else has room.
	restingSites map[chain.SiteName]string
	resting      map[chain.Placement]string
}

func newOutages() outages {
	return outages{away: map[chain.SiteName]string{}, down: map[chain.Placement]string{}, downFor: map[chain.Key]map[chain.Placement]string{},
		restingSites: map[chain.SiteName]string{}, resting: map[chain.Placement]string{}}
}

// withoutAway leaves out ends at sites that are away, unless all are.
func (o outages) withoutAway(ends []end) []end {
	there := slices.DeleteFunc(slices.Clone(ends), func(e end) bool { return o.away[e.site] != "" })
	if len(there) == 0 {
		return ends
	}
	return there
}

// whyDown says why a chain must not use a deployment, "" where it may.
func (o outages) whyDown(key chain.Key, at chain.Placement) string {
	if why := o.down[at]; why != "" {
		return why
	}
	return o.downFor[key][at]
}

// subject is what may fail: a site or a deployment, in one way. A deployment may fail for one chain alone, which is then named.
type subject struct {
	key chain.Key
	way string
	of  chain.Key
}

// The ways to fail.
const (
	wayInstances  = "instances"
	wayForwarders = "forwarders"
	wayLink       = "link"
)

// ailment follows one subject from its first symptom until it has recovered.
type ailment struct {
	// since is when the symptom began, or when it ended where well.
	since time.Time
	well  bool
	// out: it counts as failed.
	out  bool
	text string
}

// watchOutages notices what fails and returns, and has chains routed around it.
func (g *Global) watchOutages(ctx context.Context) {
	changed, stop := g.changes.listen()
	defer stop()
	ailments := map[subject]*ailment{}
	for {
		next := g.examine(ailments)
		wait := idleLook
		if !next.IsZero() {
			wait = max(0, next.Sub(g.config.Now())) + time.Millisecond
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		case <-changed:
			if !sleep(ctx, busyLook/4) { // changes come in showers
				return
			}
		}
	}
}

// examine brings ailments up to date, makes known what changed, and returns when something may change by itself.
func (g *Global) examine(ailments map[subject]*ailment) (next time.Time) {
	now := g.config.Now()
	turned, symptoms := false, g.symptoms()
	for s, text := range symptoms {
		a := ailments[s]
		if a == nil {
			a = &ailment{since: now}
			ailments[s] = a
		} else if a.well {
			// What failed before fails again at once.
			a.well, a.since = false, now
			turned = turned || a.out
		}
		a.text = text
	}
	for s, a := range ailments {
		if _, ill := symptoms[s]; !ill && !a.well {
			a.well, a.since = true, now
			turned = turned || a.out
		}
		at := a.since.Add(g.config.Outages.limit(s.way, a.well))
		switch {
		case a.well && !a.out:
			delete(ailments, s)
		case a.well == !a.out:
		case now.Before(at):
			if next.IsZero() || at.Before(next) {
				next = at
			}
		case a.well:
			delete(ailments, s)
			turned = true
		default:
			a.out, turned = true, true
		}
	}
	if turned {
		g.tellOutages(ailments)
	}
	return next
}

func (p OutagePolicy) limit(way string, well bool) time.Duration {
	switch {
	case well:
		return p.Recovered
	case way == wayInstances:
		return p.Instances
	case way == wayForwarders:
		return p.Forwarders
	}
	return p.Site
}

// symptoms lists what does not work now.
func (g *Global) symptoms() map[subject]string {
	found := map[subject]string{}
	g.instanceSymptoms(found)
	working := map[chain.SiteName]bool{}
	each(g.observed, func(at chain.SiteName, _ string, f *control.ForwarderRecord) { working[at] = working[at] || f.Alive })
	for site, works := range working {
		if !works {
			found[subject{key: chain.Key{Kind: chain.KindSite, Name: string(site)}, way: wayForwarders}] = "its forwarders are away"
		}
	}
	g.mu.Lock()
	sites := g.world.Keys(chain.KindSite)
	g.mu.Unlock()
	for _, key := range sites {
		if !g.observed.reachable(key.Name) {
			found[subject{key: key, way: wayLink}] = "it cannot be reached"
		}
	}
	return found
}

// instanceSymptoms adds deployments none of whose instances works, or works for a chain.
func (g *Global) instanceSymptoms(found map[subject]string) {
	dead, alive, why := map[string]int{}, map[string]int{}, map[string]string{}
	type lost struct{ deployment, chain string }
	failed, whyFailed := map[lost]int{}, map[lost]string{}
	each(g.observed, func(_ chain.SiteName, _ string, i *control.InstanceRecord) {
		switch i.GetObserved().GetState() {
		case api.VnfInstanceState_VNF_INSTANCE_STATE_DEAD:
			dead[i.Deployment]++
			why[i.Deployment] = i.GetObserved().GetReason()
		case api.VnfInstanceState_VNF_INSTANCE_STATE_DRAINING:
		default:
			alive[i.Deployment]++
			for _, name := range i.GetObserved().GetFailedChains() {
				failed[lost{i.Deployment, name}]++
				whyFailed[lost{i.Deployment, name}] = i.GetObserved().GetReason()
			}
		}
	})
	deployment := func(name string) chain.Key { return chain.Key{Kind: chain.KindDeployment, Name: name} }
	for name, n := range dead {
		if alive[name] == 0 {
			found[subject{key: deployment(name), way: wayInstances}] = fmt.Sprintf("none of its instances works (%d dead; %s)", n, why[name])
		}
	}
	for l, n := range failed {
		if customer, name, ok := strings.Cut(l.chain, "/"); ok && n == alive[l.deployment] {
			found[subject{deployment(l.deployment), wayInstances, chainKey(customer, name)}] =
				fmt.Sprintf("none of its instances works for the chain (%s)", whyFailed[l])
		}
	}
}

// tellOutages makes known what is out now, and has every chain look whether it is concerned.
func (g *Global) tellOutages(ailments map[subject]*ailment) {
	now := newOutages()
	g.mu.Lock()
	for s, a := range ailments {
		if !a.out {
			continue
		}
		sites, placements := now.away, now.down
		if a.well {
			sites, placements = now.restingSites, now.resting
		}
		d, deployed := g.world[s.key].Spec.(chain.DeploymentSpec)
		at := chain.Placement{Vnf: d.Vnf, Site: d.Site}
		switch {
		case s.key.Kind == chain.KindSite:
			sites[chain.SiteName(s.key.Name)] = a.text
		case deployed && s.of == chain.Key{}:
			placements[at] = a.text
		case deployed && !a.well:
			if now.downFor[s.of] == nil {
				now.downFor[s.of] = map[chain.Placement]string{}
			}
			now.downFor[s.of][at] = a.text
		}
	}
	for _, key := range g.world.Keys(chain.KindDeployment) {
		d := g.world[key].Spec.(chain.DeploymentSpec)
		at := chain.Placement{Vnf: d.Vnf, Site: d.Site}
		if why := now.away[d.Site]; why != "" {
			now.down[at] = fmt.Sprintf("site %s is away: %s", d.Site, why)
		}
		if why := now.restingSites[d.Site]; why != "" {
			now.resting[at] = fmt.Sprintf("site %s was away: %s", d.Site, why)
		}
	}
	was := g.outages
	g.outages = now
	known := map[chain.SiteName]bool{}
	for _, key := range g.world.Keys(chain.KindSite) {
		known[chain.SiteName(key.Name)] = true
	}
	g.mu.Unlock()
	g.tellOutageEvents(was, now, known)
	g.changed.Add(1)
	g.board.changedAll()
	g.kickAll(nil)
	g.changes.tell()
}

// tellOutageEvents tells what changed; of sites that do not exist any more it tells nothing.
func (g *Global) tellOutageEvents(was, now outages, known map[chain.SiteName]bool) {
	site := func(name chain.SiteName) chain.Key { return chain.Key{Kind: chain.KindSite, Name: string(name)} }
	vnf := func(at chain.Placement) chain.Key { return chain.Key{Kind: chain.KindVnf, Name: string(at.Vnf)} }
	for name, why := range missing(now.away, was.away, was.restingSites) {
		g.events.add(site(name), warning, "SiteAway", why+"; chains are routed around it", sourceGlobal)
	}
	for name := range missing(either(was.away, was.restingSites), now.away, now.restingSites) {
		if known[name] {
			g.events.add(site(name), normal, "SiteUsable", "it may get routes again", sourceGlobal)
		}
	}
	for at, why := range missing(now.down, was.down, was.resting) {
		g.events.add(vnf(at), warning, "DeploymentDown", fmt.Sprintf("at site %s: %s; chains are routed around it", at.Site, why), sourceGlobal)
	}
	for at := range missing(either(was.down, was.resting), now.down, now.resting) {
		g.events.add(vnf(at), normal, "DeploymentUsable", fmt.Sprintf("at site %s: it may get routes again", at.Site), sourceGlobal)
	}
}

// missing are the entries of a map that others do not have.
func missing[K comparable](of map[K]string, from ...map[K]string) map[K]string {
	left := maps.Clone(of)
	for _, other := range from {
		maps.DeleteFunc(left, func(k K, _ string) bool { _, there := other[k]; return there })
	}
	return left
}

// either are the entries of two maps.
func either[K comparable](a, b map[K]string) map[K]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// there leaves out sites that are away: nobody waits for them, and they catch up when they return.
func (g *Global) there(sites []string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(sites), func(site string) bool { return g.outages.away[chain.SiteName(site)] != "" })
}
