# SPDX-License-Identifier: Apache-2.0
#
# Fuzzers for the untrusted input of the collector, and for the allocator's environment. Included by tests/rules.mk.
#
# tests/fuzz/corpus/<fuzzer>.tar has the committed inputs. `make test-fuzz` replays them, so the same sources always give the
# same result; `make fuzz`, which belongs to `make test-long`, also searches from there for FUZZ_SECONDS. It has a build of its
# own in build/search: the code is optimised, and libFuzzer sees which code an input reaches. Inputs that break something go
# to build/search/crashes, those that reach new code to build/search/<fuzzer>.corpus. `make fuzz-corpus` puts the smallest set
# that reaches the same code into the archives. tests/fuzz/record_worker makes inputs of worker_fuzzer from real messages.

FUZZ_SECONDS ?= 60
# Fuzzers that run at once.
FUZZ_JOBS := 2

FUZZ := $(BUILD)/fuzz
FUZZERS := $(patsubst tests/fuzz/%.cc,$(FUZZ)/%,$(wildcard tests/fuzz/*_fuzzer.cc))
FUZZ_LINK := $(ASAN_FLAGS) -fsanitize=fuzzer

# The parts of the allocator that read its environment.
FUZZED_ALLOCATOR := $(patsubst %,$(ASAN)/allocator/%.o,process/read_options process/options process/option_table platform/system)

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

test-fuzz fuzz fuzz-corpus: export ASAN_OPTIONS := $(ASAN_RUN_OPTIONS)

.PHONY: fuzzers
fuzzers: $(FUZZERS)

.PHONY: test-fuzz
test-fuzz: $(FUZZERS) ## replay the fuzzers' corpora
	$(Q)tests/fuzz/run $(FUZZ) $(FUZZ_JOBS) 0

LONG_TESTS += fuzz

# The build for searches sets SEARCH_FLAGS.
SANITIZED_FLAGS += $(SEARCH_FLAGS)
SEARCHING = $(MAKE) --no-print-directory ASAN=$(BUILD)/search/asan FUZZ=$(BUILD)/search \
  SEARCH_FLAGS="-O1 -fsanitize=fuzzer-no-link"

.PHONY: fuzz fuzz-corpus search-fuzzers
search-fuzzers:
	+$(Q)$(SEARCHING) fuzzers
fuzz: search-fuzzers ## the same, and search for FUZZ_SECONDS=60 each
	$(Q)tests/fuzz/run $(BUILD)/search $(FUZZ_JOBS) $(FUZZ_SECONDS)
fuzz-corpus: search-fuzzers ## merge build/search into the committed corpora and minimise them
	$(Q)tests/fuzz/merge $(BUILD)/search
