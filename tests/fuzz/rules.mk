# SPDX-License-Identifier: Apache-2.0
#
# Fuzzers of what the collector, and the allocator in its environment, read from others. Included by tests/rules.mk.
#
# Each run replays tests/fuzz/corpus/<fuzzer>/, then goes on from there for FUZZ_SECONDS. Inputs that break something go
# to build/fuzz/crashes, those that reach new code to build/fuzz/<fuzzer>.corpus, from where `make fuzz-corpus` puts the
# smallest set that reaches as much into the committed folder.

FUZZ_SECONDS ?= 1
# How many run at a time.
FUZZ_JOBS := 2

FUZZ := $(BUILD)/fuzz
FUZZERS := $(patsubst tests/fuzz/%.cc,$(FUZZ)/%,$(wildcard tests/fuzz/*_fuzzer.cc))
FUZZ_LINK := $(filter-out %fuzzer-no-link,$(ASAN_FLAGS)) -fsanitize=fuzzer,address,undefined

# What the allocator reads.
FUZZED_ALLOCATOR := $(patsubst %,$(ASAN)/allocator/%.o,process/read_options process/options process/option_table platform/system platform/vdso)

$(ASAN)/allocator/%.o: allocator/%.cc
	$(say) CLANGCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(SANITIZED_FLAGS) $(ASAN_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(FUZZ)/allocator_options_fuzzer: $(FUZZED_ALLOCATOR)
$(FUZZ)/unwind_walk_fuzzer: $(HARNESS_OBJECTS:$(BUILD)/%=$(ASAN)/%)

$(FUZZERS): $(FUZZ)/%: $(ASAN)/tests/fuzz/%.o $(ASAN)/libcollector.a
	$(say) FUZZER $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(FUZZ_LINK) -o $@ $(filter %.o,$^) $(ASAN)/libcollector.a $(PACKAGE_LIBRARIES)

.PHONY: fuzzers
fuzzers: $(FUZZERS)

.PHONY: test-fuzz
test-fuzz: $(FUZZERS) ## replay the fuzzers' corpora, and fuzz for FUZZ_SECONDS=1 each
	$(Q)tests/fuzz/run $(FUZZ) $(FUZZ_JOBS) $(FUZZ_SECONDS)

# Minutes of it, for `make test-long` too.
LONG_FUZZ_SECONDS := $(if $(filter file default,$(origin FUZZ_SECONDS)),60,$(FUZZ_SECONDS))
LONG_TESTS += fuzz

.PHONY: fuzz
fuzz: $(FUZZERS) ## the same for FUZZ_SECONDS=60 each
	$(Q)tests/fuzz/run $(FUZZ) $(FUZZ_JOBS) $(LONG_FUZZ_SECONDS)

.PHONY: fuzz-corpus
fuzz-corpus: $(FUZZERS) ## make the committed corpora smaller and better by those of build/fuzz
	$(Q)tests/fuzz/merge $(FUZZ)
