// Package bus is Switchboard's message bus and replicated state (paper section 6): the only package that knows NATS.
//
// Every site runs one Server. Agents of the site connect to it, and to nothing else. They keep durable state in buckets
// (Store), publish what other sites may know (Connection.Published), read other sites' published state from a copy that
// their own site keeps (Connection.Subscribe), answer and ask requests across sites (Serve, Request), and learn who is
// there (Register, WatchPresence).
//
// # Invariants
//
//   - A write that returned is on disk at the site where it was made. The buckets "status" and "model" are the exception.
//   - Watches and subscriptions tell last values. Between two states a reader may miss values, never the last one. Changes
//     of different keys may be told in another order than they were made.
//   - A subscription's filter is at the publisher's site; a site with subscribers gets one copy of a change, others none.
//   - A site speaks only for itself: what arrives over a link is filed under the name in the peer's certificate.
//   - Other sites reach the code of this package and nothing else: the server they connect to has no JetStream, and
//     what they may publish and subscribe to there bears their own name.
//   - A request is sent at most once. State that must arrive is published, not requested.
//
// Deliberately absent: streams with history, transactions over several keys, encryption between a site's own agents and
// its server (they share a machine's loopback), replicas of a site's buckets on other machines.
//
// # Keys
//
// A key is one or more tokens joined by '.', each at least one byte of A–Z a–z 0–9 '-' '_', or '=' and two upper-case
// hexadecimal digits for any other byte; see Key. At most 1 024 bytes. A prefix matches whole tokens: "a.b" covers "a.b"
// and "a.b.c", not "a.bc".
//
// The bus keeps for itself, in the bucket "pub", the keys presence.<kind>.<name>; and the buckets "view" and "links".
//
// # For agents in other languages
//
// An agent needs an ordinary NATS client with JetStream key-value support. The site process writes its credentials
// (Server.WriteCredentials) to <store>/credentials/<kind>.<name>.json, mode 0600:
//
//	{"site": "east", "url": "nats://127.0.0.1:4222", "user": "forwarder.f1", "password": "…",
//	 "inbox_prefix": "_INBOX.forwarder.f1"}
//
// Connect to url with user and password, without TLS, and with inbox_prefix as the client's inbox prefix: replies to any
// other inbox are denied. (async-nats: ConnectOptions::with_user_and_password, .custom_inbox_prefix,
// .retry_on_initial_connect, .max_reconnects(None).) Use the default JetStream API prefix; the server's domain is the
// site's name and need not be given. Do not create buckets; those below exist when the server accepts connections.
//
// A bucket B is the NATS key-value bucket "B": stream "KV_B", subjects "$KV.B.<key>", history 1. A deletion is a message
// with header KV-Operation: PURGE or DEL. A key-value watch must begin again from the last values when the client has
// reconnected, unless the client library does that itself.
//
// What a forwarder called f1 of site east uses, and all that it may use:
//
//	bucket "rules",  key "f1"      watch, get   switchboard.forwarder.v1.RuleSet: the whole, last value counts;
//	                                            keys below "f1." are free for parts
//	bucket "status", key "f1"      put          switchboard.forwarder.v1.Status; and keys below "f1."
//	subject "presence.forwarder.f1" publish     every 300 ms, while it lives; header Switchboard-Instance: a string that
//	                                            no other process has; body: what others should know of it (may be empty).
//	                                            With header Switchboard-Gone: true, it says that it goes.
//	                                            Silent for 900 ms, it counts as dead.
//	subject "serve.forwarder.f1.>"  subscribe   requests to the service "forwarder.f1.<…>", for example
//	                                            "serve.forwarder.f1.trace" with switchboard.forwarder.v1.TraceRequest;
//	                                            queue group "agents"
//
// An optimiser of any name uses, and may use, only:
//
//	bucket "model"                  watch, get   the model of traffic engineering, see docs/traffic-engineering.md
//	subject "presence.optimiser.<name>" publish  as a forwarder's; a name of its own for each worker
//	subject "serve.te.*"            subscribe    requests, queue group "agents"
//
// A request carries headers Switchboard-Timeout-Ms (the caller stops waiting then), Switchboard-Agent (who asks) and, from
// another site, Switchboard-Site. The reply's body is the answer. A refusal has header Switchboard-Code: a word for
// programs such as "invalid_argument" (not beginning with "bus."), and as body a sentence for people.
//
// Controllers and services may also publish to "call.<site>.<service>" to ask another site, with the same headers, and
// see refusals of the bus itself as codes "bus.no_such_service", "bus.site_unreachable", "bus.timeout", "bus.busy",
// "bus.denied" and "bus.invalid".
//
// # Files
//
//	key errors                       names and reasons
//	identity authority enrol         who a site is to others, and how it becomes that
//	credentials permissions          who an agent is to its site, and what it may do
//	server agentserver keeper        the site process: NATS for agents, presence
//	peerserver link links dial       the site process: NATS for other sites, and the links to them
//	publisher index session pace     the site process: what other sites subscribe to
//	mirrors mirror viewwriter        the site process: the copies of other sites' state
//	wire relay linkboard             what crosses links; requests; links' states
//	connection store feed watch      an agent's connection; state and how it is followed
//	subscription view wanted         an agent's half of other sites' state
//	service presence                 requests; registration
package bus
