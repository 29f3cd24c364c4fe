package global

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// network is the resource that limits links to a share of their bandwidth.
func network(utilization float64) string {
	return fmt.Sprintf("kind: Network\nmetadata: {name: backbone}\nspec: {maxLinkUtilization: %v}\n", utilization)
}

// customer is the resource that gives acme's chains a priority.
func customer(priority int) string {
	return fmt.Sprintf("kind: Customer\nmetadata: {name: acme}\nspec: {priority: %d}\n", priority)
}

// modelEntry is an entry of the model's bucket, "" where there is none.
func (p *platform) modelEntry(key string) string {
	entry, err := p.hq.connection.Local(bus.ModelBucket).Get(testContext(p.t), key)
	if err != nil {
		return ""
	}
	return string(entry.Value)
}

// optimum is what an optimiser finds for an objective, 0 where none answers.
func (p *platform) optimum(objective string) float64 {
	ctx, cancel := context.WithTimeout(testContext(p.t), time.Second)
	defer cancel()
	reply, err := p.hq.connection.Request(ctx, p.hq.name, movesService, []byte(`{"objective": "`+objective+`"}`))
	var answer struct{ Value float64 }
	if err != nil || json.Unmarshal(reply, &answer) != nil {
		return 0
	}
	return answer.Value
}

// Two links of 100 Mbit/s leave the office. A chain of 50 Mbit/s forward fits where links may be used in full, and not at
// a fifth.
func TestLinksAreUsedUpToTheShareThatTheNetworkStates(t *testing.T) {
	p := standard(t)
	p.apply(strings.ReplaceAll(topology, "bandwidthMbps: 1000}", "bandwidthMbps: 100}"))
	p.apply(network(0.2))
	p.apply(webChain)
	c := p.awaitPhase("acme", "web", api.ChainPhase_CHAIN_PHASE_REJECTED)
	if reason := c.Status.Reason; !strings.Contains(reason, "can be carried: link") {
		t.Errorf("rejected: %s", reason)
	}
	p.apply(network(0.8))
	p.awaitPhase("acme", "web", active)
	if entry := p.modelEntry(networkEntry); entry != `{"max_link_utilization":0.8}` {
		t.Errorf("the model's entry is %q", entry)
	}
	p.stop()
	p.startGlobal()
	if err := p.g.Delete(testContext(t), chain.Key{Kind: chain.KindNetwork, Name: "backbone"}); err != nil {
		t.Fatal(err)
	}
	p.await("the entry is gone", func() bool { return p.modelEntry(networkEntry) == "" })
}

// An optimiser counts a customer's traffic by the customer's priority, unless the chain states its own.
func TestAnOptimiserKnowsTheCustomersPriority(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	for _, step := range []struct {
		file string
		want float64 // of 100 Mbit/s
	}{
		{customer(5), 500},
		{customer(7), 700},
		{strings.Replace(webChain, "demand:", "priority: 2\n  demand:", 1), 200},
		{webChain, 700},
	} {
		p.apply(step.file)
		p.await(fmt.Sprintf("the optimum is worth %v", step.want), func() bool {
			value := p.optimum("throughput")
			return value > step.want-0.01 && value < step.want+0.01
		})
	}
	if err := p.g.Delete(testContext(t), chain.Key{Kind: chain.KindCustomer, Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	p.await("the customer is as any other", func() bool { value := p.optimum("throughput"); return value > 99.99 && value < 100.01 })
}

// The older chain gives way: it states a lower priority than that which the younger has from its customer.
func TestACustomersPriorityKeepsItsChainsTraffic(t *testing.T) {
	p := standard(t)
	p.apply(customer(5))
	p.apply(strings.NewReplacer("name: web", "name: low", "demand:", "priority: 1\n  demand:").Replace(webChain))
	p.awaitPhase("acme", "low", active)
	p.apply(webChain)
	p.awaitPhase("acme", "web", active)
	used := p.chain("acme", "web").Status.Routes[0].Sites[0]
	other := map[string]string{"hq": "west", "west": "hq"}[used]
	p.apply(strings.Replace(topology, "{vnf: firewall, site: "+used+", capacity: 400", "{vnf: firewall, site: "+used+", capacity: 200", 1))
	p.await("the chain of low priority has moved", func() bool {
		s := p.chain("acme", "low").Status
		return s.Phase == active && len(s.Routes) == 1 && s.Routes[0].Sites[0] == other
	})
	if s := p.chain("acme", "web").Status; s.Routes[0].Sites[0] != used {
		t.Fatalf("the chain of the customer's priority moved: %v", s.Routes)
	}
}

// A writer that puts nonsense into the model stops nobody: the last right values hold, and te.status names the wrong ones.
func TestAWrongEntryOfTheModelStopsNoChain(t *testing.T) {
	p := standard(t)
	p.await("the topology is known", func() bool { return p.optimiserStatus().Nodes == 3 })
	store := p.hq.connection.Local(bus.ModelBucket)
	wrong := map[string]string{
		bus.Key("link", "office-west"+forwardLink): `{"id":"office-west>","from":"office","to":"west","latency_ms":4,"bandwidth_mbps":-5}`,
		bus.Key("site", "west"):                    `{"id":"west","node":"west","capacity":"NaN"}`,
		bus.Key("vnf", "cache"):                    `{"id":"cache","load_per_mbps":1}`,
		bus.Key("node", "office"):                  `{"id":"office"`,
	}
	for key, value := range wrong {
		if _, err := store.Put(testContext(t), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	p.await("the wrong entries are named", func() bool {
		named := 0
		for _, r := range p.optimiserStatus().Refused {
			if wrong[r.Key] == "" || r.Reason == "" {
				t.Errorf("%s is refused: %s", r.Key, r.Reason)
			}
			named++
		}
		return named == len(wrong)
	})
	p.apply(webChain)
	// The link as it was is part of the fastest way; without it the chain would take the direct link's 20 ms.
	if c := p.awaitPhase("acme", "web", active); c.Status.Routes[0].LatencyMs != 9 {
		t.Errorf("the routes are %v", c.Status.Routes)
	}
}
