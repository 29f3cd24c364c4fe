package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/matches"
)

// Parse turns a message into a domain value and reports what is wrong with it by itself. The value is usable for
// further checks even then; it is false where no kind is given that can be applied, and where it has numbers for words that nobody knows.
func Parse(message *api.Resource, f *chain.Findings) (chain.Resource, bool) {
	r := chain.Resource{Key: KeyOf(message), Metadata: chain.Metadata{UID: message.GetMetadata().GetUid(),
		Generation: message.GetMetadata().GetGeneration(), Created: message.GetMetadata().GetCreated().AsTime()}}
	switch r.Key.Kind {
	case chain.KindSite:
		r.Spec = parseSite(message.GetSite().GetSpec())
	case chain.KindLink:
		r.Spec = parseLink(message.GetLink().GetSpec())
	case chain.KindNetwork:
		r.Spec = parseNetwork(message.GetNetwork().GetSpec())
	case chain.KindCustomer:
		r.Spec = chain.CustomerSpec{Priority: message.GetCustomer().GetSpec().GetPriority()}
	case chain.KindVnf:
		r.Spec = parseVnf(message.GetVnf().GetSpec())
	case chain.KindDeployment:
		r.Spec = parseDeployment(message.GetVnfDeployment().GetSpec(), f)
	case chain.KindEdge:
		r.Spec = parseEdge(message.GetEdge().GetSpec(), f)
	case chain.KindChain:
		r.Spec = parseChain(message.GetChain().GetSpec(), f)
	case chain.KindInstance, chain.KindRoute, chain.KindMove:
		f.Add("kind", fmt.Sprintf("a %s is observed, not applied", FileKind(r.Key.Kind)), "remove it from the file")
		return r, false
	default:
		f.Add("kind", "is missing", "write Site, Link, Network, Customer, Vnf, VnfDeployment, Edge or Chain")
		return r, false
	}
	if unknownWords(message.ProtoReflect(), "", f) {
		return r, false
	}
	for name, value := range message.GetMetadata().GetLabels() {
		if len(name) > 63 || len(value) > 255 || name == "" {
			f.Add("metadata.labels."+name, "the label is too long or has no name", "use at most 63 characters for the name and 255 for the value")
		}
	}
	r.Check(f)
	return r, true
}

// unknownWords reports enumerations with a number that stands for no word, as only calls with JSON or binary messages can have, and
// whether there are any. Field names are those of the specification in the resource.
func unknownWords(m protoreflect.Message, at string, f *chain.Findings) bool {
	found := false
	m.Range(func(d protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		field := strings.TrimPrefix(at+"."+d.JSONName(), ".")
		if d.ContainingOneof() != nil && at == "" {
			field = "" // the kind
		}
		one := func(field string, value protoreflect.Value) {
			switch {
			case d.Kind() == protoreflect.EnumKind && d.Enum().Values().ByNumber(value.Enum()) == nil:
				f.Add(field, fmt.Sprintf("%d is unknown", value.Enum()), "write one of "+strings.Join(enumWords(d.Enum()), ", "))
				found = true
			case d.Kind() == protoreflect.MessageKind && d.Message().ParentFile() == m.Descriptor().ParentFile():
				found = unknownWords(value.Message(), field, f) || found
			}
		}
		switch {
		case d.IsMap() || field == "status": // what is observed is not read
		case d.IsList():
			for i := range value.List().Len() {
				one(fmt.Sprintf("%s[%d]", field, i), value.List().Get(i))
			}
		default:
			one(field, value)
		}
		return true
	})
	return found
}

func parseSite(s *api.SiteSpec) chain.SiteSpec {
	return chain.SiteSpec{What: Word(s.GetKind()), Latitude: s.GetLatitude(), Longitude: s.GetLongitude(),
		Capacity: chain.Load(s.GetCapacity())}
}

func parseLink(l *api.LinkSpec) chain.LinkSpec {
	return chain.LinkSpec{From: chain.SiteName(l.GetFrom()), To: chain.SiteName(l.GetTo()), Latency: chain.Milliseconds(l.GetLatencyMs()),
		Bandwidth: chain.Mbps(l.GetBandwidthMbps()), Background: chain.Mbps(l.GetBackgroundMbps()),
		Encapsulation: Word(l.GetEncapsulation())}
}

// parseNetwork takes 1 for a utilisation that is not given.
func parseNetwork(n *api.NetworkSpec) chain.NetworkSpec {
	spec := chain.NetworkSpec{MaximumLinkUtilization: 1}
	if n != nil && n.MaxLinkUtilization != nil {
		spec.MaximumLinkUtilization = *n.MaxLinkUtilization
	}
	return spec
}

func parseVnf(v *api.VnfSpec) chain.VnfSpec {
	spec := chain.VnfSpec{LoadPerMbps: v.GetLoadPerMbps(), Attachment: Word(v.GetAttachment()), Driver: v.GetDriver(),
		ControllerSite: chain.SiteName(v.GetControllerSite())}
	for _, o := range v.GetOptions() {
		option := chain.Option{Name: o.GetName(), Type: Word(o.GetType()), Required: o.GetRequired()}
		if o.GetDefaultValue() != nil {
			option.Default = o.GetDefaultValue().AsInterface()
		}
		spec.Options = append(spec.Options, option)
	}
	return spec
}

func parseDeployment(d *api.VnfDeploymentSpec, f *chain.Findings) chain.DeploymentSpec {
	return chain.DeploymentSpec{Vnf: chain.VnfName(d.GetVnf()), Site: chain.SiteName(d.GetSite()), Capacity: chain.Load(d.GetCapacity()),
		Instances: d.GetInstances(), Weights: d.GetWeights(), AddressPool: prefixes(f, "spec.addressPool", d.GetAddressPool())}
}

func parseEdge(e *api.EdgeSpec, f *chain.Findings) chain.EdgeSpec {
	spec := chain.EdgeSpec{What: Word(e.GetKind()), Site: chain.SiteName(e.GetSite()), Interface: e.GetInterface(), Vlan: e.GetVlan(),
		Prefixes: prefixes(f, "spec.prefixes", e.GetPrefixes()), MTU: e.GetMtu()}
	for i, vlan := range e.GetVlans() {
		spec.Vlans = append(spec.Vlans, chain.ParseVlan(f, fmt.Sprintf("spec.vlans[%d]", i), vlan))
	}
	for i, text := range e.GetGatewayAddresses() {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			f.Add(fmt.Sprintf("spec.gatewayAddresses[%d]", i), fmt.Sprintf("%q is no address with a prefix length", text),
				"write for example 10.1.0.1/24")
		case !chain.IsHost(p.Addr()):
			f.Add(fmt.Sprintf("spec.gatewayAddresses[%d]", i), fmt.Sprintf("%q is no host's address", text),
				"write the forwarder's own address, for example 10.1.0.1/24")
		case p.Bits() < p.Addr().BitLen()-1 && p == p.Masked():
			f.Add(fmt.Sprintf("spec.gatewayAddresses[%d]", i), fmt.Sprintf("%q is the network, not an address in it", text),
				"write the forwarder's own address, for example "+netip.PrefixFrom(p.Addr().Next(), p.Bits()).String())
		case isBroadcast(p):
			f.Add(fmt.Sprintf("spec.gatewayAddresses[%d]", i), fmt.Sprintf("%q is the network's broadcast address", text),
				"write the forwarder's own address, for example "+netip.PrefixFrom(p.Masked().Addr().Next(), p.Bits()).String())
		}
		spec.Gateways = append(spec.Gateways, p)
	}
	for i, text := range e.GetNextHops() {
		a, err := netip.ParseAddr(text)
		isOwn := slices.ContainsFunc(spec.Gateways, func(p netip.Prefix) bool { return p.Addr() == a })
		switch {
		case err != nil:
			f.Add(fmt.Sprintf("spec.nextHops[%d]", i), fmt.Sprintf("%q is no address", text), "write for example 198.51.100.1")
		case !chain.IsHost(a) || isOwn:
			f.Add(fmt.Sprintf("spec.nextHops[%d]", i), fmt.Sprintf("%q is no other host's address", text),
				"write the router's, for example 198.51.100.1")
		}
		spec.NextHops = append(spec.NextHops, a)
	}
	return spec
}

// isBroadcast reports whether an IPv4 address is all ones behind its network's prefix (RFC 919). Networks of two
// addresses have none (RFC 3021).
func isBroadcast(p netip.Prefix) bool {
	next := netip.PrefixFrom(p.Addr().Next(), p.Bits())
	return p.Addr().Is4() && p.Bits() < 31 && (!next.Addr().IsValid() || next.Masked() != p.Masked())
}

func parseChain(c *api.ChainSpec, f *chain.Findings) chain.ChainSpec {
	spec := chain.ChainSpec{
		Ingress: c.GetIngress().GetEdges(), Match: matches.Parse("spec.ingress.match.", c.GetIngress().GetMatch(), f), FixedIngress: c.GetIngress().GetFixed(),
		Egress:   c.GetEgress().GetEdges(),
		Demand:   chain.Demand{Forward: chain.Mbps(c.GetDemand().GetForwardMbps()), Reverse: chain.Mbps(c.GetDemand().GetReverseMbps())},
		Priority: c.GetPriority(), MaximumLatency: chain.Milliseconds(c.GetMaxLatencyMs()),
	}
	for _, v := range c.GetVnfs() {
		spec.Vnfs = append(spec.Vnfs, parseUse(v.GetVnf(), v.GetOptions()))
	}
	return spec
}

func parseUse(vnf string, options *structpb.Struct) chain.Use {
	use := chain.Use{Vnf: chain.VnfName(vnf)}
	if options != nil {
		use.Options = options.AsMap()
	}
	return use
}

func prefixes(f *chain.Findings, field string, texts []string) []netip.Prefix {
	var all []netip.Prefix
	for i, text := range texts {
		all = append(all, chain.ParsePrefix(f, fmt.Sprintf("%s[%d]", field, i), text))
	}
	return all
}
