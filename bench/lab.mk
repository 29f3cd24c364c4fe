.PHONY: bench-lab
bench-lab: build ## measure the laboratory: idle cost, activation, round trip, throughput (bench/results/lab.json)
	@mkdir -p bench/results
	SWITCHBOARD_TESTS=required SWITCHBOARD_RECORD=$(ROOT)/bench/results/lab.json \
	  go test -count=1 -timeout 20m -run '^$$' -bench '^BenchmarkLaboratory$$' -benchtime 1x ./test/e2e
