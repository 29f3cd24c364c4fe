#!/usr/bin/env bash
# Checks the directions of imports that ARCHITECTURE.md states. What cannot be listed fails the check.
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/switchboard-project/switchboard
failed=0

complain() { # who, what it imports, why
  printf '%s imports %s: %s\n' "$1" "$(tr '\n' ' ' <<<"$2")" "$3" >&2
  failed=1
}

# One line per import of the programs (not of tests): package, imported package.
imports=$(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}' ./cmd/... ./internal/...)

forbid() { # package, forbidden pattern, why
  local found
  if ! grep -q "^$module/$1[/ ]" <<<"$imports"; then
    printf 'there is no package %s: correct scripts/import-directions.sh\n' "$1" >&2
    failed=1
    return
  fi
  found=$(awk -v p="$module/$1" '$1 == p || index($1, p "/") == 1 {print $2}' <<<"$imports" | sort -u | awk -v pattern="$2" '$0 ~ pattern')
  [ -z "$found" ] || complain "$1" "$found" "$3"
}

forbid internal/chain '[.]' "the domain imports the standard library only"
for package in internal/{chain,global,site,edge,vnf,hostnet,lab,api} cmd; do
  forbid "$package" 'nats-io/' "only internal/bus knows NATS"
done
forbid internal/bus "$module/internal/(global|site|edge|vnf|lab|api)" "the bus knows no controller"
forbid internal/edge "$module/internal/(global|site|vnf|lab|api)" "controllers do not import each other"
forbid internal/vnf "$module/internal/(global|site|edge|lab|api)" "controllers do not import each other"
forbid internal/global "$module/internal/(site|edge|vnf|lab|api)" "controllers do not import each other"
# The Local Switchboard starts the edge controller and the VNF agents of its site.
forbid internal/site "$module/internal/(global|lab|api|resource|show)" "the Local Switchboard follows published records, not the Global Switchboard"
forbid internal/hostnet "$module/" "netlink and nftables know nothing of Switchboard"

# Generated code: which package reads or writes which contract.
contracts='cmd/switchboard api/v1
internal/api api/v1
internal/edge control/v1
internal/global api/v1
internal/global control/v1
internal/global forwarder/v1
internal/matches api/v1
internal/matches forwarder/v1
internal/participant control/v1
internal/resource api/v1
internal/show api/v1
internal/site api/v1
internal/site control/v1
internal/site forwarder/v1
internal/vnf control/v1
internal/vnf/instance api/v1'
while read -r package imported; do
  contract=${imported#"$module/gen/switchboard/"}
  [ "$contract" != "$imported" ] || continue
  if ! grep -qxF "${package#"$module/"} ${contract%/apiv1connect}" <<<"$contracts"; then
    complain "${package#"$module/"}" "$imported" "it does not convert that contract; if it must, add it to the list in scripts/import-directions.sh"
  fi
done <<<"$imports"

rust_forbid() { # crate, forbidden dependency pattern, why
  local tree found
  tree=$(cargo tree --quiet --offline --locked --edges normal --prefix none --manifest-path "crates/$1/Cargo.toml")
  found=$(awk -v pattern="$2" '$0 ~ pattern' <<<"$tree")
  [ -z "$found" ] || complain "crates/$1" "$found" "$3"
}
rust_forbid wire '^(tokio|async-nats|switchboard-(dpdk|contracts))' "codecs do no input or output"
rust_forbid flow '^(tokio|async-nats|switchboard-(dpdk|contracts))' "the flow table does no input or output"
rust_forbid te '^switchboard-(forwarder|dpdk|flow|wire)' "traffic engineering and forwarder never meet"
rust_forbid forwarder '^switchboard-te' "traffic engineering and forwarder never meet"
exit $failed
