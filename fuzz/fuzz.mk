# Coverage-guided fuzzing. FUZZ_SECONDS: for how long each target runs. FUZZ_TARGETS: which ones. FUZZ_SANITIZER: "address" finds
# more in unsafe code.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(sort $(notdir $(basename $(wildcard $(ROOT)/fuzz/fuzz_targets/*.rs))))
FUZZ_SANITIZER ?= none
CARGO_FUZZ_VERSION := 0.13.1
FUZZ_CAPTURES := $(wildcard $(or $(SWITCHBOARD_DATA),$(ROOT)/../shared/data)/pcap)
# Coverage counters need no option that the stable compiler refuses; sanitizers do, unless it is told to take it.
FUZZ_COMPILER = $(if $(filter none,$(FUZZ_SANITIZER)),,RUSTC_BOOTSTRAP=1)
FUZZ_BUILT = fuzz/target/$(shell rustc -vV | sed -n 's/^host: //p')/release

$(TOOLS)/cargo-fuzz:
	cargo install --quiet --locked --version $(CARGO_FUZZ_VERSION) --root $(ROOT)/.build cargo-fuzz

.PHONY: fuzz
fuzz: dependencies $(TOOLS)/cargo-fuzz ## fuzz every codec and the pipeline for FUZZ_SECONDS each (FUZZ_SANITIZER=address: slower, and sees what unsafe code does)
	@[ -n "$(FUZZ_CAPTURES)" ] || echo "fuzz: no captures in SWITCHBOARD_DATA: frames that our writers make are the only seeds"
	cargo run --quiet --locked -p switchboard-wire --example fuzz_seeds -- fuzz/work $(FUZZ_CAPTURES)
	cargo run --quiet --locked -p switchboard-forwarder --example pipeline_seeds -- fuzz/work $(FUZZ_CAPTURES)
	cd fuzz && CARGO_TARGET_DIR=$(ROOT)/fuzz/target $(FUZZ_COMPILER) cargo fuzz build --sanitizer $(FUZZ_SANITIZER)
	@failed=; for target in $(FUZZ_TARGETS); do \
	  mkdir -p fuzz/work/$$target fuzz/corpus/$$target fuzz/artifacts/$$target; \
	  length=2048; [[ $$target != forwarder_* ]] || length=16384; \
	  if $(FUZZ_BUILT)/$$target -artifact_prefix=fuzz/artifacts/$$target/ -max_total_time=$(FUZZ_SECONDS) -max_len=$$length \
	    -print_final_stats=1 fuzz/work/$$target fuzz/corpus/$$target >fuzz/work/$$target.log 2>&1; \
	  then echo "fuzz: $$target: $$(sed -n 's/^stat::number_of_executed_units: *//p' fuzz/work/$$target.log) inputs, no failure"; \
	  else echo "fuzz: $$target FAILED: fuzz/work/$$target.log, input in fuzz/artifacts/$$target" >&2; failed=yes; fi; \
	done; [ -z "$$failed" ]
