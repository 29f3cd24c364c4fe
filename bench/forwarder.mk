.PHONY: bench-forwarder
bench-forwarder: ## measure the forwarder's pipeline on one core (bench/results/forwarder.json)
	@mkdir -p bench/results
	cargo bench --locked --package switchboard-forwarder --bench pipeline | tee bench/results/forwarder.json
