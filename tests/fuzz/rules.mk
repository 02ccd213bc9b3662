# SPDX-License-Identifier: Apache-2.0
#
# Fuzzers of what the collector, and the allocator in its environment, read from others. Inputs that break something go
# to build/fuzz/crashes; those that reach new code are kept beside the fuzzer and start the next run. Included by
# tests/rules.mk.

FUZZ_SECONDS ?= 5

FUZZERS := $(patsubst tests/fuzz/%.cc,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*_fuzzer.cc))
# Each is one program made of few files: compiled at once, by the compiler that has the sanitizers.
FUZZED_SOURCES := $(wildcard userspace/elf/*.cc userspace/unwind/*.cc) userspace/profile/estimate.cc \
  $(wildcard userspace/symbolize/*.cc) \
  userspace/profile/profile.cc userspace/profile/unbias.cc userspace/profile/difference.cc userspace/export/heap_v2.cc \
  userspace/export/text_profile.cc userspace/export/heap_v2_reader.cc userspace/export/printable_text.cc \
  userspace/cli/http_answer.cc
FUZZ_FLAGS := -std=c++20 -O1 -g $(WARNINGS) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
  -I. -Iallocator/include
FUZZ_OBJECTS := $(FUZZED_SOURCES:%.cc=$(BUILD)/fuzz/%.o)

$(BUILD)/fuzz/userspace/%.o: userspace/%.cc
	$(say) FUZZCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(FUZZ_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -c $< -o $@

# The HTTP server without its sockets.
FUZZED_HTTP := $(wildcard userspace/service/http_*.cc userspace/export/*.cc userspace/profile/*.cc) \
  $(patsubst %,userspace/service/%.cc,memory_json messages process_command_line process_symbols processes_json)
$(BUILD)/fuzz/http_fuzzer: $(FUZZED_HTTP:%.cc=$(BUILD)/fuzz/%.o)

# What a target says by its memory, and what one recorder leaves for the next.
FUZZED_TARGET := $(patsubst %,userspace/service/%.cc,control_block dump_request dump_folder process_handle target_state) \
  userspace/bpf/kernel_error.cc
$(addprefix $(BUILD)/fuzz/,control_block_fuzzer dump_request_fuzzer target_state_fuzzer): \
  $(FUZZED_TARGET:%.cc=$(BUILD)/fuzz/%.o)

# What the allocator reads.
FUZZED_ALLOCATOR := $(patsubst %,$(BUILD)/fuzz/allocator/%.o,configuration options option_table system)
$(FUZZED_ALLOCATOR) $(BUILD)/fuzz/allocator_options_fuzzer: FUZZ_FLAGS += -Iallocator
$(BUILD)/fuzz/allocator_options_fuzzer: $(FUZZED_ALLOCATOR)

$(BUILD)/fuzz/allocator/%.o: allocator/%.cc
	$(say) FUZZCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(FUZZ_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/fuzz/tests/%.o: tests/%.cc
	$(say) FUZZCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(FUZZ_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/fuzz/tests/unit/bpf_programs.o: tests/unit/bpf_programs.c
	$(say) FUZZCC $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(filter-out -std=%,$(FUZZ_FLAGS)) $(HARNESS_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/fuzz/unwind_walk_fuzzer: $(HARNESS_OBJECTS:$(BUILD)/%=$(BUILD)/fuzz/%)

$(FUZZERS): $(BUILD)/fuzz/%: tests/fuzz/%.cc $(FUZZ_OBJECTS)
	$(say) FUZZER $@
	$(Q)$(CLANG)++ $(FUZZ_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -o $@ $< $(filter %.o,$^) $(PACKAGE_LIBRARIES)

.PHONY: test-fuzz
test-fuzz: $(FUZZERS) ## fuzz what reads hostile input, FUZZ_SECONDS=5 each
	$(Q)mkdir -p $(BUILD)/fuzz/crashes; for fuzzer in $(FUZZERS); do \
	  mkdir -p $$fuzzer.corpus; \
	  $$fuzzer -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -malloc_limit_mb=64 -timeout=5 \
	    -artifact_prefix=$(BUILD)/fuzz/crashes/ $$fuzzer.corpus >$$fuzzer.log 2>&1 || \
	    { tail -n 50 $$fuzzer.log; echo "$$fuzzer: failed" >&2; exit 1; }; \
	  echo "$${fuzzer##*/}: $$(grep '^Done ' $$fuzzer.log)"; \
	done
