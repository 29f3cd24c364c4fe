package resource

import (
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// Calls can have numbers for words, of a later version or by mistake.
func TestNumbersOfUnknownWordsAreNamed(t *testing.T) {
	site := func(kind api.SiteKind) *api.Resource {
		return &api.Resource{Metadata: &api.Metadata{Name: "a"}, Kind: &api.Resource_Site{Site: &api.Site{Spec: &api.SiteSpec{Kind: kind}}}}
	}
	vnf := &api.Resource{Metadata: &api.Metadata{Name: "v"}, Kind: &api.Resource_Vnf{Vnf: &api.Vnf{Spec: &api.VnfSpec{
		Driver: "program", Attachment: api.Attachment_ATTACHMENT_LABEL_AWARE_NSH, ControllerSite: "a",
		Options: []*api.VnfOption{{Name: "o", Type: api.VnfOptionType_VNF_OPTION_TYPE_STRING}, {Name: "p", Type: 77}}}}}}
	for _, c := range []struct {
		message *api.Resource
		want    string
	}{
		{site(99), "spec.kind: 99 is unknown; write one of customer-premises, edge-cloud, data-centre"},
		{site(-1), "spec.kind: -1 is unknown; write one of customer-premises, edge-cloud, data-centre"},
		{vnf, "spec.options[1].type: 77 is unknown; write one of string, "},
	} {
		f := &chain.Findings{}
		if _, ok := Parse(c.message, f); ok || len(f.All) != 1 || !strings.HasPrefix(f.All[0].String(), c.want) {
			t.Errorf("findings %v, want %s", f.All, c.want)
		}
	}
	observed := site(api.SiteKind_SITE_KIND_EDGE_CLOUD)
	observed.GetSite().Status = &api.SiteStatus{}
	f := &chain.Findings{}
	if _, ok := Parse(observed, f); !ok || len(f.All) > 0 {
		t.Errorf("findings %v of a site that is right", f.All)
	}
}
