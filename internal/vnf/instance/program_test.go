package instance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/needs"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// labelAware has one instance, whose program the agent's configuration names, at a place of a path with three VNFs.
func labelAware(t *testing.T) *Wanted {
	return &Wanted{
		Deployments: []Deployment{{Name: "lb", VNF: "marker", Driver: "program", Attachment: api.Attachment_ATTACHMENT_LABEL_AWARE_NSH, Instances: 1,
			Options: []*api.VnfOption{{Name: "dscp", DefaultValue: structpb.NewNumberValue(10)}, {Name: "text", DefaultValue: structpb.NewStringValue("x")}}}},
		Placements: []Placement{{Place: place("marker", 16, 2), Customer: "acme", Chain: "web", Vnfs: 3, Paths: [2]uint32{257, 273},
			Options: options(t, map[string]any{"dscp": 46})}},
	}
}

// programAgent is an agent whose instances of the VNF "marker" run a shell script, in which DSCP stands for the example.
func programAgent(t *testing.T, store Store, directory, script string) *Agent {
	t.Helper()
	a := testAgent(t, store)
	program, err := dscp()
	if err != nil {
		t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "DSCP", program)
	a.config.Directory, a.config.Programs = directory, map[string][]string{"marker": {"/bin/sh", "-c", script}}
	t.Cleanup(func() {
		for _, in := range a.instances {
			if in.handle != nil {
				if err := in.program.end(in.handle); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return a
}

const goesOn = `echo "$SWITCHBOARD_CONTEXT $SWITCHBOARD_INTERFACE $SWITCHBOARD_VNF"; DSCP; exit 1`

// dscp is the example of a label-aware function, built once.
var dscp = sync.OnceValues(func() (string, error) {
	directory, err := os.MkdirTemp("", "switchboard-dscp-")
	if err != nil {
		return "", err
	}
	program := directory + "/dscp"
	if output, err := exec.Command("go", "build", "-o", program, "../../../examples/label-aware/dscp").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	os.Exit(needs.OwnNamespaces(func() int {
		code := m.Run()
		if program, err := dscp(); err == nil {
			os.RemoveAll(filepath.Dir(program))
		}
		return code
	}))
}

// running lists the programs of the only instance, without what they started.
func running(t *testing.T, a *Agent) (pids []int) {
	t.Helper()
	in := a.instances["lb-1"]
	namespace, err := hostnet.OpenNamespace(in.namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	for _, found := range in.program.find(namespace) {
		if leads(found) {
			pids = append(pids, found.Pid)
		}
	}
	return pids
}

func TestProgramIsGivenItsPlaces(t *testing.T) {
	privateNamespace(t)
	directory := t.TempDir()
	a := programAgent(t, newMemory(), directory, goesOn)
	stepUntil(t, a, labelAware(t), stateHealthy, soon)
	text, err := os.ReadFile(directory + "/lb-1.places.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Places []programPlace }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	want := []programPlace{{Customer: "acme", Chain: "web", Stage: 2, Options: map[string]any{"dscp": 46.0, "text": "x"},
		Forward: visit{16, 100, 257, 254}, Reverse: visit{17, 100, 273, 254}}}
	if !reflect.DeepEqual(file.Places, want) {
		t.Errorf("places %+v, want %+v", file.Places, want)
	}
	at := a.last.Attachments
	if len(at) != 1 || at[0].Kind != vnf.LabelAwareNsh || at[0].State != vnf.Active || len(at[0].IngressMAC) != 6 || at[0].MTU != linkMTU ||
		at[0].IngressPort == "" || at[0].IngressPort != at[0].EgressPort || at[0].IngressMAC.String() != at[0].EgressMAC.String() {
		t.Errorf("attachments %+v", at)
	}
	output := ""
	for begun := time.Now(); output == "" && time.Since(begun) < soon; time.Sleep(10 * time.Millisecond) {
		written, _ := os.ReadFile(directory + "/lb-1.log")
		output = string(written)
	}
	if output != "nsh label0 marker\n" {
		t.Errorf("it wrote %q", output)
	}
}

// An agent that begins anew finds the program that runs, replaces it where the configuration names another, and takes it away with its
// instance.
func TestProgramOutlivesItsAgent(t *testing.T) {
	privateNamespace(t)
	store, directory, w := newMemory(), t.TempDir(), labelAware(t)
	first := programAgent(t, store, directory, goesOn)
	stepUntil(t, first, w, stateHealthy, soon)
	began := running(t, first)
	second := programAgent(t, store, directory, goesOn)
	stepUntil(t, second, w, stateHealthy, soon)
	if now := running(t, second); len(now) != 1 || !slices.Equal(now, began) {
		t.Errorf("process %v became %v", began, now)
	}
	third := programAgent(t, store, directory, goesOn+" # another")
	stepUntil(t, third, w, stateHealthy, soon)
	if now := running(t, third); len(now) != 1 || slices.Equal(now, began) {
		t.Errorf("process %v runs on: %v", began, now)
	}
	last := running(t, third)
	w.Deployments[0].Instances, w.Drained = 0, drained(third.last.Attachments)
	for begun := time.Now(); exists(third, "lb-1") && time.Since(begun) < soon; {
		step(third, w)
	}
	for _, pid := range last {
		if process, _ := os.FindProcess(pid); !gone(process) {
			t.Errorf("process %d is left", pid)
		}
	}
	if left, _ := os.ReadDir(directory); exists(third, "lb-1") || len(left) > 0 {
		t.Errorf("namespace %v, files %v are left", exists(third, "lb-1"), left)
	}
}

func TestProgramThatEndsIsMissedAndStartedAgain(t *testing.T) {
	privateNamespace(t)
	a := programAgent(t, newMemory(), t.TempDir(), goesOn)
	w := labelAware(t)
	stepUntil(t, a, w, stateHealthy, soon)
	for _, pid := range running(t, a) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if status := stepUntil(t, a, w, stateDead, soon); !strings.Contains(status.Reason, "program /bin/sh ended: signal: killed; see ") {
		t.Errorf("the reason is %q", status.Reason)
	}
	if at := a.last.Attachments; len(at) != 1 || at[0].State != vnf.Dead || at[0].Weight != 0 {
		t.Errorf("attachments %+v", at)
	}
	stepUntil(t, a, w, stateHealthy, soon)
}

// A program that hangs is noticed within a second, told of, and after some time ended and started again; one that goes on before is
// used again.
func TestProgramThatHangsIsMissed(t *testing.T) {
	for _, attachment := range []api.Attachment{api.Attachment_ATTACHMENT_LABEL_AWARE_MPLS, api.Attachment_ATTACHMENT_LABEL_AWARE_NSH} {
		t.Run(attachment.String(), func(t *testing.T) {
			privateNamespace(t)
			a := programAgent(t, newMemory(), t.TempDir(), goesOn)
			w := labelAware(t)
			w.Deployments[0].Attachment = attachment
			answering := func() {
				t.Helper()
				for stepUntil(t, a, w, stateHealthy, soon); a.instances["lb-1"].program.begins(); {
					stepUntil(t, a, w, stateHealthy, soon)
				}
			}
			answering()
			began := running(t, a)
			signalAll(t, a, syscall.SIGSTOP)
			begun := time.Now()
			status := stepUntil(t, a, w, stateDead, soon)
			t.Logf("noticed after %s", time.Since(begun))
			if !strings.Contains(status.Reason, "4 of 4 probes are lost") || !strings.Contains(status.Reason, "does not give them back") {
				t.Errorf("the reason is %q", status.Reason)
			}
			if at := a.last.Attachments; len(at) != 1 || at[0].State != vnf.Dead || at[0].Weight != 0 {
				t.Errorf("attachments %+v", at)
			}
			signalAll(t, a, syscall.SIGCONT)
			stepUntil(t, a, w, stateHealthy, soon)
			if now := running(t, a); !slices.Equal(now, began) {
				t.Errorf("process %v became %v", began, now)
			}
			signalAll(t, a, syscall.SIGSTOP)
			stepUntil(t, a, w, stateDead, soon)
			for begun := time.Now(); !strings.Contains(a.last.Instances[0].Reason, "gave no probe back for 5s and was ended"); {
				if time.Since(begun) > soon {
					t.Fatalf("the reason is %q", a.last.Instances[0].Reason)
				}
				stepUntil(t, a, w, stateDead, soon)
			}
			stepUntil(t, a, w, stateHealthy, soon)
			if now := running(t, a); len(now) != 1 || slices.Equal(now, began) {
				t.Errorf("process %v became %v", began, now)
			}
		})
	}
}

// signalAll sends the programs of the only instance, and what they started, a signal.
func signalAll(t *testing.T, a *Agent, s syscall.Signal) {
	t.Helper()
	in := a.instances["lb-1"]
	namespace, err := hostnet.OpenNamespace(in.namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	for _, found := range in.program.find(namespace) {
		if err := found.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProgramThatNobodyNamedIsAskedFor(t *testing.T) {
	privateNamespace(t)
	a := programAgent(t, newMemory(), t.TempDir(), goesOn)
	a.config.Programs = nil
	status := stepUntil(t, a, labelAware(t), stateDead, soon)
	if want := "vnf.programs.marker: the site's configuration names no program for the VNF"; status.Reason != want {
		t.Errorf("the reason is %q, want %q", status.Reason, want)
	}
	a = programAgent(t, newMemory(), t.TempDir(), goesOn)
	a.config.Programs["marker"] = []string{"/nonexistent"}
	w := labelAware(t)
	w.Deployments[0].Name = "lc"
	if status := stepUntil(t, a, w, stateDead, soon); !strings.Contains(status.Reason, "program /nonexistent does not start") {
		t.Errorf("the reason is %q", status.Reason)
	}
}
