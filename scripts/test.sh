#!/usr/bin/env bash
# Every test of the project: Rust, Go, then end to end in network namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "test: Rust"
cargo test --quiet --locked --workspace
# Root must lack nothing: what a test needs and does not find fails it (internal/needs).
if [ "$(id -u)" -eq 0 ]; then
  export SWITCHBOARD_TESTS=required
fi
echo "test: Go"
go test $(go list ./... | grep -v '/test/e2e$')
if [ "$(id -u)" -ne 0 ]; then
  echo "test: end to end: SKIPPED, it makes network namespaces and needs root"
  exit 0
fi
echo "test: end to end"
go test -count=1 -timeout 15m ./test/e2e
