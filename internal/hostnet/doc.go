// Package hostnet arranges the network of a Linux host: namespaces, links, addresses, routes, offloads and nftables.
//
// Everything is idempotent: Ensure… brings about a state and changes nothing where it holds already, Delete… succeeds
// where there is nothing to delete. So a caller that was interrupted repeats its steps.
//
// A Namespace is a handle: operations on links happen through its netlink socket, and need no thread in the
// namespace. Namespace.Do and Namespace.Start run code and programs inside.
//
// Deliberately absent: mount namespaces. Programs inside a network namespace see the host's files, so that the
// namespaces they make are the host's, and can be found and removed from outside.
package hostnet
