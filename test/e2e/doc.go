// Package e2e runs Switchboard as its users do and watches with real tools: a laboratory of four sites in network
// namespaces, the command line, and ping, curl, iperf3, conntrack, nft and tshark.
//
// Tests share one laboratory, that of examples/lab/four-sites.yaml under another name and with the functions of
// testdata/functions.yaml. A test that would disturb others makes chains of a customer of its own. Without root or a
// tool they skip, unless SWITCHBOARD_TESTS=required says that this machine must have everything.
//
// However the tests end, a second process of theirs removes what they have made. SWITCHBOARD_E2E_KEEP=1 keeps it where a test
// has failed. What only measures is a benchmark: `make bench-lab`, `make bench-scale`.
package e2e
