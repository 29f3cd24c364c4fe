package global

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// notice tells as an event what a site's report changes.
func (g *Global) notice(site chain.SiteName, key string, old, value proto.Message, present bool) {
	switch record := value.(type) {
	case *control.InstanceRecord:
		was, _ := old.(*control.InstanceRecord)
		g.noticeInstance(was, record)
		return
	case *control.EdgeObserved:
		was, _ := old.(*control.EdgeObserved)
		if was != nil && was.Up != record.Up {
			edge := chain.Key{Kind: chain.KindEdge, Customer: chain.CustomerName(record.Customer), Name: record.Edge}
			if record.Up {
				g.events.add(edge, normal, "EdgeUp", "at site "+record.Site, "site "+record.Site)
			} else {
				g.events.add(edge, warning, "EdgeDown", record.Reason, "site "+record.Site)
			}
		}
		return
	case *control.ForwarderRecord:
		was, _ := old.(*control.ForwarderRecord)
		if was != nil && was.Alive != record.Alive {
			g.noticeAgent(site, "forwarder", record.Forwarder, record.Alive)
		}
		return
	case nil:
		if tokens, err := bus.SplitKey(key); err == nil && len(tokens) == 3 && tokens[0] == "presence" && tokens[1] != "forwarder" {
			g.noticeAgent(site, tokens[1], tokens[2], present)
		}
	}
}

func (g *Global) noticeAgent(site chain.SiteName, kind, name string, there bool) {
	key := chain.Key{Kind: chain.KindSite, Name: string(site)}
	if kind == "vnf" {
		key = chain.Key{Kind: chain.KindVnf, Name: name}
	}
	what := fmt.Sprintf("%s %s at site %s", kind, name, site)
	if there {
		g.events.add(key, normal, "AgentReturned", what, "site "+string(site))
		g.kickAll(nil)
		return
	}
	if kind == optimiserKind {
		g.engineering.lost.tell()
	}
	g.events.add(key, warning, "AgentVanished", what, "site "+string(site))
}

func (g *Global) noticeInstance(was, is *control.InstanceRecord) {
	if was.GetObserved().GetState() == is.GetObserved().GetState() {
		return
	}
	key := chain.Key{Kind: chain.KindInstance, Name: is.Instance}
	from := "site " + is.Site
	switch is.GetObserved().GetState() {
	case api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY:
		g.events.add(key, normal, "InstanceHealthy", "", from)
	case api.VnfInstanceState_VNF_INSTANCE_STATE_DRAINING:
		g.events.add(key, normal, "InstanceDraining", is.Observed.Reason, from)
	case api.VnfInstanceState_VNF_INSTANCE_STATE_DEAD:
		g.events.add(key, warning, "InstanceDead", is.Observed.Reason+"; it gets no new connections", from)
	}
}
