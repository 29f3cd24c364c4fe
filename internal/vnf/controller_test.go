package vnf

import (
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

func deployed(t *testing.T) *Controller {
	t.Helper()
	c := &Controller{name: "firewall", capacity: map[string]capacity{}}
	for key, spec := range map[string]*api.VnfDeploymentSpec{
		"directory.deployment.a1": {Vnf: "firewall", Site: "edge-a", Capacity: 60},
		"directory.deployment.a2": {Vnf: "firewall", Site: "edge-a", Capacity: 40},
		"directory.deployment.b":  {Vnf: "firewall", Site: "edge-b", Capacity: 10},
		"directory.deployment.n":  {Vnf: "nat", Site: "edge-b", Capacity: 1000},
	} {
		value, err := proto.Marshal(&control.DeploymentRecord{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		c.learn(bus.Event{Kind: bus.Put, Key: key, Value: value})
	}
	return c
}

// asks is a request of a chain for loads at sites, one position each.
func asks(chain string, label uint32, loads ...*control.SiteLoad) *control.Prepare {
	p := &control.Prepare{Customer: "acme", Chain: chain, ChainLabel: label}
	for i, l := range loads {
		p.Allocations = append(p.Allocations, &control.Allocation{Position: uint32(i + 1), Loads: []*control.SiteLoad{l}})
	}
	return p
}

func at(site string, load float64) *control.SiteLoad {
	return &control.SiteLoad{Site: site, Load: load}
}

func TestCapacityIsGuardedForEachSite(t *testing.T) {
	c := deployed(t)
	held := []*control.Prepare{asks("mail", 20, at("edge-a", 50)), asks("mail", 22, at("edge-a", 30)), asks("web", 16, at("edge-a", 20))}
	for _, test := range []struct {
		name    string
		request *control.Prepare
		want    *control.Rejection // nil: accepted
	}{
		{"fits exactly", asks("new", 30, at("edge-a", 30), at("edge-b", 10)), nil},
		{"too much at one of two sites", asks("new", 30, at("edge-a", 30), at("edge-b", 10.5)),
			&control.Rejection{Site: "edge-b", Requested: 10.5, Available: 10}},
		{"positions add up", asks("new", 30, at("edge-a", 20), at("edge-a", 11)),
			&control.Rejection{Site: "edge-a", Requested: 31, Available: 30}},
		{"versions of one chain share their traffic", asks("mail", 24, at("edge-a", 80)), nil},
		{"a version larger than the others", asks("mail", 24, at("edge-a", 81)),
			&control.Rejection{Site: "edge-a", Requested: 81, Available: 80}},
		{"no deployment there", asks("new", 30, at("core", 1)), &control.Rejection{Site: "core", Requested: 1, Available: 0}},
		{"nothing asked", asks("new", 30), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := c.admit(test.request, held)
			if test.want == nil {
				if got != nil {
					t.Errorf("rejected: %v", got)
				}
				return
			}
			if got == nil || got.Vnf != "firewall" || got.Site != test.want.Site || got.Requested != test.want.Requested ||
				got.Available != test.want.Available || got.Reason == "" {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestMalformedLoadsAreRejected(t *testing.T) {
	c := deployed(t)
	nan := at("edge-a", 0)
	nan.Load /= nan.Load
	for name, request := range map[string]*control.Prepare{
		"not a number": asks("web", 16, nan),
		"negative":     asks("web", 16, at("edge-a", -1)),
		"position 0":   {Allocations: []*control.Allocation{{Loads: []*control.SiteLoad{at("edge-a", 1)}}}},
	} {
		if c.admit(request, nil) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDeploymentsComeAndGo(t *testing.T) {
	c := deployed(t)
	c.learn(bus.Event{Kind: bus.Delete, Key: "directory.deployment.a1"})
	if got := c.admit(asks("new", 30, at("edge-a", 41)), nil); got == nil || got.Available != 40 {
		t.Errorf("got %v, want a rejection with 40 available", got)
	}
}
