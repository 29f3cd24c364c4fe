# QUICK=1: fewer repetitions, nothing with 30 million connections. ROWS: only these groups of rows.
.PHONY: bench-forwarder
bench-forwarder: ## measure the forwarder and its peers (bench/results/forwarder.json; QUICK=1 for the short form)
	@scripts/install-dependencies.sh bench
	@mkdir -p bench/results .build
	cargo build --release --locked --package switchboard-forwarder
	cargo build --release --locked --manifest-path bench/forwarder/Cargo.toml
	bench/forwarder/run.sh $(CARGO_TARGET_DIR)/release/bench-forwarder \
	  $(if $(QUICK),--quick) $(if $(ROWS),--only $(ROWS)) \
	  --forwarder $(CARGO_TARGET_DIR)/release/switchboard-forwarder \
	  -o $(or $(OUTPUT),$(if $(QUICK),.build/forwarder-quick.json,bench/results/forwarder.json))
