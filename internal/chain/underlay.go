package chain

import (
	"math"
	"slices"
)

// Underlay is the network between sites: links used in both directions, traffic on shortest paths by latency, split
// equally where several are equal, as ECMP routers do.
type Underlay struct {
	links map[string]LinkSpec
	// next lists the directed links out of a site.
	next map[SiteName][]directed
	// distance from a site to all others, made when first asked for.
	distance map[SiteName]map[SiteName]float64
}

// directed is a link in one direction.
type directed struct {
	link     string
	reversed bool
	to       SiteName
	latency  float64
}

// DirectedLink is one direction of a link: Reversed from its To to its From.
type DirectedLink struct {
	Link     string
	Reversed bool
}

// NewUnderlay builds the underlay of a world.
func NewUnderlay(w World) *Underlay {
	u := &Underlay{links: map[string]LinkSpec{}, next: map[SiteName][]directed{}, distance: map[SiteName]map[SiteName]float64{}}
	for _, key := range w.Keys(KindLink) {
		l := w[key].Spec.(LinkSpec)
		u.links[key.Name] = l
		u.next[l.From] = append(u.next[l.From], directed{key.Name, false, l.To, float64(l.Latency)})
		u.next[l.To] = append(u.next[l.To], directed{key.Name, true, l.From, float64(l.Latency)})
	}
	return u
}

// Latency is the least one-way latency between two sites, +Inf where they are not connected.
func (u *Underlay) Latency(from, to SiteName) Milliseconds {
	if d, ok := u.distances(to)[from]; ok {
		return Milliseconds(d)
	}
	return Milliseconds(math.Inf(1))
}

// distances are those of every site to one, by Dijkstra's algorithm. Links are symmetric.
func (u *Underlay) distances(to SiteName) map[SiteName]float64 {
	if known := u.distance[to]; known != nil {
		return known
	}
	final := map[SiteName]float64{}
	open := map[SiteName]float64{to: 0}
	for len(open) > 0 {
		at, least := SiteName(""), math.Inf(1)
		for s, d := range open {
			if d < least || d == least && s < at {
				at, least = s, d
			}
		}
		delete(open, at)
		final[at] = least
		for _, l := range u.next[at] {
			if _, done := final[l.to]; done {
				continue
			}
			if d, seen := open[l.to]; !seen || least+l.latency < d {
				open[l.to] = least + l.latency
			}
		}
	}
	u.distance[to] = final
	return final
}

// equalLatency is the relative difference below which two latencies are equal, as in traffic engineering.
const equalLatency = 1e-9

// Spread adds traffic from one site to another to the directed links it takes.
func (u *Underlay) Spread(from, to SiteName, traffic Mbps, loads map[DirectedLink]Mbps) {
	distance := u.distances(to)
	if _, connected := distance[from]; !connected || from == to || traffic == 0 {
		return
	}
	arriving := map[SiteName]Mbps{from: traffic}
	order := make([]SiteName, 0, len(distance))
	for s := range distance {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b SiteName) int {
		if distance[a] != distance[b] {
			if distance[a] > distance[b] {
				return -1
			}
			return 1
		}
		return compareNames(a, b)
	})
	for _, s := range order { // farthest first: all that arrives at a site is known when its turn comes
		if s == to || arriving[s] == 0 {
			continue
		}
		hops := u.hops(s, distance)
		for _, h := range hops {
			part := arriving[s] / Mbps(len(hops))
			loads[DirectedLink{h.link, h.reversed}] += part
			arriving[h.to] += part
		}
	}
}

// hops are the links out of a site that lie on a shortest path.
func (u *Underlay) hops(at SiteName, distance map[SiteName]float64) []directed {
	var hops []directed
	for _, l := range u.next[at] {
		d, connected := distance[l.to]
		if connected && d < distance[at] && math.Abs(d+l.latency-distance[at]) <= equalLatency*max(1, distance[at]) {
			hops = append(hops, l)
		}
	}
	return hops
}

func compareNames(a, b SiteName) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// AddTraffic adds a chain's traffic on its routes to the links it takes, both directions.
func (u *Underlay) AddTraffic(routes []Route, demand Demand, loads map[DirectedLink]Mbps) {
	for _, r := range routes {
		for z := 1; z <= len(r.Sites)+1; z++ {
			from, to := r.SiteAt(z-1), r.SiteAt(z)
			u.Spread(from, to, Mbps(r.Fraction)*demand.Forward, loads)
			u.Spread(to, from, Mbps(r.Fraction)*demand.Reverse, loads)
		}
	}
}

// RouteLatency is the one-way latency of a route.
func (u *Underlay) RouteLatency(r Route) Milliseconds {
	sum := Milliseconds(0)
	for z := 1; z <= len(r.Sites)+1; z++ {
		sum += u.Latency(r.SiteAt(z-1), r.SiteAt(z))
	}
	return sum
}
