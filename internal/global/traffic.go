package global

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/matches"
)

// reachableLocked is reachable for callers inside each.
func (o *observed) reachableLocked(site string) bool {
	return site == o.g.connection.Site() || o.links[site].Up
}

// Traffic shows what sites measure of chains, per stage and direction; empty parts match all.
func (g *Global) Traffic(customer, name string) []*api.ChainTraffic {
	byChain := map[chain.Key]*api.ChainTraffic{}
	states := g.versionStates()
	each(g.observed, func(site chain.SiteName, _ string, m *control.Measurement) {
		if customer != "" && m.Customer != customer || name != "" && m.Chain != name {
			return
		}
		key := chainKey(m.Customer, m.Chain)
		if byChain[key] == nil {
			byChain[key] = &api.ChainTraffic{Customer: m.Customer, Chain: m.Chain}
		}
		for _, s := range m.Stages {
			byChain[key].Stages = append(byChain[key].Stages, &api.StageTraffic{Stage: s.Stage, Reverse: s.Reverse, Site: string(site),
				ChainLabel: s.ChainLabel &^ 1, State: states[s.ChainLabel&^1], Packets: s.Packets, Bytes: s.Bytes, PacketsPerSecond: s.PacketsPerSecond, Mbps: s.Mbps, NewFlows: s.NewFlows, Drops: s.Drops})
		}
	})
	var all []*api.ChainTraffic
	for _, t := range byChain {
		slices.SortFunc(t.Stages, func(a, b *api.StageTraffic) int {
			return cmp.Or(compareBool(a.Reverse, b.Reverse), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Site, b.Site), cmp.Compare(b.ChainLabel, a.ChainLabel))
		})
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *api.ChainTraffic) int {
		return cmp.Or(cmp.Compare(a.Customer, b.Customer), cmp.Compare(a.Chain, b.Chain))
	})
	return all
}

// versionStates are the states of all chains' versions, by label.
func (g *Global) versionStates() map[uint32]api.RouteState {
	g.mu.Lock()
	defer g.mu.Unlock()
	states := map[uint32]api.RouteState{}
	for _, record := range g.records {
		for _, v := range record.Versions {
			states[v.ChainLabel] = routeState(v.State)
		}
	}
	return states
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

const (
	defaultTraceTime  = 3 * time.Second
	maximumTraceTime  = 60 * time.Second
	defaultTraceLimit = 100
	maximumTraceLimit = 10000
	traceMargin       = 2 * time.Second
)

// Trace follows matching packets of a chain through every forwarder, in the order of time.
func (g *Global) Trace(ctx context.Context, request *api.TraceRequest) (*api.TraceResponse, error) {
	if request.Probe != nil {
		return g.sendProbe(ctx, request)
	}
	f := &chain.Findings{}
	match := matches.Parse("match.", request.GetMatch(), f)
	if len(match.Vlans) > 0 {
		f.Add("match.vlans", "packets bear a VLAN only as they enter at an edge", "name the chain that takes the VLAN")
	}
	if request.DurationMs > uint32(maximumTraceTime.Milliseconds()) {
		f.Add("durationMs", "more than 60000", "write at most 60000")
	}
	if request.Limit > maximumTraceLimit {
		f.Add("limit", "more than 10000", "write at most 10000")
	}
	if len(f.All) > 0 {
		return nil, &Invalid{f.All}
	}
	key := chainKey(request.Customer, request.Chain)
	g.mu.Lock()
	_, exists := g.messages[key]
	g.mu.Unlock()
	if request.Chain != "" && !exists {
		return nil, g.noSuch(key)
	}
	ask := &forwarder.TraceRequest{Match: matches.Rule(match), BothDirections: true,
		DurationMs: cmp.Or(request.DurationMs, uint32(defaultTraceTime.Milliseconds())), Limit: cmp.Or(request.Limit, defaultTraceLimit)}
	told, err := g.traceEverywhere(ctx, g.liveForwarders(), ask)
	if err != nil {
		return nil, err
	}
	response := &api.TraceResponse{CutShort: told.cutShort}
	for _, h := range told.hops {
		if request.Chain == "" || h.Chain == request.Chain && h.Customer == request.Customer || h.Chain == "" {
			response.Hops = append(response.Hops, apiHop(h))
		}
	}
	return response, nil
}

// forwarderPlace names a forwarder.
type forwarderPlace struct{ site, forwarder string }

// String is "<site>/<forwarder>".
func (p forwarderPlace) String() string { return p.site + "/" + p.forwarder }

// liveForwarders are those that their sites say are alive.
func (g *Global) liveForwarders() []forwarderPlace {
	var places []forwarderPlace
	each(g.observed, func(site chain.SiteName, _ string, f *control.ForwarderRecord) {
		if f.Alive {
			places = append(places, forwarderPlace{string(site), f.Forwarder})
		}
	})
	return places
}

// traced is what forwarders tell of a trace, in the order of time, and those where another trace ended it.
type traced struct {
	hops     []*forwarder.TraceHop
	cutShort []string
}

// traceEverywhere asks forwarders; one that does not answer is left out.
func (g *Global) traceEverywhere(ctx context.Context, places []forwarderPlace, ask *forwarder.TraceRequest) (traced, error) {
	payload, err := proto.Marshal(ask)
	if err != nil {
		return traced{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(ask.DurationMs)*time.Millisecond+traceMargin)
	defer cancel()
	var mu sync.Mutex
	var all traced
	var waiting sync.WaitGroup
	for _, p := range places {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			answer, err := g.connection.Request(ctx, p.site, bus.Key("forwarder", p.forwarder, "trace"), payload)
			reply := &forwarder.TraceReply{}
			if err != nil || proto.Unmarshal(answer, reply) != nil {
				g.log.Warn("a forwarder gave no trace", "site", p.site, "forwarder", p.forwarder, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.hops = append(all.hops, reply.Hops...)
			if reply.CutShort {
				all.cutShort = append(all.cutShort, p.String())
			}
		}()
	}
	waiting.Wait()
	slices.SortStableFunc(all.hops, func(a, b *forwarder.TraceHop) int { return cmp.Compare(a.TimeUnixNs, b.TimeUnixNs) })
	slices.Sort(all.cutShort)
	return all, nil
}

func apiHop(h *forwarder.TraceHop) *api.TraceHop {
	return &api.TraceHop{Time: timestamppb.New(time.Unix(0, h.TimeUnixNs)), Site: h.Site, Forwarder: h.Forwarder, Chain: h.Chain,
		ChainLabel: h.ChainLabel, EgressLabel: h.EgressLabel, Stage: h.Stage, Reverse: h.Direction == forwarder.Direction_DIRECTION_REVERSE,
		From: h.From, To: h.To, Decision: h.Decision, Flow: flowText(h), Dropped: h.Dropped, Customer: h.Customer}
}

// flowText is "tcp 10.1.0.10:40000 > 198.51.100.80:80".
func flowText(h *forwarder.TraceHop) string {
	if h.Source == "" {
		return ""
	}
	name, ports := strconv.Itoa(int(h.Protocol)), false
	switch h.Protocol {
	case 1:
		name = "icmp"
	case 6:
		name, ports = "tcp", true
	case 17:
		name, ports = "udp", true
	case 58:
		name = "icmpv6"
	}
	end := func(address string, port uint32) string {
		switch {
		case !ports:
			return address
		case slices.Contains([]byte(address), ':'):
			return "[" + address + "]:" + strconv.Itoa(int(port))
		}
		return address + ":" + strconv.Itoa(int(port))
	}
	return name + " " + end(h.Source, h.SourcePort) + " > " + end(h.Destination, h.DestinationPort)
}
