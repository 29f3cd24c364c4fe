package hostnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// RulesetError is a ruleset that nft refused.
type RulesetError struct {
	// Line is the number of the line it complained about first, from 1; 0 where it named none.
	Line int
	// Text is that line.
	Text string
	// Complaint is what nft said.
	Complaint string
}

// Error returns the line and the complaint.
func (e *RulesetError) Error() string {
	if e.Line == 0 {
		return "nft: " + e.Complaint
	}
	return fmt.Sprintf("nft: line %d %q: %s", e.Line, e.Text, e.Complaint)
}

var rulesetPosition = regexp.MustCompile(`(?m)^(?:/dev/stdin|-|stdin):(\d+):[\d-]+: (.*)$`)

// ApplyRuleset gives nft a ruleset, which takes effect as a whole or not at all. A refusal is a *RulesetError.
func (n *Namespace) ApplyRuleset(ctx context.Context, ruleset string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(ruleset)
	var complaint bytes.Buffer
	command.Stdout, command.Stderr = &complaint, &complaint
	if err := n.Start(command); err != nil {
		return fmt.Errorf("start nft in %s: %w", n.Name, err)
	}
	err := command.Wait()
	if err == nil {
		return nil
	}
	if !errors.As(err, new(*exec.ExitError)) {
		return fmt.Errorf("nft in %s: %w", n.Name, err)
	}
	return refusal(ruleset, complaint.String())
}

// Ruleset lists a table's contents as JSON (libnftables-json(5)); family is "ip", "inet", "bridge", ….
func (n *Namespace) Ruleset(ctx context.Context, family, table string) ([]byte, error) {
	return n.Run(exec.CommandContext(ctx, "nft", "--json", "list", "table", family, table))
}

func refusal(ruleset, complaint string) *RulesetError {
	refused := &RulesetError{Complaint: strings.TrimSpace(complaint)}
	position := rulesetPosition.FindStringSubmatch(complaint)
	if position == nil {
		return refused
	}
	refused.Complaint = position[2]
	refused.Line, _ = strconv.Atoi(position[1])
	if lines := strings.Split(ruleset, "\n"); refused.Line >= 1 && refused.Line <= len(lines) {
		refused.Text = strings.TrimSpace(lines[refused.Line-1])
	}
	return refused
}
