#!/usr/bin/env bash
# Formatters, linters, the direction of imports, and whether generated code is current.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
say() { printf 'lint: %s\n' "$*"; }
fail() { printf 'lint: FAILED: %s\n' "$*" >&2; failed=1; }

say gofmt
unformatted=$(git ls-files '*.go' | grep -v '^gen/' | xargs -r gofmt -l)
[ -z "$unformatted" ] || fail "gofmt these files (make fmt): $unformatted"

say "go vet, staticcheck"
go vet ./... || fail "go vet"
go vet -tags faults ./internal/fault || fail "go vet of the fault points, which only tests build"
staticcheck $(go list ./... | grep -v '/gen/') || fail "staticcheck"

say "cargo fmt, clippy"
cargo fmt --all --check >/dev/null || fail "cargo fmt --all (make fmt)"
cargo clippy --quiet --locked --workspace --all-targets -- -D warnings || fail "clippy"
# Benchmarks and fuzz targets have workspaces of their own, which no test builds. In release, as then HiGHS is there already.
# libFuzzer is not linked for this: another one is named, so that its own is not compiled.
export CUSTOM_LIBFUZZER_PATH=/dev/null
for manifest in bench/*/Cargo.toml fuzz/Cargo.toml; do
  cargo fmt --manifest-path "$manifest" --check >/dev/null || fail "cargo fmt --manifest-path $manifest"
  cargo clippy --quiet --release --locked --manifest-path "$manifest" --all-targets -- -D warnings || fail "clippy of $manifest"
done

say "protocol buffers"
buf lint || fail "buf lint"
buf format -d --exit-code >/dev/null || fail "buf format (make fmt)"
generated=$(mktemp -d)
trap 'rm -rf "$generated"' EXIT
buf generate -o "$generated"
diff -r gen "$generated/gen" >/dev/null || fail "generated Go code is not current (make gen)"
cargo run --quiet --locked --package switchboard-contracts-generate -- "$generated/rust"
diff -r crates/contracts/src/gen "$generated/rust" >/dev/null || fail "generated Rust code is not current (make gen)"

say "directions of imports"
scripts/import-directions.sh || fail "import directions"

exit $failed
