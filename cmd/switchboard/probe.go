package main

import (
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/global"
)

// sendProbe sends one packet and shows what became of it.
func (flags *traceFlags) sendProbe(command *cobra.Command, arguments []string) error {
	probe, mistakes := flags.probe()
	if len(mistakes) > 0 {
		return mistakesOf("trace", mistakes, "sent")
	}
	request := &apiv1.TraceRequest{Customer: flags.customer, Probe: probe}
	if command.Flags().Changed("duration") {
		request.DurationMs = uint32(flags.duration.Milliseconds())
	}
	client, err := flags.client()
	if err != nil {
		return err
	}
	answer, err := client.Trace(command.Context(), connect.NewRequest(request))
	if err != nil {
		return wrongFlags("trace", err, "sent")
	}
	warnCutShort(command.ErrOrStderr(), answer.Msg.CutShort)
	hops, outcome := answer.Msg.Hops, answer.Msg.Outcome
	if err := writeHops(command.OutOrStdout(), hops); err != nil {
		return err
	}
	if !outcome.GetReached() {
		return fmt.Errorf("the packet did not come to the egress: %s", outcome.GetDescription())
	}
	if len(arguments) > 0 && hops[0].Chain != arguments[0] {
		return fmt.Errorf("the packet took chain %s, not %s: %s", hops[0].Chain, arguments[0], outcome.GetDescription())
	}
	_, err = fmt.Fprintln(command.OutOrStdout(), "reached:", outcome.GetDescription())
	return err
}

// probe is the packet that the flags describe, and all that is wrong with it.
func (flags *traceFlags) probe() (*apiv1.Probe, []chain.Finding) {
	f := &chain.Findings{}
	one := func(flag string, values []string) string {
		if len(values) > 1 {
			f.Add(flag, "given several times", "give it once with --send")
			return ""
		}
		return strings.Join(values, "")
	}
	port := func(flag string, values []string) uint32 {
		text := one(flag, values)
		if text == "" {
			return 0
		}
		ports := chain.ParsePorts(f, flag, text)
		if ports.First != ports.Last {
			f.Add(flag, "a range", "give one port with --send")
		}
		return uint32(ports.First)
	}
	probe := &apiv1.Probe{Edge: flags.from, Leave: flags.leave, Vlan: flags.vlan, Protocol: one("--protocol", flags.match.Protocols),
		Source: one("--source", flags.match.SourcePrefixes), Destination: one("--destination", flags.match.DestinationPrefixes),
		SourcePort: port("--source-port", flags.match.SourcePorts), DestinationPort: port("--destination-port", flags.match.DestinationPorts)}
	for _, found := range global.CheckProbe(probe) {
		found.Field = traceFlag(found.Field)
		if !slices.ContainsFunc(f.All, func(known chain.Finding) bool { return known.Field == found.Field }) {
			f.All = append(f.All, found) // what could not be read is not missing, too
		}
	}
	return probe, f.All
}

// traceFlag is the flag of a field of a TraceRequest or CaptureRequest.
func traceFlag(field string) string {
	for name, flag := range map[string]string{
		"probe.edge": "--from", "probe.protocol": "--protocol", "probe.source": "--source", "probe.destination": "--destination", "probe.vlan": "--vlan",
		"probe.sourcePort": "--source-port", "probe.destinationPort": "--destination-port",
		"match.protocols": "--protocol", "match.sourcePrefixes": "--source", "match.destinationPrefixes": "--destination",
		"match.sourcePorts": "--source-port", "match.destinationPorts": "--destination-port",
		"durationMs": "--duration", "limit": "--limit", "snapLength": "--snap-length", "chain": "--chain", "port": "--port",
	} {
		if field == name || strings.HasPrefix(field, name+"[") {
			return flag
		}
	}
	return field
}

// wrongFlags is an error of a command that follows or captures packets; where fields are at fault, it is about their flags.
func wrongFlags(command string, err error, done string) error {
	var found []chain.Finding
	for _, v := range violations(err) {
		found = append(found, chain.Finding{Field: traceFlag(v.Field), Description: v.Description, Fix: v.Fix})
	}
	if len(found) == 0 {
		return plain(err)
	}
	return mistakesOf(command, found, done)
}

// mistakesOf is the error of a wrong call of a command: every mistake on a line of its own.
func mistakesOf(command string, found []chain.Finding, done string) error {
	lines := make([]string, len(found))
	for i, one := range found {
		lines[i] = one.String()
	}
	return usageError{fmt.Errorf("%s: %s, nothing was %s\n%s", command, countMistakes(len(lines)), done, strings.Join(lines, "\n"))}
}
