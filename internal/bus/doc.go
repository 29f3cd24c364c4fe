// Package bus is Switchboard's message bus and replicated state (paper section 6): the only package that knows NATS.
//
// Every site runs one Server. Agents of the site connect to it, and to nothing else. They keep durable state in buckets
// (Store), publish what other sites may know (Connection.Published), read other sites' published state from a copy that
// their own site keeps (Connection.Subscribe), answer and ask requests across sites (Serve, Request), and learn who is
// there (Register, WatchPresence).
package bus
