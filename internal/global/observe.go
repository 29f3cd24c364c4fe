package global

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// observed is what sites report, by site and key.
type observed struct {
	g *Global

	mu     sync.Mutex
	begun  context.Context // nil until the Global Switchboard runs
	stops  map[chain.SiteName]context.CancelFunc
	values map[chain.SiteName]map[string]proto.Message
	links  map[string]bus.Link
	met    map[string]bool // sites that could be reached once
}

func newObserved(g *Global) *observed {
	return &observed{g: g, stops: map[chain.SiteName]context.CancelFunc{}, values: map[chain.SiteName]map[string]proto.Message{},
		links: map[string]bus.Link{}, met: map[string]bool{}}
}

// reports are the prefixes of what sites publish, and the records they hold.
var reports = map[string]func() proto.Message{
	"forwarder":   func() proto.Message { return &control.ForwarderRecord{} },
	"instance":    func() proto.Message { return &control.InstanceRecord{} },
	"edge":        func() proto.Message { return &control.EdgeObserved{} },
	"progress":    func() proto.Message { return &control.ChainProgress{} },
	"measurement": func() proto.Message { return &control.Measurement{} },
	// What an agent said of itself when it registered is not needed, only that it is there.
	"presence": func() proto.Message { return nil },
}

// begin lets observation start.
func (o *observed) begin(ctx context.Context) {
	o.mu.Lock()
	o.begun = ctx
	o.mu.Unlock()
	o.g.run.Add(2)
	go func() { defer o.g.run.Done(); o.g.events.keep(ctx) }()
	go func() { defer o.g.run.Done(); o.followLinks(ctx) }()
}

func (o *observed) followLinks(ctx context.Context) {
	links, err := o.g.connection.WatchLinks(ctx)
	if err != nil {
		o.g.log.Warn("links between sites are not observed", "error", err)
		return
	}
	for link := range links {
		o.mu.Lock()
		old, known := o.links[link.Peer]
		o.links[link.Peer] = link
		before := o.met[link.Peer]
		o.met[link.Peer] = before || link.Up
		o.mu.Unlock()
		if known && old.Up != link.Up {
			key := chain.Key{Kind: chain.KindSite, Name: link.Peer}
			switch {
			case link.Up && !before:
				o.g.events.add(key, normal, "SiteReached", "the site can be reached", sourceGlobal)
			case link.Up:
				o.g.events.add(key, normal, "SiteReturned", "the site can be reached again", sourceGlobal)
			default:
				o.g.events.add(key, warning, "SiteLost", "the site cannot be reached; its forwarders go on with the rules they have", sourceGlobal)
			}
		}
		o.g.changes.tell()
	}
}

// follow begins to observe a site; again has no effect.
func (o *observed) follow(site chain.SiteName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun == nil || o.stops[site] != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.begun)
	o.stops[site] = cancel
	o.values[site] = map[string]proto.Message{}
	for prefix, fresh := range reports {
		o.g.run.Add(1)
		go func() { defer o.g.run.Done(); o.followPrefix(ctx, site, prefix, fresh) }()
	}
}

// leave forgets a site.
func (o *observed) leave(site chain.SiteName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if stop := o.stops[site]; stop != nil {
		stop()
		delete(o.stops, site)
		delete(o.values, site)
	}
}

func (o *observed) followPrefix(ctx context.Context, site chain.SiteName, prefix string, fresh func() proto.Message) {
	subscription, err := o.g.connection.Subscribe(ctx, string(site), prefix)
	if err != nil {
		o.g.log.Warn("a site is not observed", "site", site, "prefix", prefix, "error", err)
		return
	}
	defer subscription.Close()
	synchronised := false
	for event := range subscription.Events() {
		if event.Kind == bus.Synchronised {
			synchronised = true
			continue
		}
		value := fresh()
		if event.Kind == bus.Put && value != nil {
			if err := proto.Unmarshal(event.Value, value); err != nil {
				o.g.log.Warn("a site's record cannot be read", "site", site, "key", event.Key, "error", err)
				continue
			}
		}
		o.take(site, event, value, synchronised)
	}
}

// take notes a report and tells whom it concerns.
func (o *observed) take(site chain.SiteName, event bus.Event, value proto.Message, told bool) {
	o.mu.Lock()
	values := o.values[site]
	if values == nil {
		o.mu.Unlock()
		return
	}
	old, known := values[event.Key]
	if event.Kind == bus.Delete {
		delete(values, event.Key)
		value = nil
	} else {
		values[event.Key] = value
	}
	o.mu.Unlock()
	if told && (known || event.Kind == bus.Put) {
		o.g.notice(site, event.Key, old, value, event.Kind == bus.Put)
	}
	switch record := value.(type) {
	case *control.ChainProgress:
		o.g.kick(chainKey(record.Customer, record.Chain))
	case *control.Measurement:
		o.g.takeMeasurement(record)
		return // figures are read, not watched
	}
	o.g.changes.tell()
}

// each calls f with every record of a type that sites report.
func each[M proto.Message](o *observed, f func(site chain.SiteName, key string, record M)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for site, values := range o.values {
		for key, value := range values {
			if record, ok := value.(M); ok {
				f(site, key, record)
			}
		}
	}
}

// progress is how far a site has followed a chain, nil where it has not begun.
func (o *observed) progress(site string, key chain.Key) *control.ChainProgress {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, _ := o.values[chain.SiteName(site)][bus.Key("progress", string(key.Customer), key.Name)].(*control.ChainProgress)
	return p
}

// laggards lists the sites that have not applied a record yet, each with what it says.
func (o *observed) laggards(record *control.ChainRecord, sites []string) []string {
	var late []string
	for _, site := range sites {
		p := o.progress(site, chainKey(record.Customer, record.Chain))
		switch {
		case p.GetAppliedRevision() >= record.Revision:
		case p.GetProblem() != "" && p.GetProblemRevision() >= record.Revision:
			late = append(late, fmt.Sprintf("site %s: %s", site, p.Problem))
		case !o.reachable(site):
			late = append(late, fmt.Sprintf("site %s: it cannot be reached", site))
		default:
			late = append(late, "site "+site)
		}
	}
	return late
}

// drained reports whether no site has connections on a version any more, and how many there are.
func (o *observed) drained(record *control.ChainRecord, version *control.ChainVersion) (bool, uint64) {
	flows, sure := uint64(0), true
	for _, site := range sitesOfVersion(version) {
		p := o.progress(site, chainKey(record.Customer, record.Chain))
		if p.GetAppliedRevision() < record.Revision {
			sure = false
		}
		flows += p.GetFlows()[version.ChainLabel] + p.GetFlows()[version.ChainLabel|1]
	}
	return sure && flows == 0, flows
}

// packets is how many packets of a chain label sites have counted; it changes when packets pass.
func (o *observed) packets(key chain.Key, label uint32) uint64 {
	sum := uint64(0)
	each(o, func(_ chain.SiteName, _ string, m *control.Measurement) {
		if chainKey(m.Customer, m.Chain) != key {
			return
		}
		for _, s := range m.Stages {
			if s.ChainLabel&^1 == label {
				sum += s.Packets
			}
		}
	})
	return sum
}

// reachable reports whether the link to a site is up; the own site always is.
func (o *observed) reachable(site string) bool {
	if site == o.g.connection.Site() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.links[site].Up
}

// lastSeen is when a site's link last changed for the worse, or now while it is up.
func (o *observed) lastSeen(site string) time.Time {
	if o.reachable(site) {
		return o.g.config.Now()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.links[site].Since
}

// present reports whether an agent of a kind is registered at a site.
func (o *observed) present(site chain.SiteName, kind, name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.values[site][bus.Key("presence", kind, name)]
	return there
}

// takeMeasurement takes a site's figures into the chain's average.
func (g *Global) takeMeasurement(m *control.Measurement) {
	key := chainKey(m.Customer, m.Chain)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.messages[key] == nil || activeVersion(g.records[key]) == nil {
		return
	}
	if g.measure[key] == nil {
		g.measure[key] = &measured{}
	}
	versions := g.records[key].GetVersions()
	demand := enters(m, func(label uint32) (int, bool) {
		i := slices.IndexFunc(versions, func(v *control.ChainVersion) bool { return v.ChainLabel == label&^1 })
		if i < 0 {
			return 0, false
		}
		return len(versions[i].Vnfs), true
	})
	g.measure[key].add(g.config.Measure, m.Site, demand, g.config.Now())
}
