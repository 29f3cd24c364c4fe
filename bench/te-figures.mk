.PHONY: bench-te-figures
bench-te-figures: ## redraw the paper's Figures 12 and 13 into bench/results/te-figure-*.svg (FIGURES="13b 12a-attmpls" for some)
	@mkdir -p bench/results
	cargo build --release --locked --manifest-path bench/te-figures/Cargo.toml
	$(CARGO_TARGET_DIR)/release/bench-te-figures bench/results $(FIGURES)
