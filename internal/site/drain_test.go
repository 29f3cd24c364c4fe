package site

import (
	"testing"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// A count of flow entries that began under the rules before may lack the last connections that the attachment got.
func TestAnAttachmentIsDrainedByCountsThatBeganUnderRulesThatLetItDrain(t *testing.T) {
	set := &rules.RuleSet{Generation: 5, Attachments: []*rules.Attachment{{Id: "fw-2"}}}
	r := &results{rules: map[string]*rules.RuleSet{"f1": set}, drained: map[string]bool{}, drains: map[string]*drain{"fw-2": {forwarder: "f1", generation: 5}}}
	now := int64(0)
	report := func(counted, flows uint64) bool {
		now += 1000
		r.advanceDrains(map[string]*rules.Status{"f1": {AppliedGeneration: 5, CountedGeneration: counted, TimeUnixMs: now,
			AttachmentFlows: map[string]uint64{"fw-2": flows}}})
		return r.drained["fw-2"]
	}
	for range 5 {
		if report(4, 0) {
			t.Fatal("drained by counts that began before the rules came into force")
		}
	}
	if report(5, 3) || report(5, 0) {
		t.Error("drained with connections")
	}
	if !report(5, 0) {
		t.Error("not drained without connections")
	}
}
