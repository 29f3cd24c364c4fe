package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// cellOf is a cell that depends on the resource alone.
func cellOf(f func(*api.Resource) string) func(*api.Resource, time.Time) string {
	return func(r *api.Resource, _ time.Time) string { return f(r) }
}

var (
	nameColumn     = column{"NAME", false, cellOf(func(r *api.Resource) string { return r.GetMetadata().GetName() })}
	customerColumn = column{"CUSTOMER", false, cellOf(func(r *api.Resource) string { return r.GetMetadata().GetCustomer() })}
	ageColumn      = column{"AGE", false, func(r *api.Resource, now time.Time) string { return Age(r.GetMetadata().GetCreated(), now) }}
)

var columns = map[chain.Kind][]column{
	chain.KindSite: {nameColumn,
		{"KIND", false, cellOf(func(r *api.Resource) string { return resource.Word(r.GetSite().GetSpec().GetKind()) })},
		{"CONNECTED", false, cellOf(func(r *api.Resource) string { return yes(r.GetSite().GetStatus().GetConnected()) })},
		{"FORWARDERS", false, cellOf(forwarders)},
		{"CAPACITY", false, cellOf(func(r *api.Resource) string { return number(r.GetSite().GetSpec().GetCapacity()) })},
		{"LABEL", false, cellOf(func(r *api.Resource) string { return fmt.Sprint(r.GetSite().GetStatus().GetLabel()) })},
		{"FLOW ENTRIES", true, cellOf(flowEntries)},
		{"DROPS", true, cellOf(drops)},
		ageColumn},
	chain.KindLink: {nameColumn,
		{"FROM", false, cellOf(func(r *api.Resource) string { return r.GetLink().GetSpec().GetFrom() })},
		{"TO", false, cellOf(func(r *api.Resource) string { return r.GetLink().GetSpec().GetTo() })},
		{"LATENCY", false, cellOf(func(r *api.Resource) string { return number(r.GetLink().GetSpec().GetLatencyMs()) + " ms" })},
		{"BANDWIDTH", false, cellOf(func(r *api.Resource) string { return number(r.GetLink().GetSpec().GetBandwidthMbps()) + " Mbit/s" })},
		{"BACKGROUND", true, cellOf(func(r *api.Resource) string { return number(r.GetLink().GetSpec().GetBackgroundMbps()) + " Mbit/s" })},
		ageColumn},
	chain.KindNetwork: {nameColumn,
		{"MAX LINK UTILIZATION", false, cellOf(func(r *api.Resource) string {
			if share := r.GetNetwork().GetSpec().GetMaxLinkUtilization(); share != 0 {
				return number(100*share) + "%"
			}
			return "100%"
		})},
		ageColumn},
	chain.KindCustomer: {nameColumn,
		{"PRIORITY", false, cellOf(func(r *api.Resource) string { return fmt.Sprint(r.GetCustomer().GetSpec().GetPriority()) })},
		ageColumn},
	chain.KindVnf: {nameColumn,
		{"DRIVER", false, cellOf(func(r *api.Resource) string { return r.GetVnf().GetSpec().GetDriver() })},
		{"ATTACHMENT", false, cellOf(func(r *api.Resource) string { return resource.Word(r.GetVnf().GetSpec().GetAttachment()) })},
		{"LOAD/MBPS", false, cellOf(func(r *api.Resource) string { return number(r.GetVnf().GetSpec().GetLoadPerMbps()) })},
		{"CONTROLLER", false, cellOf(controller)},
		{"INSTANCES", false, cellOf(func(r *api.Resource) string {
			s := r.GetVnf().GetStatus()
			return fmt.Sprintf("%d/%d", s.GetHealthyInstances(), s.GetInstances())
		})},
		{"BEHAVIOUR", true, cellOf(behaviour)},
		{"OPTIONS", true, cellOf(options)},
		ageColumn},
	chain.KindDeployment: {nameColumn,
		{"VNF", false, cellOf(func(r *api.Resource) string { return r.GetVnfDeployment().GetSpec().GetVnf() })},
		{"SITE", false, cellOf(func(r *api.Resource) string { return r.GetVnfDeployment().GetSpec().GetSite() })},
		{"HEALTHY", false, cellOf(func(r *api.Resource) string {
			return fmt.Sprintf("%d/%d", r.GetVnfDeployment().GetStatus().GetHealthyInstances(), r.GetVnfDeployment().GetSpec().GetInstances())
		})},
		{"RESERVED", false, cellOf(func(r *api.Resource) string { return number(r.GetVnfDeployment().GetStatus().GetReserved()) })},
		{"CAPACITY", false, cellOf(func(r *api.Resource) string { return number(r.GetVnfDeployment().GetSpec().GetCapacity()) })},
		{"POOL", true, cellOf(func(r *api.Resource) string {
			return strings.Join(r.GetVnfDeployment().GetSpec().GetAddressPool(), ",")
		})},
		ageColumn},
	chain.KindInstance: {nameColumn,
		{"VNF", false, cellOf(func(r *api.Resource) string { return r.GetVnfInstance().GetVnf() })},
		{"SITE", false, cellOf(func(r *api.Resource) string { return r.GetVnfInstance().GetSite() })},
		{"STATE", false, cellOf(func(r *api.Resource) string { return title(resource.Word(r.GetVnfInstance().GetState())) })},
		{"WEIGHT", false, cellOf(func(r *api.Resource) string { return fmt.Sprint(r.GetVnfInstance().GetWeight()) })},
		{"FLOW ENTRIES", false, cellOf(func(r *api.Resource) string { return fmt.Sprint(r.GetVnfInstance().GetFlows()) })},
		{"PACKETS", false, cellOf(func(r *api.Resource) string { return fmt.Sprint(r.GetVnfInstance().GetPackets()) })},
		{"REASON", false, cellOf(func(r *api.Resource) string { return r.GetVnfInstance().GetReason() })},
		{"CHAINS", true, cellOf(func(r *api.Resource) string { return strings.Join(r.GetVnfInstance().GetChains(), ",") })},
		{"NAMESPACE", true, cellOf(func(r *api.Resource) string { return r.GetVnfInstance().GetNamespace() })},
		{"SINCE", false, func(r *api.Resource, now time.Time) string { return Age(r.GetVnfInstance().GetSince(), now) }}},
	chain.KindEdge: {nameColumn, customerColumn,
		{"KIND", false, cellOf(func(r *api.Resource) string { return resource.Word(r.GetEdge().GetSpec().GetKind()) })},
		{"SITE", false, cellOf(func(r *api.Resource) string { return r.GetEdge().GetSpec().GetSite() })},
		{"INTERFACE", false, cellOf(edgeInterface)},
		{"PREFIXES", false, cellOf(func(r *api.Resource) string { return strings.Join(r.GetEdge().GetSpec().GetPrefixes(), ",") })},
		{"UP", false, cellOf(func(r *api.Resource) string { return yes(r.GetEdge().GetStatus().GetUp()) })},
		{"REASON", true, cellOf(func(r *api.Resource) string { return r.GetEdge().GetStatus().GetReason() })},
		ageColumn},
	chain.KindChain: {nameColumn, customerColumn,
		{"PHASE", false, cellOf(func(r *api.Resource) string { return title(resource.Word(r.GetChain().GetStatus().GetPhase())) })},
		{"ROUTES", false, cellOf(routeSummary)},
		{"LABEL", false, cellOf(chainLabel)},
		{"JOINED", true, cellOf(joinedEdges)},
		{"LATENCY", true, cellOf(chainLatency)},
		{"DEMAND", true, cellOf(func(r *api.Resource) string { return demand(r.GetChain().GetSpec().GetDemand()) })},
		{"PLANNED", true, cellOf(func(r *api.Resource) string { return demand(r.GetChain().GetStatus().GetPlanned()) })},
		{"MEASURED", true, cellOf(func(r *api.Resource) string { return demand(r.GetChain().GetStatus().GetMeasured()) })},
		{"ACTIVATION", true, cellOf(activation)},
		{"REASON", false, cellOf(chainReason)},
		ageColumn},
	chain.KindMove: {{"CHAIN", false, cellOf(func(r *api.Resource) string { return r.GetMetadata().GetName() })}, customerColumn,
		{"GAIN", false, cellOf(func(r *api.Resource) string { return percent(r.GetMove().GetGain()) })},
		{"LATENCY", false, cellOf(func(r *api.Resource) string {
			return number(r.GetMove().GetLatencyMsNow()) + " to " + number(r.GetMove().GetLatencyMsThen()) + " ms"
		})},
		{"FROM", false, cellOf(func(r *api.Resource) string { return paths(r.GetMove().GetFrom()) })},
		{"TO", false, cellOf(func(r *api.Resource) string { return paths(r.GetMove().GetTo()) })},
		{"PLANNED", false, func(r *api.Resource, now time.Time) string { return Age(r.GetMove().GetPlanned(), now) }}},
	chain.KindRoute: {nameColumn, customerColumn,
		{"CHAIN", false, cellOf(func(r *api.Resource) string { return r.GetRoute().GetChain() })},
		{"STATE", false, cellOf(func(r *api.Resource) string { return title(resource.Word(r.GetRoute().GetStatus().GetState())) })},
		{"SHARE", false, cellOf(func(r *api.Resource) string { return percent(r.GetRoute().GetStatus().GetFraction()) })},
		{"PATH", false, cellOf(func(r *api.Resource) string { return path(r.GetRoute().GetStatus()) })},
		{"LATENCY", false, cellOf(func(r *api.Resource) string { return number(r.GetRoute().GetStatus().GetLatencyMs()) + " ms" })},
		{"FORWARD", false, cellOf(func(r *api.Resource) string {
			return fmt.Sprintf("%d/%d", r.GetRoute().GetStatus().GetChainLabel(), r.GetRoute().GetStatus().GetEgressLabel())
		})},
		{"REVERSE", false, cellOf(func(r *api.Resource) string {
			return fmt.Sprintf("%d/%d", r.GetRoute().GetStatus().GetChainLabel()|1, r.GetRoute().GetStatus().GetEgressLabel())
		})}},
}

// paths shows routes with their shares where there are several.
func paths(routes []*api.RouteStatus) string {
	var all []string
	for _, r := range routes {
		text := path(r)
		if len(routes) > 1 {
			text += " " + percent(r.GetFraction())
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func title(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

func forwarders(r *api.Resource) string {
	all := r.GetSite().GetStatus().GetForwarders()
	alive := 0
	for _, f := range all {
		if f.Alive {
			alive++
		}
	}
	return fmt.Sprintf("%d/%d", alive, len(all))
}

func flowEntries(r *api.Resource) string {
	sum := uint64(0)
	for _, f := range r.GetSite().GetStatus().GetForwarders() {
		sum += f.FlowEntries
	}
	return fmt.Sprint(sum)
}

func drops(r *api.Resource) string {
	sum := uint64(0)
	for _, f := range r.GetSite().GetStatus().GetForwarders() {
		for _, n := range f.Drops {
			sum += n
		}
	}
	return fmt.Sprint(sum)
}

func controller(r *api.Resource) string {
	if r.GetVnf().GetStatus().GetControllerConnected() {
		return r.GetVnf().GetSpec().GetControllerSite()
	}
	return r.GetVnf().GetSpec().GetControllerSite() + " (away)"
}

func options(r *api.Resource) string {
	var all []string
	for _, o := range r.GetVnf().GetSpec().GetOptions() {
		all = append(all, o.Name+":"+resource.Word(o.Type))
	}
	return strings.Join(all, ",")
}

// behaviour is what a VNF's catalogue entry says it does.
func behaviour(r *api.Resource) string {
	b := r.GetVnf().GetSpec().GetBehaviour()
	var all []string
	for _, does := range []struct {
		so   bool
		word string
	}{{b.GetChangesAddresses(), "changes-addresses"}, {b.GetDrops(), "drops"}, {b.GetStateful(), "stateful"}} {
		if does.so {
			all = append(all, does.word)
		}
	}
	return strings.Join(all, ",")
}

func edgeInterface(r *api.Resource) string {
	spec := r.GetEdge().GetSpec()
	vlans := spec.GetVlans()
	if spec.GetVlan() != 0 {
		vlans = []uint32{spec.GetVlan()}
	}
	if len(vlans) == 0 {
		return spec.GetInterface()
	}
	return spec.GetInterface() + "." + strings.ReplaceAll(strings.Trim(fmt.Sprint(vlans), "[]"), " ", ",")
}

func demand(d *api.Demand) string {
	if d == nil {
		return ""
	}
	return number(d.ForwardMbps) + "/" + number(d.ReverseMbps) + " Mbit/s"
}

func percent(share float64) string { return fmt.Sprintf("%.4g%%", share*100) }

// path is a route's sites in order, with the VNF at each stop.
func path(r *api.RouteStatus) string {
	return Stops(r.GetIngressSite(), r.GetVnfs(), r.GetSites(), r.GetEgressSite())
}

// Stops writes a path for people: "office > firewall@edge-west > nat@dc > dc". vnfs names what is at each of the sites
// between; it may be empty.
func Stops(ingress string, vnfs, sites []string, egress string) string {
	stops := []string{ingress}
	for i, site := range sites {
		if i < len(vnfs) {
			site = vnfs[i] + "@" + site
		}
		stops = append(stops, site)
	}
	return strings.Join(append(stops, egress), " > ")
}

// routeSummary is the first route that carries connections and how many more there are.
func routeSummary(r *api.Resource) string {
	var carrying []*api.RouteStatus
	for _, route := range r.GetChain().GetStatus().GetRoutes() {
		if route.State != api.RouteState_ROUTE_STATE_DRAINING {
			carrying = append(carrying, route)
		}
	}
	switch len(carrying) {
	case 0:
		return ""
	case 1:
		return path(carrying[0])
	}
	return fmt.Sprintf("%s (+%d)", path(carrying[0]), len(carrying)-1)
}

// joinedEdges are the edges whose users joined a chain, each with its site.
func joinedEdges(r *api.Resource) string {
	var all []string
	for _, j := range r.GetChain().GetStatus().GetJoined() {
		if text := j.Edge + "@" + j.Site; !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, ",")
}

// JoinedRows is a table of the edges whose users joined a chain, with the routes that they take.
func JoinedRows(joined []*api.JoinedEdge) [][]string {
	rows := [][]string{{"EDGE", "SITE", "PATH", "FORWARD", "REVERSE"}}
	for _, j := range joined {
		rows = append(rows, []string{j.Edge, j.Site, Stops(j.Site, j.Vnfs, j.Sites, j.EgressSite),
			fmt.Sprintf("%d/%d", j.ChainLabel, j.EgressLabel), fmt.Sprintf("%d/%d", j.ChainLabel|1, j.EgressLabel)})
	}
	return rows
}

// chainLabel lists the labels of a chain's versions, newest first.
func chainLabel(r *api.Resource) string {
	var labels []string
	for _, route := range r.GetChain().GetStatus().GetRoutes() {
		text := fmt.Sprint(route.ChainLabel)
		if route.State == api.RouteState_ROUTE_STATE_DRAINING {
			text += "(draining)"
		}
		if len(labels) == 0 || labels[len(labels)-1] != text {
			labels = append(labels, text)
		}
	}
	return strings.Join(labels, ",")
}

// chainLatency is the mean over the routes that carry connections.
func chainLatency(r *api.Resource) string {
	sum, shares := 0.0, 0.0
	for _, route := range r.GetChain().GetStatus().GetRoutes() {
		if route.State == api.RouteState_ROUTE_STATE_ACTIVE {
			sum += route.LatencyMs * route.Fraction
			shares += route.Fraction
		}
	}
	if shares == 0 {
		return ""
	}
	return number(sum/shares) + " ms"
}

func activation(r *api.Resource) string {
	if ms := r.GetChain().GetStatus().GetActivationMs(); ms > 0 {
		return number(ms) + " ms"
	}
	return ""
}

func chainReason(r *api.Resource) string {
	s := r.GetChain().GetStatus()
	if s.GetReason() == "" || s.GetReasonFrom() == "" {
		return s.GetReason()
	}
	return s.GetReasonFrom() + ": " + s.GetReason()
}
