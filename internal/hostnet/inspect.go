package hostnet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
)

// Sysctl reads a network variable, named as for SetSysctls.
func (n *Namespace) Sysctl(name string) (string, error) {
	var value []byte
	err := n.Do(func() (err error) {
		value, err = os.ReadFile(sysctlPath(name))
		return err
	})
	return strings.TrimSpace(string(value)), err
}

// CountRoutes says how many routes of a family a routing table has.
func (n *Namespace) CountRoutes(table int, ipv6 bool) (int, error) {
	routes, err := n.links.RouteListFiltered(familyOf(ipv6), &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return 0, fmt.Errorf("routing table %d in %s: %w", table, n.Name, err)
	}
	return len(routes), nil
}

// CountRules says how many rules of a family lead to a routing table.
func (n *Namespace) CountRules(table int, ipv6 bool) (int, error) {
	rules, err := n.links.RuleList(familyOf(ipv6))
	if err != nil {
		return 0, fmt.Errorf("routing rules in %s: %w", n.Name, err)
	}
	count := 0
	for _, rule := range rules {
		if rule.Table == table {
			count++
		}
	}
	return count, nil
}

func familyOf(ipv6 bool) int {
	if ipv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// FilterTables names the tables of nftables, as "<family> <name>".
func (n *Namespace) FilterTables(ctx context.Context) ([]string, error) {
	output, err := n.Run(exec.CommandContext(ctx, "nft", "list", "tables"))
	if err != nil {
		return nil, err
	}
	var tables []string
	for _, line := range strings.Split(string(output), "\n") {
		if table, found := strings.CutPrefix(line, "table "); found {
			tables = append(tables, table)
		}
	}
	return tables, nil
}
