package global

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Engineering finds routes: it takes a model and gives a result, both as docs/traffic-engineering.md says.
type Engineering interface {
	Solve(ctx context.Context, model *Model) (*Solution, error)
}

// Model is what traffic engineering is asked: every quantity in Mbit/s, milliseconds or load units.
type Model struct {
	Nodes  []ModelNode  `json:"nodes"`
	Links  []ModelLink  `json:"links"`
	Sites  []ModelSite  `json:"sites"`
	Vnfs   []ModelVnf   `json:"vnfs"`
	Chains []ModelChain `json:"chains"`
}

// ModelNode is a place in the underlay.
type ModelNode struct {
	ID string `json:"id"`
}

// ModelLink is one direction of a link.
type ModelLink struct {
	ID         string  `json:"id"`
	From       string  `json:"from"`
	To         string  `json:"to"`
	Latency    float64 `json:"latency_ms"`
	Bandwidth  float64 `json:"bandwidth_mbps"`
	Background float64 `json:"background_mbps"`
}

// ModelSite is a node with compute.
type ModelSite struct {
	ID       string  `json:"id"`
	Node     string  `json:"node"`
	Capacity float64 `json:"capacity"`
}

// ModelVnf is a catalogue entry and where it is deployed.
type ModelVnf struct {
	ID          string            `json:"id"`
	LoadPerMbps float64           `json:"load_per_mbps"`
	Deployments []ModelDeployment `json:"deployments"`
}

// ModelDeployment is what a VNF has left at a site.
type ModelDeployment struct {
	Site     string  `json:"site"`
	Capacity float64 `json:"capacity"`
}

// ModelChain is traffic from one site to another through VNFs.
type ModelChain struct {
	ID             string   `json:"id"`
	Ingress        string   `json:"ingress"`
	Egress         string   `json:"egress"`
	Vnfs           []string `json:"vnfs"`
	Forward        float64  `json:"forward_mbps"`
	Reverse        float64  `json:"reverse_mbps"`
	MaximumLatency float64  `json:"max_latency_ms,omitempty"`
}

// Solution is what traffic engineering answers.
type Solution struct {
	Status string          `json:"status"`
	Routes []SolutionRoute `json:"routes"`
}

// SolutionRoute is one route of a chain and its share.
type SolutionRoute struct {
	Chain    string   `json:"chain"`
	Fraction float64  `json:"fraction"`
	Sites    []string `json:"sites"`
}

// Command runs the program switchboard-te as a child process.
type Command struct {
	// Path is the program.
	Path string
	// Algorithm is one of the program's; "dp" where empty.
	Algorithm string
	// TimeLimit ends it; 10 s where 0.
	TimeLimit time.Duration
}

const maximumComplaint = 2000

// Solve writes the model to the program's input and reads its answer.
func (c Command) Solve(ctx context.Context, model *Model) (*Solution, error) {
	limit, algorithm := c.TimeLimit, c.Algorithm
	if limit == 0 {
		limit = 10 * time.Second
	}
	if algorithm == "" {
		algorithm = "dp"
	}
	input, err := json.Marshal(model)
	if err != nil {
		return nil, fmt.Errorf("traffic engineering: encode the model: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	process := exec.CommandContext(ctx, c.Path, "solve", "--model", "-", "--algorithm", algorithm, "--objective", "throughput", "-o", "-")
	process.WaitDelay = time.Second
	var output, complaint bytes.Buffer
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(input), &output, &complaint
	if err := process.Run(); err != nil {
		return nil, c.failure(ctx, err, limit, complaint.String())
	}
	solution := &Solution{}
	if err := json.Unmarshal(output.Bytes(), solution); err != nil {
		return nil, fmt.Errorf("traffic engineering: %s answered what is no result: %w", c.Path, err)
	}
	return solution, nil
}

// Exit codes of switchboard-te.
const (
	exitBadInput   = 2
	exitInfeasible = 3
)

// ErrInfeasible reports that no routes exist at all; the text says which constraint proves it.
var ErrInfeasible = errors.New("no routes exist")

func (c Command) failure(ctx context.Context, err error, limit time.Duration, complaint string) error {
	complaint = strings.TrimSpace(complaint)
	if len(complaint) > maximumComplaint {
		complaint = complaint[:maximumComplaint] + "…"
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Errorf("traffic engineering: %s gave no answer within %v", c.Path, limit)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == exitInfeasible:
		return fmt.Errorf("%w: %s", ErrInfeasible, complaint)
	case errors.As(err, &exit) && exit.ExitCode() == exitBadInput:
		return fmt.Errorf("traffic engineering refused the model: %s", complaint)
	case errors.As(err, &exit):
		return fmt.Errorf("traffic engineering: %s ended with %v: %s", c.Path, exit, complaint)
	}
	return fmt.Errorf("traffic engineering: run %s: %w", c.Path, err)
}
