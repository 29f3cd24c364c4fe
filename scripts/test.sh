#!/usr/bin/env bash
# Every test of the project: Rust, Go, then end to end in network namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "test: Rust"
cargo test --quiet --locked --workspace
echo "test: Go"
go test $(go list ./... | grep -v '/test/e2e$')
if [ "$(id -u)" -ne 0 ]; then
  echo "test: end to end: SKIPPED, it makes network namespaces and needs root"
  exit 0
fi
echo "test: end to end"
SWITCHBOARD_E2E=required go test -count=1 -timeout 15m ./test/e2e
