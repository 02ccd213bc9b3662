# SPDX-License-Identifier: Apache-2.0
#
# Benchmarks: one run prints all tables and writes build/bench.json. Included by tests/rules.mk.

BENCH := $(BUILD)/tests/bench

$(BENCH)/peak_rss: tests/bench/peak_rss.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 $(WARNINGS) $< -o $@

.PHONY: bench
bench: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BENCH)/peak_rss $(TARGETS)/depth ## benchmarks against glibc, jemalloc, tcmalloc, mimalloc
	$(Q)tests/bench/run

.PHONY: test-instructions
test-instructions: $(BUILD)/libheaptap.so ## instructions of malloc and free: against jemalloc, and with sampling on and off
	$(Q)tests/bench/instructions $(BUILD)
