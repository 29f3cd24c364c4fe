package recovery

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestReleaseHasNoFaultPoints: what `make build` builds cannot be told to die; what the tests build can.
func TestReleaseHasNoFaultPoints(t *testing.T) {
	for _, build := range []struct {
		arguments []string
		faults    bool
	}{
		{[]string{"build"}, false},
		{[]string{"build", "-tags", "faults"}, true},
	} {
		program := filepath.Join(t.TempDir(), "switchboard")
		arguments := append(build.arguments, "-o", program, "../../cmd/switchboard")
		if output, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", arguments, err, output)
		}
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(text, []byte("SWITCHBOARD_FAULT")); has != build.faults {
			t.Errorf("go %v: looks for SWITCHBOARD_FAULT in the environment: %v, want %v", arguments, has, build.faults)
		}
	}
}
