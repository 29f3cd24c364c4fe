package chain

import "fmt"

// Names of things. They are different types so that a site is never taken for a VNF.
type (
	// SiteName names a site.
	SiteName string
	// VnfName names a catalogue entry.
	VnfName string
	// CustomerName names a customer; empty where a thing is shared.
	CustomerName string
)

// maximumName is the length of a name in bytes: one label of a DNS name.
const maximumName = 63

// CheckName says what is wrong with a name, "" where nothing is.
func CheckName(name string) string {
	switch {
	case name == "":
		return "is missing"
	case len(name) > maximumName:
		return fmt.Sprintf("%q has %d characters", name, len(name))
	case name[0] < 'a' || name[0] > 'z':
		return fmt.Sprintf("%q does not begin with a lower-case letter", name)
	case name[len(name)-1] == '-':
		return fmt.Sprintf("%q ends with a hyphen", name)
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Sprintf("%q contains %q", name, c)
		}
	}
	return ""
}

// NameFix says how to write a name.
const NameFix = "use 1 to 63 lower-case letters, digits and hyphens, a letter first, no hyphen last"
