.PHONY: bench-scale
bench-scale: build ## what connections suffer when a forwarder comes, goes, is killed, is started again (bench/results/scale.json)
	@mkdir -p bench/results
	SWITCHBOARD_TESTS=required SWITCHBOARD_RECORD=$(ROOT)/bench/results/scale.json \
	  go test -v -count=1 -timeout 20m -run '^$$' -bench '^BenchmarkScale$$' -benchtime 1x ./test/e2e
