# Traffic engineering: every goal figure, measured side by side with HiGHS where a peer is named.
.PHONY: bench-te
bench-te: ## measure traffic engineering into bench/results/te.json (ROWS="lp_1k_dense_s 0.5/0.5/proportional/3" prints some rows only)
	cargo bench -p switchboard-te --bench te -- $(ROWS)
