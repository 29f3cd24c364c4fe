#!/usr/bin/env bash
# Every test of the project: Rust, Go, then end to end in network namespaces. docs/adr/0033 says which may be repeated, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.build/bin:$PATH
command -v gotestsum >/dev/null || { echo "test: gotestsum is missing: run make tools" >&2; exit 1; }

say() { printf 'test: %s (%d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

# go_tests FORMAT PACKAGES FLAG...: a test that fails is repeated once, alone, and both outcomes are shown; it has failed where it
# fails twice, and where more than four fail nothing is repeated. FORMAT is gotestsum's: a line for each package, or for each test.
go_tests() {
  local outcome=0 directory report
  directory=$(mktemp -d)
  report=$directory/report # is there only where something was repeated
  gotestsum --format "$1" --hide-summary skipped --format-hide-empty-pkg --rerun-fails=1 --rerun-fails-max-failures=4 \
    --rerun-fails-run-root-test --rerun-fails-report "$report" --packages "$2" -- "${@:3}" || outcome=$?
  if [ -s "$report" ]; then
    printf '\n!!!! %s: NOT EVERY TEST PASSED AT ONCE. How often each ran, and failed:\n' "$2"
    sed 's/^/!!!!   /' "$report"
    printf '!!!! What passed the second time is a defect all the same: find out why from the output above.\n\n'
  elif [ -e "$report" ]; then
    echo "test: $2 failed outside its tests, which a repetition does not mend: see its output above" >&2
    outcome=1
  fi
  rm -rf "$directory"
  return "$outcome"
}

# rust: every Rust test. Those that send packets through network namespaces are repeated once where they fail, as above.
rust() {
  local report failed target
  report=$(mktemp)
  if { cargo test --quiet --locked --workspace --no-fail-fast 2>&1 >&3 | tee "$report" >&2; } 3>&1; then
    rm -f "$report"
    return 0
  fi
  # Cargo ends with the targets that failed, one a line: `-p PACKAGE --test NAME`.
  failed=$(sed -nE 's/^ *`(-p [^`]+)`$/\1/p' "$report")
  rm -f "$report"
  if [ -z "$failed" ] || grep -qvE -- '--test (dealing|devices|taps|steering|ports|workers|vhost_user|round_trip)$' <<<"$failed"; then
    return 1
  fi
  while read -r target; do
    printf '\n!!!! %s FAILED and is repeated once, alone. A pass is a defect all the same: find out why from the output above.\n\n' "$target"
    # shellcheck disable=SC2086 # the target is several words
    cargo test --quiet --locked $target -- --test-threads=1 || return 1
  done <<<"$failed"
}

# Root must lack nothing: what a test needs and does not find fails it (internal/needs, test/needs.rs).
if [ "$(id -u)" -eq 0 ]; then
  export SWITCHBOARD_TESTS=required
fi
say "Rust: build"
cargo test --quiet --locked --workspace --no-run
say "Rust"
rust
say "Go"
go_tests pkgname "$(go list ./... | grep -vE '/test/(e2e|enrol|recovery)$' | tr '\n' ' ')"
if [ "$(id -u)" -ne 0 ]; then
  say "end to end: SKIPPED, it makes network namespaces and needs root"
  exit 0
fi
for package in ./test/enrol ./test/recovery ./test/e2e; do
  say "end to end: $package"
  go_tests testname "$package" -count=1 -timeout 20m
done
say "everything passed"
