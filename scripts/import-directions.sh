#!/usr/bin/env bash
# Checks the directions of imports that ARCHITECTURE.md states.
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/switchboard-project/switchboard
failed=0
forbid() { # package, forbidden pattern, why
  local found
  [ -d "${1#./}" ] || return 0
  found=$(go list -f '{{range .Imports}}{{.}}{{"\n"}}{{end}}' "$1/..." 2>/dev/null | sort -u | grep -E "$2" || true)
  if [ -n "$found" ]; then printf '%s imports %s: %s\n' "$1" "$(echo $found)" "$3" >&2; failed=1; fi
}
forbid ./internal/chain '\.' "the domain imports the standard library only"
for package in chain global site edge vnf hostnet lab api; do
  forbid "./internal/$package" 'nats-io/' "only internal/bus knows NATS"
done
forbid ./internal/bus "$module/internal/(global|site|edge|vnf|lab|api)" "the bus knows no controller"
forbid ./internal/edge "$module/internal/(global|site|vnf)" "controllers do not import each other"
forbid ./internal/vnf "$module/internal/(global|site|edge)" "controllers do not import each other"
forbid ./internal/global "$module/internal/(site|edge|vnf)" "controllers do not import each other"

rust_forbid() { # crate, forbidden dependency pattern, why
  [ -d "crates/$1" ] || return 0
  local found
  found=$(cargo tree --quiet --offline --locked --edges normal --prefix none --manifest-path "crates/$1/Cargo.toml" 2>/dev/null | grep -E "$2" || true)
  if [ -n "$found" ]; then printf 'crates/%s depends on %s: %s\n' "$1" "$(echo $found)" "$3" >&2; failed=1; fi
}
rust_forbid wire '^(tokio|async-nats|switchboard-dpdk)' "codecs do no input or output"
rust_forbid flow '^(tokio|async-nats|switchboard-dpdk)' "the flow table does no input or output"
rust_forbid te '^switchboard-(forwarder|dpdk|flow|wire)' "traffic engineering and forwarder never meet"
rust_forbid forwarder '^switchboard-te' "traffic engineering and forwarder never meet"
exit $failed
