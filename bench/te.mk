# Traffic engineering: every goal figure, measured side by side with HiGHS where a peer is named.
.PHONY: bench-te
bench-te: ## measure traffic engineering into bench/results/te.json
	cargo bench -p switchboard-te --bench te
