package chain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func link(name string, from, to SiteName, latency float64) Resource {
	return Resource{Key: Key{Kind: KindLink, Name: name}, Spec: LinkSpec{From: from, To: to, Latency: Milliseconds(latency), Bandwidth: 100}}
}

func worldOf(resources ...Resource) World {
	w := World{}
	for _, r := range resources {
		w[r.Key] = r
	}
	return w
}

// Two equal ways round a square, and a slow diagonal:
//
//	a --1-- b
//	|  \5   |
//	1       1
//	|       |
//	c --1-- d
func TestTrafficTakesShortestPathsEqually(t *testing.T) {
	u := NewUnderlay(worldOf(link("ab", "a", "b", 1), link("bd", "b", "d", 1), link("ac", "a", "c", 1), link("dc", "d", "c", 1), link("ad", "a", "d", 5)))
	if l := u.Latency("a", "d"); l != 2 {
		t.Errorf("latency %v, want 2", l)
	}
	if l := u.Latency("a", "nowhere"); !math.IsInf(float64(l), 1) {
		t.Errorf("latency to an unknown site: %v", l)
	}
	loads := map[DirectedLink]Mbps{}
	u.Spread("a", "d", 10, loads)
	want := map[DirectedLink]Mbps{{"ab", false}: 5, {"bd", false}: 5, {"ac", false}: 5, {"dc", true}: 5}
	if fmt.Sprint(loads) != fmt.Sprint(want) {
		t.Errorf("loads %v, want %v", loads, want)
	}
	u.Spread("a", "nowhere", 10, loads)
	u.Spread("a", "a", 10, loads)
	if fmt.Sprint(loads) != fmt.Sprint(want) {
		t.Errorf("traffic that cannot go, or need not, changed loads to %v", loads)
	}
}

// Every unit that leaves reaches its end, on links whose latencies add up to the distance.
func TestSpreadConservesTraffic(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		var all []Resource
		site := func(i int) SiteName { return SiteName(fmt.Sprintf("s%d", i)) }
		for i := 1; i < 8; i++ {
			all = append(all, link(fmt.Sprintf("t%d", i), site(i), site(r.IntN(i)), float64(1+r.IntN(3))))
		}
		for i := range 6 {
			if a, b := r.IntN(8), r.IntN(8); a != b {
				all = append(all, link(fmt.Sprintf("x%d", i), site(a), site(b), float64(1+r.IntN(3))))
			}
		}
		w := worldOf(all...)
		u := NewUnderlay(w)
		from, to := site(r.IntN(8)), site(r.IntN(8))
		if from == to {
			continue
		}
		loads := map[DirectedLink]Mbps{}
		u.Spread(from, to, 10, loads)
		balance := map[SiteName]float64{from: 10, to: -10}
		weighted := 0.0
		for l, mbps := range loads {
			spec := w[Key{Kind: KindLink, Name: l.Link}].Spec.(LinkSpec)
			a, b := spec.From, spec.To
			if l.Reversed {
				a, b = b, a
			}
			balance[a] -= float64(mbps)
			balance[b] += float64(mbps)
			weighted += float64(mbps) * float64(spec.Latency)
		}
		for s, left := range balance {
			if math.Abs(left) > 1e-9 {
				t.Fatalf("round %d: %v of the traffic is left at %s", round, left, s)
			}
		}
		if want := 10 * float64(u.Latency(from, to)); math.Abs(weighted-want) > 1e-9 {
			t.Fatalf("round %d: traffic times latency is %v, want %v", round, weighted, want)
		}
	}
}

func TestRouteLatencyAndTraffic(t *testing.T) {
	u := NewUnderlay(worldOf(link("ab", "a", "b", 4), link("bc", "b", "c", 5)))
	route := Route{Ingress: "a", Sites: []SiteName{"c", "b"}, Egress: "c", Fraction: 0.5} // a-c, back to b, c again
	if l := u.RouteLatency(route); l != 19 {
		t.Errorf("latency %v, want 9 + 5 + 5", l)
	}
	loads := map[DirectedLink]Mbps{}
	u.AddTraffic([]Route{route}, Demand{Forward: 8, Reverse: 2}, loads)
	// Forward 4 crosses ab once and bc twice, once in each direction besides; reverse 1 the other way.
	want := map[DirectedLink]Mbps{{"ab", false}: 4, {"ab", true}: 1, {"bc", false}: 4 + 4 + 1, {"bc", true}: 4 + 1 + 1}
	for l, mbps := range want {
		if math.Abs(float64(loads[l]-mbps)) > 1e-9 {
			t.Errorf("%v carries %v, want %v", l, loads[l], mbps)
		}
	}
}

func TestReferrersAreFound(t *testing.T) {
	site := func(name string) Resource { return Resource{Key: Key{Kind: KindSite, Name: name}, Spec: SiteSpec{}} }
	edge := func(customer CustomerName, name string) Resource {
		return Resource{Key: Key{KindEdge, customer, name}, Spec: EdgeSpec{Site: "a"}}
	}
	w := worldOf(site("a"), site("b"), link("ab", "a", "b", 1), edge("acme", "lan"), edge("", "lan"), edge("", "internet"),
		Resource{Key: Key{KindChain, "acme", "web"}, Spec: ChainSpec{Ingress: []string{"lan"}, Egress: []string{"internet"}, Vnfs: []Use{{Vnf: "fw"}}}})
	for key, want := range map[Key]string{
		{Kind: KindSite, Name: "b"}:        "[link ab]",
		{KindEdge, "acme", "lan"}:          "[chain acme/web]",
		{Kind: KindEdge, Name: "lan"}:      "[]", // the customer's own comes first
		{Kind: KindEdge, Name: "internet"}: "[chain acme/web]",
		{Kind: KindVnf, Name: "fw"}:        "[chain acme/web]",
		{Kind: KindSite, Name: "a"}:        "[edge internet edge lan edge acme/lan link ab]",
		{KindChain, "acme", "web"}:         "[]",
	} {
		if got := fmt.Sprint(w.Referrers(key)); got != want {
			t.Errorf("%s is referred to by %s, want %s", key, got, want)
		}
	}
}
