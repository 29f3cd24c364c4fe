#!/usr/bin/env bash
# Every test of the project: Rust, Go, then end to end in network namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
echo "test: Rust"
cargo test --quiet --locked --workspace
echo "test: Go"
go test ./...
