package instance

import (
	"context"
	"net/netip"
	"reflect"
	"testing"

	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

func TestNativeFilterIsMadeOfAttachmentsAlone(t *testing.T) {
	privateNamespace(t)
	store := newMemory()
	wanted := filter(t)
	wanted.Deployments[0].Driver = "native-filter"
	a := testAgent(t, store)
	at := serve(t, a, wanted)
	if len(at) != 2 {
		t.Fatalf("attachments: %v", at)
	}
	status := a.last.Instances[0]
	if status.State != stateHealthy || status.Namespace != "" {
		t.Errorf("instance is %v in namespace %q", status.State, status.Namespace)
	}
	ingress, egress := vnf.NativePorts("bf-1")
	for _, one := range at {
		if one.Kind != vnf.Native || one.IngressPort != ingress || one.EgressPort != egress || one.IngressVLAN != one.EgressVLAN {
			t.Errorf("attachment %+v", one)
		}
	}
	if at[16].IngressVLAN == at[18].IngressVLAN {
		t.Errorf("both places have VLAN %d", at[16].IngressVLAN)
	}
	acme := &vnf.PacketFilter{AcceptReverse: true, Rules: []vnf.FilterRule{{Match: chain.Match{Sources: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")},
		Protocols: []uint8{6}, DestinationPorts: []chain.PortRange{{First: 80, Last: 80}}}, Forward: true, Accept: true}}}
	umbra := &vnf.PacketFilter{AcceptForward: true, AcceptReverse: true, Rules: []vnf.FilterRule{
		{Match: chain.Match{Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}, Reverse: true}}}
	for label, want := range map[uint32]*vnf.PacketFilter{16: acme, 18: umbra} {
		if got := at[label].Filter; !reflect.DeepEqual(got, want) {
			t.Errorf("chain %d: filter %+v, not %+v", label, got, want)
		}
	}
	// An agent that begins anew gives each place what it had, also one that only drains.
	again := testAgent(t, store)
	wanted.Placements = wanted.Placements[:1]
	again.reconcile(context.Background(), wanted, 1)
	for _, one := range again.last.Attachments {
		if before := at[one.ChainLabel]; one.IngressVLAN != before.IngressVLAN || !reflect.DeepEqual(one.Filter, before.Filter) {
			t.Errorf("attachment %+v was %+v", one, before)
		}
	}
	// What no connection uses goes.
	wanted.Drained = drained([]vnf.Attachment{at[18]})
	again.reconcile(context.Background(), wanted, 2)
	again.reconcile(context.Background(), wanted, 3)
	if left := again.last.Attachments; len(left) != 1 || left[0].ChainLabel != 16 {
		t.Errorf("attachments left: %+v", left)
	}
}
