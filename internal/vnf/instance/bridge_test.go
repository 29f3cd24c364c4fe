package instance

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/vnf"
)

// filter is a bridge for two customers: one may reach port 80 only, the other everything.
func filter(t *testing.T) *Wanted {
	return &Wanted{
		Deployments: []Deployment{{Name: "bf", VNF: "filter", Driver: "bridge-filter", Instances: 1}},
		Placements: []Placement{
			{Place: place("filter", 16, 1), Customer: "acme", Chain: "web", Options: options(t, map[string]any{"default": "drop", "rules": []any{
				map[string]any{"sourcePrefixes": []any{"10.1.0.0/24"}, "protocol": "tcp", "destinationPorts": []any{"80"}, "verdict": "accept"}}})},
			{Place: place("filter", 18, 1), Customer: "umbra", Chain: "web", Options: options(t, map[string]any{"default": "accept", "rules": []any{
				map[string]any{"sourcePrefixes": []any{"198.51.100.0/24"}, "verdict": "drop", "direction": "reverse"}}})}},
	}
}

func TestBridgeFiltersEachPlaceByItsOwnRules(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	at := serve(t, a, filter(t))
	in, out := openWire(t, at[16].IngressPort), openWire(t, at[16].EgressPort)
	// A bridge must pass frames on whatever their addresses, also where both directions have the same.
	station := net.HardwareAddr{2, 9, 9, 9, 9, 9}
	through := func(from, to *wire, place vnf.Attachment, d datagram, patience time.Duration) bool {
		d.vlan, d.from, d.to = int(place.IngressVLAN), station, station
		from.send(d)
		got, ok := to.receive(patience)
		return ok && got.source == d.source && got.target == d.target
	}
	for _, c := range []struct {
		name     string
		from, to *wire
		at       vnf.Attachment
		packet   datagram
		want     bool
	}{
		{"allowed port", in, out, at[16], tcp(client, server, syn), true},
		{"other port", in, out, at[16], tcp(client, other, syn), false},
		{"answer", out, in, at[16], tcp(server, client, syn|ack), true},
		{"other customer, other port", in, out, at[18], tcp(client, other, syn), true},
		{"other customer, forbidden answer", out, in, at[18], tcp(server, client, syn|ack), false},
		{"no place's tag", in, out, vnf.Attachment{IngressVLAN: 77}, tcp(client, server, syn), false},
		{"again the other way", in, out, at[16], datagram{source: client, target: server, protocol: unix.IPPROTO_TCP, flags: ack}, true},
	} {
		patience := never
		if c.want {
			patience = soon
		}
		if got := through(c.from, c.to, c.at, c.packet, patience); got != c.want {
			t.Errorf("%s: passed %v, want %v", c.name, got, c.want)
		}
	}
}
