// Package needs lets a test say what it needs of the machine. Where that is missing the test is skipped with the reason; where
// SWITCHBOARD_TESTS=required says that this machine must have everything, as `make test` does for root, the test fails. So
// nothing is left out unseen where it counts.
package needs

import (
	"os"
	"testing"
)

// Root is for tests that make network namespaces.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root, to make network namespaces")
	}
}

// Missing ends a test that cannot run here; what is what it lacks and, where there is one, the command that brings it.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SWITCHBOARD_TESTS") == "required" {
		t.Fatal("this test is required and needs " + what)
	}
	t.Skip("needs " + what)
}
