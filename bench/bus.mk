.PHONY: bench-bus
bench-bus: ## message bus against full-mesh broadcast over an emulated wide area (figure 9), and its own costs
	@mkdir -p bench/results
	go run ./bench/bus -o bench/results/bus.json
