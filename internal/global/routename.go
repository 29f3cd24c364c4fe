package global

import (
	"fmt"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// routeName is what a route is called for as long as it exists: no other route of the chain ever has that name.
func routeName(chain string, label, number uint32) string {
	return fmt.Sprintf("%s-%d-%d", chain, label, number)
}

// numberRoutes gives new routes of a version their numbers: a path that the version has already keeps its own.
func numberRoutes(version, old *control.ChainVersion) {
	fresh := version.Routes
	if old != nil && version.State != control.VersionState_VERSION_STATE_PREPARING {
		fresh = version.NextRoutes
	}
	known := slices.Concat(old.GetRoutes(), old.GetNextRoutes())
	version.LastRoute = old.GetLastRoute()
	for _, r := range known {
		version.LastRoute = max(version.LastRoute, r.Number)
	}
	for _, r := range known { // of a release that did not number them
		if r.Number == 0 {
			version.LastRoute++
			r.Number = version.LastRoute
		}
	}
	for _, r := range fresh {
		if i := slices.IndexFunc(known, func(k *control.PlannedRoute) bool { return samePath(k, r) }); i >= 0 {
			r.Number = known[i].Number
			continue
		}
		version.LastRoute++
		r.Number = version.LastRoute
	}
}

// samePath reports whether two routes of a version pass the same sites.
func samePath(a, b *control.PlannedRoute) bool {
	return a.IngressSite == b.IngressSite && a.EgressSite == b.EgressSite && slices.Equal(a.Sites, b.Sites)
}
