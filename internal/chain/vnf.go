package chain

import (
	"fmt"
	"slices"
	"strings"
)

// VnfSpec is a catalogue entry.
type VnfSpec struct {
	LoadPerMbps float64
	Options     []Option
	// Attachment is one of those that the driver makes.
	Attachment string
	Driver     string
	// ControllerSite is where the service's controller answers.
	ControllerSite SiteName
}

// Option is one thing a customer may configure of a VNF.
type Option struct {
	Name string
	// Type is one of OptionTypes.
	Type     string
	Required bool
	// Default is nil where there is none.
	Default any
}

// Drivers are what makes and configures instances.
var Drivers = []string{"nftables-firewall", "nftables-nat", "bridge-filter", "native-filter", "program"}

// driverAttachments are how each driver's instances may be attached.
var driverAttachments = map[string][]string{
	"nftables-firewall": {"gateway"}, "nftables-nat": {"gateway"}, "bridge-filter": {"transparent"},
	"native-filter": {"native"},
	"program":       {"label-aware-mpls", "label-aware-nsh"},
}

// Kind is KindVnf.
func (VnfSpec) Kind() Kind { return KindVnf }

func (v VnfSpec) check(f *Findings) {
	f.atLeastZero("spec.loadPerMbps", v.LoadPerMbps)
	switch possible := driverAttachments[v.Driver]; {
	case v.Attachment == "":
		f.Add("spec.attachment", "is missing", "write gateway, transparent or native, or for a program label-aware-mpls or label-aware-nsh")
	case len(possible) > 0 && !slices.Contains(possible, v.Attachment):
		f.Add("spec.attachment", fmt.Sprintf("the driver %s makes no instances of attachment %s", v.Driver, v.Attachment),
			"write "+strings.Join(possible, " or "))
	}
	switch {
	case v.Driver == "":
		f.Add("spec.driver", "is missing", "write one of "+strings.Join(Drivers, ", "))
	case !slices.Contains(Drivers, v.Driver):
		f.Add("spec.driver", fmt.Sprintf("%q is no driver", v.Driver), "write one of "+strings.Join(Drivers, ", "))
	}
	required(f, "spec.controllerSite", string(v.ControllerSite), "name the site whose bus server the controller uses")
	seen := map[string]bool{}
	for i, o := range v.Options {
		field := fmt.Sprintf("spec.options[%d]", i)
		switch {
		case o.Name == "":
			f.Add(field+".name", "is missing", "name the option")
		case seen[o.Name]:
			f.Add(field+".name", fmt.Sprintf("the option %q is already in this list", o.Name), "give each option its own name")
		}
		seen[o.Name] = true
		if o.Type == "" {
			f.Add(field+".type", "is missing", "write one of "+strings.Join(OptionTypes, ", "))
		} else if o.Default != nil {
			checkOption(f, field+".defaultValue", o.Type, o.Default)
		}
	}
}

// CheckOptions reports what is wrong with a chain's options for the VNF; field is their place in the file.
func (v VnfSpec) CheckOptions(f *Findings, field string, options map[string]any) {
	known := map[string]bool{}
	names := make([]string, 0, len(v.Options))
	for _, o := range v.Options {
		known[o.Name] = true
		names = append(names, o.Name)
		value, given := options[o.Name]
		switch {
		case given:
			checkOption(f, field+"."+o.Name, o.Type, value)
		case o.Required && o.Default == nil:
			f.Add(field+"."+o.Name, "is missing", "the VNF requires this option of type "+o.Type)
		}
	}
	for _, name := range sortedKeys(options) {
		if !known[name] {
			fix := "the VNF has no options; remove it"
			if len(names) > 0 {
				fix = "use one of " + strings.Join(names, ", ")
			}
			f.Add(field+"."+name, "the VNF has no such option", fix)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
