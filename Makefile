# Every habit of the project, one word each. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
ROOT := $(CURDIR)
TOOLS := $(ROOT)/.build/bin
BIN := $(ROOT)/bin
export CARGO_TARGET_DIR ?= $(ROOT)/target
export PATH := $(BIN):$(TOOLS):$(PATH)
# Cargo has HiGHS compiled more than once, for checks and for tests; from the second time on the compiler's cache answers.
# Asked for in each recipe, because the first one installs ccache.
export CMAKE_C_COMPILER_LAUNCHER = $(shell command -v ccache)
export CMAKE_CXX_COMPILER_LAUNCHER = $(CMAKE_C_COMPILER_LAUNCHER)

include $(wildcard bench/*.mk fuzz/*.mk)

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: dependencies
dependencies: ## install the Debian packages the project needs
	@scripts/install-dependencies.sh

.PHONY: build
build: dependencies ## build every program into bin/
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./cmd/...
	cargo build --release --locked --bins
	@for program in switchboard-te switchboard-forwarder switchboard-underlay; do \
	  if [ -x $(CARGO_TARGET_DIR)/release/$$program ]; then install -m 755 $(CARGO_TARGET_DIR)/release/$$program $(BIN)/; fi; done

# The tools' versions are pinned in tools/go.mod.
.PHONY: tools
tools: $(TOOLS)/.stamp
$(TOOLS)/.stamp: tools/go.mod tools/go.sum
	@echo "building the development tools (two minutes the first time)"
	@mkdir -p $(TOOLS)
	@cd tools && GOBIN=$(TOOLS) go install tool
	@touch $@

.PHONY: gen
gen: tools ## generate code from proto/
	buf generate
	cargo run --quiet --locked --package switchboard-contracts-generate -- crates/contracts/src/gen

.PHONY: fmt
fmt: tools ## format everything
	gofmt -w $$(git ls-files '*.go' | grep -v '^gen/')
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	buf format -w

.PHONY: lint
lint: dependencies tools ## formatters, linters, import directions, generated code is current
	scripts/lint.sh

.PHONY: test
test: build lint ## everything that must pass; CI runs this
	scripts/test.sh

.PHONY: test-cards
test-cards: build tools ## the forwarder at emulated network cards, in a virtual machine (QEMU; needs root)
	@scripts/install-dependencies.sh cards
	@test/cards/run.sh $(BIN)/switchboard-forwarder

.PHONY: demo
demo: build ## bring up a laboratory, activate a chain, send traffic, report; leaves it running
	@scripts/demo.sh

.PHONY: demo-down
demo-down: ## remove every trace of the demo
	@scripts/demo.sh down

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) $(ROOT)/.build $(ROOT)/target
