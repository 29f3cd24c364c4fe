package global

import (
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

const (
	active   = api.ChainPhase_CHAIN_PHASE_ACTIVE
	rejected = api.ChainPhase_CHAIN_PHASE_REJECTED
)

func TestChainBecomesActive(t *testing.T) {
	p := standard(t)
	p.apply(webChain)
	status := p.awaitPhase("acme", "web", active).Status
	if len(status.Routes) != 1 || status.Routes[0].ChainLabel%2 != 0 {
		t.Fatalf("routes %v, want one with an even label", status.Routes)
	}
	if status.ActivationMs <= 0 || status.ObservedGeneration != 1 {
		t.Fatalf("activation %v ms, generation %d", status.ActivationMs, status.ObservedGeneration)
	}
	t.Logf("activation %.1f ms", status.ActivationMs)
}
