// Package lab runs many sites on one machine, each in network namespaces, with a wide area between them.
//
// A laboratory's file holds one document of kind Laboratory and the resources that `switchboard apply` takes. Sites
// and links say what is built; all resources are applied when it runs.
//
//	<lab>.<site>      namespace of a site: wan0 (forwarder), control0 (bus), one interface for each edge
//	<lab>.<host>      namespace of a host or server: eth0
//	<lab>.underlay    wN and cN lead to wan0 and control0 of the N-th site; switchboard-underlay joins them
//	<lab>.switch      a bridge for each interface of a site that hosts are behind
//
// # Invariants
//
//   - Every step is idempotent and every name begins with the laboratory's: Up repeats what is missing, Down finds
//     everything by name and by the environment mark of its processes, not by what somebody remembered to record.
//   - The supervisor holds the API's listening socket, so it stays open while the Global Switchboard restarts.
//   - Processes outlive the supervisor; the next one adopts them.
//
// Deliberately absent: loss and reordering of the wide area, several machines.
package lab
