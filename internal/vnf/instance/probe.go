package instance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// A probe takes the way of a customer's packet: it comes in by a place's interface, and routing rule, routing table, packet
// filter and the other interface must let it through. It bears hostnet.ProbeMark, which packets from outside cannot bear,
// is not tracked, and is taken back where it would leave for the forwarder. So neither forwarder nor customer sees it, and
// whether the forwarder lives makes no difference. Each place is probed both ways in each family.

const (
	// probeLosses in a row make an instance dead, probeWait is how long each probe is waited for: the kernel answers within
	// microseconds. With probeInterval that is 550 ms.
	probeLosses = 3
	probeWait   = 100 * time.Millisecond
	// probeWellAfter is how many rounds without loss make a dead instance healthy again: a second.
	probeWellAfter = 4
	// probePlaces is how many places of an instance a round has; more take turns.
	probePlaces = 32
	// repairEvery is how often what cannot be repaired is tried again.
	repairEvery = 2 * time.Second
)

var (
	probeMAC     = net.HardwareAddr{0x02, 0x5b, 0, 0, 0, 1}
	probeFrom    = net.HardwareAddr{0x02, 0x5b, 0, 0, 0, 2}
	probeFlights = map[bool]struct{ source, target netip.Addr }{ // by whether IPv6
		false: {netip.MustParseAddr("169.254.0.4"), netip.MustParseAddr("169.254.0.3")},
		true:  {netip.MustParseAddr("100::4"), netip.MustParseAddr("100::3")}, // the discard prefix, RFC 6666
	}
)

const probeProtocol = 253 // for experimentation, RFC 3692

// lane is one way through a place.
type lane struct {
	index   int
	reverse bool
	ipv6    bool
}

func (l lane) ends(d *driver) (enter, leave string) {
	enter, leave = ingressName(l.index), egressName(l.index)
	if d.kind == vnf.Transparent {
		enter, leave = ingressLink, egressLink
	}
	if l.reverse {
		return leave, enter
	}
	return enter, leave
}

// payload is what a lane's probe of a round bears: its index, its way, the round.
func (l lane) payload(round uint32) [12]byte {
	var p [12]byte
	binary.BigEndian.PutUint32(p[0:], uint32(l.index))
	if l.reverse {
		p[4] = 1
	}
	if l.ipv6 {
		p[5] = 1
	}
	binary.BigEndian.PutUint32(p[8:], round)
	return p
}

// frame is a lane's probe.
func (l lane) frame(to net.HardwareAddr, vlan int, round uint32) []byte {
	payload, flight := l.payload(round), probeFlights[l.ipv6]
	frame := append(append([]byte{}, to...), probeFrom...)
	if vlan > 0 {
		frame = append(frame, 0x81, 0, byte(vlan>>8), byte(vlan))
	}
	if l.ipv6 {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), probeProtocol, 64}
		frame = append(append(frame, 0x86, 0xdd), header...)
		frame = append(append(frame, flight.source.AsSlice()...), flight.target.AsSlice()...)
		return append(frame, payload[:]...)
	}
	header := make([]byte, 20)
	header[0], header[3], header[8], header[9] = 0x45, byte(len(header)+len(payload)), 64, probeProtocol
	copy(header[12:], flight.source.AsSlice())
	copy(header[16:], flight.target.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum+sum>>16))
	return append(append(append(frame, 8, 0), header...), payload[:]...)
}

// health is what probing an instance has found.
type health struct {
	prober *hostnet.Prober // nil where the kernel cannot
	round  uint32
	turn   int // of the places
	// ill is why the instance is dead, "" where probes come through; well counts rounds without loss since.
	ill      string
	well     int
	repaired time.Time
}

func (h *health) close() {
	if h.prober != nil {
		h.prober.Close()
		h.prober = nil
	}
}

// openProbes prepares probing. Where the kernel has no traffic-control programs an instance is only looked at.
func (in *instance) openProbes(namespace *hostnet.Namespace, d *driver) {
	err := namespace.EnsureProbes(in.links(d)...)
	if err == nil && in.health.prober == nil {
		in.health.prober, err = namespace.OpenProber()
	}
	if err != nil {
		in.log.Warn("the instance cannot be probed; only its interfaces and rules are looked at", "error", err)
	}
}

// probeLanes sends packets through the instance. Its error says that they do not come out, and what is found to be wrong; the
// next step repairs what can be repaired.
func (in *instance) probeLanes(ctx context.Context, namespace *hostnet.Namespace, links map[string]hostnet.LinkState, d *driver) error {
	h := &in.health
	lanes := in.lanes()
	if h.prober == nil || len(lanes) == 0 {
		return nil
	}
	tries, wait := probeLosses, probeWait
	if h.ill != "" {
		tries, wait = 1, probeWait/2
	}
	h.round++
	lost := lanes
	for try := 0; try < tries && len(lost) > 0; try++ {
		lost = h.exchange(lost, links, d, wait)
	}
	if len(lost) == 0 {
		if h.well++; h.ill != "" && h.well < probeWellAfter {
			return fmt.Errorf("%s", h.ill)
		}
		h.ill = ""
		return nil
	}
	h.well = 0
	if time.Since(h.repaired) > repairEvery {
		enter, leave := lost[0].ends(d)
		h.ill = fmt.Sprintf("%d of %d probes are lost in namespace %s, the first from %s to %s: %s", len(lost), len(lanes), namespace.Name,
			enter, leave, strings.Join(in.diagnose(ctx, namespace, links, d, lost[0]), "; "))
		in.built, h.repaired = false, time.Now()
	}
	return fmt.Errorf("%s", h.ill)
}

// lanes are those of this round.
func (in *instance) lanes() []lane {
	var indexes []int
	for index := range in.paired {
		indexes = append(indexes, index)
	}
	if len(indexes) > probePlaces {
		slices.Sort(indexes)
		from := in.health.turn % len(indexes)
		in.health.turn = from + probePlaces
		indexes = append(indexes[from:], indexes[:from]...)[:probePlaces]
	}
	var lanes []lane
	for _, index := range indexes {
		for way := range 4 {
			lanes = append(lanes, lane{index, way&1 != 0, way&2 != 0})
		}
	}
	return lanes
}

// exchange sends a probe on each lane and returns those lanes whose probe did not come out.
func (h *health) exchange(lanes []lane, links map[string]hostnet.LinkState, d *driver, wait time.Duration) []lane {
	missing := map[[12]byte]lane{}
	for _, l := range lanes {
		missing[l.payload(h.round)] = l
		enter, _ := l.ends(d)
		to, vlan := links[enter].MAC, 0
		if d.kind == vnf.Transparent {
			to, vlan = probeMAC, vlanOf(l.index)
		}
		_ = h.prober.Send(links[enter].Index, l.frame(to, vlan, h.round)) // what is not sent does not come out
	}
	for deadline := time.Now().Add(wait); len(missing) > 0; {
		frame := h.prober.Receive(time.Until(deadline))
		if frame == nil {
			break
		}
		if len(frame) >= 12 && bytes.Equal(frame[:6], probeMAC) {
			delete(missing, [12]byte(frame[len(frame)-12:]))
		}
	}
	lost := make([]lane, 0, len(missing))
	for _, l := range lanes {
		if _, is := missing[l.payload(h.round)]; is {
			lost = append(lost, l)
		}
	}
	return lost
}

// diagnose looks for what keeps a lane's probe from coming out.
func (in *instance) diagnose(ctx context.Context, namespace *hostnet.Namespace, links map[string]hostnet.LinkState, d *driver, l lane) []string {
	var found []string
	family, name := "inet", map[bool]string{false: "IPv4", true: "IPv6"}[l.ipv6]
	if d.kind == vnf.Transparent {
		family = "bridge"
		if !links[bridgeLink].Up {
			found = append(found, "bridge "+bridgeLink+" is down or gone")
		}
	} else {
		sysctl := "net." + strings.ToLower(name) + ".conf.all.forwarding"
		if value, err := namespace.Sysctl(sysctl); err != nil || value != "1" {
			found = append(found, fmt.Sprintf("%s is %q", sysctl, value))
		}
		table := egressTable(l.index)
		if l.reverse {
			table = ingressTable(l.index)
		}
		if count, err := namespace.CountRoutes(table, l.ipv6); err != nil || count < 2 {
			found = append(found, fmt.Sprintf("routing table %d has %d %s routes of 2", table, count, name))
		}
		if count, err := namespace.CountRules(table, l.ipv6); err != nil || count < 1 {
			found = append(found, fmt.Sprintf("no %s rule leads to routing table %d", name, table))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, rulesetLimit)
	defer cancel()
	tables, _ := namespace.FilterTables(ctx)
	for _, table := range tables {
		if table != family+" switchboard" {
			found = append(found, "table "+table+" of nftables is not Switchboard's")
		}
	}
	if len(found) == 0 {
		found = append(found, "the reason is not known")
	}
	return found
}
