package instance

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// driver makes one kind of instance what it is; plumbing is by its kind.
type driver struct {
	kind vnf.Kind
	// configure reads a place's options into its slot.
	configure func(s *slot, options *structpb.Struct, declared []*api.VnfOption) error
	// ruleset is the text for nft that makes the instance do its work; nil where a program or the forwarder does it.
	ruleset func(slots []slot) string
	// translates says that each place needs an address of the deployment's pool.
	translates bool
}

// drivers by the name that a VNF's catalogue entry gives.
var drivers = map[string]*driver{
	"nftables-firewall": {kind: vnf.Gateway, configure: configureFilter, ruleset: filterRuleset},
	"nftables-nat":      {kind: vnf.Gateway, configure: configureNothing, ruleset: natRuleset, translates: true},
	"bridge-filter":     {kind: vnf.Transparent, configure: configureFilter, ruleset: bridgeRuleset},
	"native-filter":     {kind: vnf.Native, configure: configureFilter},
}

// programDrivers are those of the operator's programs, by what their VNF's catalogue entry says of them.
var programDrivers = map[api.Attachment]*driver{
	api.Attachment_ATTACHMENT_LABEL_AWARE_MPLS: {kind: vnf.LabelAwareMpls, configure: configureNothing},
	api.Attachment_ATTACHMENT_LABEL_AWARE_NSH:  {kind: vnf.LabelAwareNsh, configure: configureNothing},
}

// driverOf is a deployment's driver, nil where there is none.
func driverOf(d Deployment) *driver {
	if d.Driver == "program" {
		return programDrivers[d.Attachment]
	}
	return drivers[d.Driver]
}

func configureFilter(s *slot, options *structpb.Struct, declared []*api.VnfOption) error {
	var err error
	s.filter, err = readFilterOptions(options, declared)
	return err
}

func configureNothing(*slot, *structpb.Struct, []*api.VnfOption) error { return nil }

// pool is the list of addresses that a NAT deployment may use.
type pool []netip.Prefix

func parsePool(texts []string) (pool, error) {
	var p pool
	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("addressPool[%d]: %q is neither prefix nor address; write for example 203.0.113.16/28", i, text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		p = append(p, prefix.Masked())
	}
	return p, nil
}

// free is the first address of the pool that nobody uses. Of a subnet larger than two addresses the first and last are
// left out: routers and broadcasts may have them.
func (p pool) free(used map[netip.Addr]bool) (netip.Addr, error) {
	const most = 1 << 16 // of one prefix are looked at
	for _, prefix := range p {
		address := prefix.Addr()
		for i := 0; i < most && prefix.Contains(address); i++ {
			edge := prefix.Addr().BitLen()-prefix.Bits() >= 2 && (i == 0 || !prefix.Contains(address.Next()))
			if !edge && !used[address] {
				return address, nil
			}
			address = address.Next()
		}
	}
	return netip.Addr{}, fmt.Errorf("addressPool: all addresses are used; give the deployment a larger pool than %v", []netip.Prefix(p))
}
