package instance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
// whether the forwarder lives makes no difference. Each place is probed both ways in each family. A label-aware instance's program
// gets probes with the context of its places, as from another forwarder, and what it gives back to that is taken before it leaves.

const (
	// probeLosses in a row take a place out of use, probeWait is how long each probe is waited for: the kernel answers within
	// microseconds. With probeInterval that is 550 ms.
	probeLosses = 3
	probeWait   = 100 * time.Millisecond
	// programWait is how long a probe of a program is waited for, which needs a processor: 850 ms in all.
	programWait = 200 * time.Millisecond
	// probeWellAfter is how many rounds without loss bring a place back into use: a second.
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

// lanesOfPlace is how many ways there are through a place: each direction in each family.
const lanesOfPlace = 4

// lane is one way through a place.
type lane struct {
	index   int
	reverse bool
	ipv6    bool
}

func (l lane) ends(d *driver) (enter, leave string) {
	enter, leave = ingressName(l.index), egressName(l.index)
	switch {
	case d.kind == vnf.Transparent:
		enter, leave = ingressLink, egressLink
	case d.kind.LabelAware():
		return labelLink, labelLink
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

// packet is a lane's probe from the IP header on.
func (l lane) packet(round uint32) []byte {
	payload, flight := l.payload(round), probeFlights[l.ipv6]
	if l.ipv6 {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(payload)), probeProtocol, 64}
		header = append(append(header, flight.source.AsSlice()...), flight.target.AsSlice()...)
		return append(header, payload[:]...)
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
	return append(header, payload[:]...)
}

// frame is a lane's probe as it comes in.
func (in *instance) frame(l lane, links map[string]hostnet.LinkState, d *driver, round uint32) []byte {
	enter, _ := l.ends(d)
	if d.kind == vnf.Transparent {
		vlan := vlanOf(l.index)
		return l.ethernet(probeMAC, []byte{0x81, 0, byte(vlan >> 8), byte(vlan)}, round)
	}
	if d.kind.LabelAware() {
		context := in.visitOf(l).header(d.kind, l.ipv6)
		return slices.Concat(links[enter].MAC, probeFrom, context, l.packet(round))
	}
	return l.ethernet(links[enter].MAC, nil, round)
}

func (l lane) ethernet(to net.HardwareAddr, tag []byte, round uint32) []byte {
	kind := []byte{0x08, 0x00}
	if l.ipv6 {
		kind = []byte{0x86, 0xdd}
	}
	return slices.Concat(to, probeFrom, tag, kind, l.packet(round))
}

// visitOf is what a lane's probe bears at a label-aware instance.
func (in *instance) visitOf(l lane) visit {
	if l.reverse {
		return in.visits[l.index][1]
	}
	return in.visits[l.index][0]
}

// returned reports whether a frame is a probe that came out. Those of label-aware instances come back to where they came from, with
// the service index less by one.
func (in *instance) returned(frame []byte, l lane, d *driver) bool {
	if !d.kind.LabelAware() {
		return bytes.Equal(frame[:6], probeMAC)
	}
	want := in.visitOf(l)
	want.ServiceIndex--
	context := want.header(d.kind, l.ipv6)
	return bytes.Equal(frame[:6], probeFrom) && len(frame) >= 12+len(context) && want.same(frame[12:12+len(context)], context, d.kind)
}

// health is what probing an instance has found.
type health struct {
	prober *hostnet.Prober // nil where the kernel cannot
	round  uint32
	turn   int // of the places
	// ill are the places where probes are lost, by index; repair says that one of them is to be made anew.
	ill    map[int]*illness
	repair bool
}

// illness is what is wrong with a place; well counts rounds without loss since.
type illness struct {
	why      string
	begun    time.Time
	well     int
	repaired time.Time
}

func (h *health) close() {
	if h.prober != nil {
		h.prober.Close()
		h.prober = nil
	}
	h.ill = nil
}

// openProbes prepares probing. Where the kernel has no traffic-control programs an instance is only looked at.
func (in *instance) openProbes(namespace *hostnet.Namespace, d *driver) {
	back := probeFrom
	if !d.kind.LabelAware() {
		back = nil
	}
	err := namespace.EnsureProbes(back, in.links(d)...)
	if err == nil && in.health.prober == nil {
		in.health.prober, err = namespace.OpenProber()
	}
	if err != nil {
		in.log.Warn("the instance cannot be probed; only its interfaces and rules are looked at", "error", err)
	}
}

// probeLanes sends packets through the instance's places. A place where they do not come out is out of use; the error says that this
// is so at every place, and what is found to be wrong. The next step repairs what can be repaired.
func (in *instance) probeLanes(ctx context.Context, namespace *hostnet.Namespace, links map[string]hostnet.LinkState, d *driver) error {
	h := &in.health
	for index := range h.ill {
		if !in.paired[index] {
			delete(h.ill, index)
		}
	}
	lanes := in.lanes()
	if h.prober == nil { // what was down is made again by the next step
		for index, ill := range h.ill {
			if ill.well++; ill.well > probeWellAfter {
				delete(h.ill, index)
			}
		}
		return nil
	}
	if len(lanes) == 0 {
		return nil
	}
	h.round++
	sound := slices.DeleteFunc(slices.Clone(lanes), func(l lane) bool { return h.ill[l.index] != nil })
	lost, wait, excused := sound, probeWait, func() bool { return false }
	if d.kind.LabelAware() {
		wait = programWait
	}
	for try := 0; try < probeLosses && len(lost) > 0; try++ {
		lost = in.exchange(lost, links, d, wait)
		if d.kind.LabelAware() && try == 0 && len(lost) > 0 {
			excused = in.program.excuse(namespace)
		}
	}
	if len(sound) < len(lanes) { // what was lost before is not waited for as long
		suspects := slices.DeleteFunc(slices.Clone(lanes), func(l lane) bool { return h.ill[l.index] == nil })
		lost = append(lost, in.exchange(suspects, links, d, wait/2)...)
	}
	if len(lost) > 0 && excused() {
		return nil
	}
	in.judge(ctx, namespace, links, d, lanes, lost)
	if len(h.ill) < len(in.paired) {
		return nil
	}
	if d.kind.LabelAware() {
		return in.restartHung(namespace)
	}
	in.built = in.built && !h.repair // nothing works: not the places alone are made anew
	h.repair = false
	return errors.New(h.ill[slices.Min(slices.Collect(maps.Keys(h.ill)))].why)
}

// judge takes what a round has found into the places' health.
func (in *instance) judge(ctx context.Context, namespace *hostnet.Namespace, links map[string]hostnet.LinkState, d *driver, lanes, lost []lane) {
	h := &in.health
	missing := map[int][]lane{}
	for _, l := range lost {
		missing[l.index] = append(missing[l.index], l)
	}
	for _, l := range lanes {
		if of := missing[l.index]; len(of) > 0 {
			in.suffer(ctx, namespace, links, d, of)
			delete(missing, l.index)
			continue
		}
		if slices.ContainsFunc(lost, func(other lane) bool { return other.index == l.index }) || h.ill[l.index] == nil || l.reverse || l.ipv6 {
			continue // each place counts once
		}
		if h.ill[l.index].well++; h.ill[l.index].well >= probeWellAfter {
			delete(h.ill, l.index)
		}
	}
}

// suffer notes that probes were lost at a place, and has it repaired from time to time.
func (in *instance) suffer(ctx context.Context, namespace *hostnet.Namespace, links map[string]hostnet.LinkState, d *driver, lost []lane) {
	if ill := in.health.ill[lost[0].index]; ill != nil && time.Since(ill.repaired) <= repairEvery {
		ill.well = 0
		return
	}
	enter, leave := lost[0].ends(d)
	in.ails(lost[0].index, fmt.Sprintf("%d of %d probes are lost in namespace %s, the first from %s to %s: %s", len(lost), lanesOfPlace,
		namespace.Name, enter, leave, strings.Join(in.diagnose(ctx, namespace, links, d, lost[0]), "; ")))
}

// ails takes a place out of use, and has it repaired.
func (in *instance) ails(index int, why string) {
	if in.health.ill == nil {
		in.health.ill = map[int]*illness{}
	}
	ill := in.health.ill[index]
	if ill == nil {
		ill = &illness{begun: time.Now()}
		in.health.ill[index] = ill
	}
	ill.why, ill.well, ill.repaired = why, 0, time.Now()
	in.mend(index)
}

// restartHung ends a program that has given nothing back for long, at any place; it is started again like one that ended. The error
// says what is wrong with it.
func (in *instance) restartHung(namespace *hostnet.Namespace) error {
	why, since := "", in.program.started
	for _, ill := range in.health.ill {
		why = ill.why
		if ill.begun.After(since) {
			since = ill.begun
		}
	}
	if time.Since(since) > programHangs {
		why = in.program.kill(namespace)
	}
	return errors.New(why)
}

// mend has the next step make a place anew, and put the rules in force again.
func (in *instance) mend(index int) {
	in.mended[index], in.health.repair = true, true
	in.applied = ""
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
		for way := range lanesOfPlace {
			lanes = append(lanes, lane{index, way&1 != 0, way&2 != 0})
		}
	}
	return lanes
}

// exchange sends a probe on each lane and returns those lanes whose probe did not come out.
func (in *instance) exchange(lanes []lane, links map[string]hostnet.LinkState, d *driver, wait time.Duration) []lane {
	h := &in.health
	missing := map[[12]byte]lane{}
	for _, l := range lanes {
		missing[l.payload(h.round)] = l
		enter, _ := l.ends(d)
		_ = h.prober.Send(links[enter].Index, in.frame(l, links, d, h.round)) // what is not sent does not come out
	}
	for deadline := time.Now().Add(wait); len(missing) > 0; {
		frame := h.prober.Receive(time.Until(deadline))
		if frame == nil {
			break
		}
		if len(frame) < 12+12 {
			continue
		}
		payload := [12]byte(frame[len(frame)-12:])
		if l, waited := missing[payload]; waited && in.returned(frame, l, d) {
			delete(missing, payload)
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
	if d.kind.LabelAware() {
		return []string{in.program.diagnosis()}
	}
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
