.PHONY: bench-flow
bench-flow: ## measure the flow table against hashbrown and DPDK's rte_hash (bench/results/flow.json)
	@mkdir -p bench/results
	cargo build --release --locked --manifest-path bench/flow/Cargo.toml
	@# The peers get transparent huge pages as well.
	GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(CARGO_TARGET_DIR)/release/bench-flow bench/results/flow.json
