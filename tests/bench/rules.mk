# SPDX-License-Identifier: Apache-2.0
#
# Benchmarks: one run prints all tables and writes build/bench.json. Included by tests/rules.mk.

BENCH := $(BUILD)/tests/bench

BENCH_C := $(addprefix $(BENCH)/,peak_rss supply large_blocks latency threads returned gigabyte paths)

$(BENCH_C): $(BENCH)/%: tests/bench/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 $(WARNINGS) -Iallocator/include $< -o $@ -pthread

# A compiler that knows malloc and free leaves pairs out.
$(BENCH)/pairs: tests/bench/pairs.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -fno-builtin $(WARNINGS) $< -o $@

$(BENCH)/forward.so: tests/bench/forward.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -fPIC -shared $(WARNINGS) $< -o $@

# A call in tail position would leave no frame.
$(BENCH)/busy_paths: tests/bench/busy_paths.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -fno-optimize-sibling-calls $(WARNINGS) $< -o $@

$(BENCH)/%.bpf.o: tests/bench/%.bpf.c
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BENCH)/stacks.o $(BENCH)/history_size.o $(BENCH)/empty_program.o: $(BENCH)/%.o: tests/bench/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(USERSPACE_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BENCH)/stacks $(BENCH)/history_size $(BENCH)/empty_program: $(BENCH)/%: $(BENCH)/%.o $(BUILD)/libcollector.a
	$(say) LINK $@
	$(Q)$(CXX) -o $@ $^ $(PACKAGE_LIBRARIES)

BENCH_PROGRAMS := $(BENCH_C) $(addprefix $(BENCH)/,stacks history_size busy_paths stacks.bpf.o empty_program empty_program.bpf.o pairs forward.so) $(TARGETS)/depth

.PHONY: bench
bench: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so $(BENCH_PROGRAMS) ## run benchmarks against glibc, jemalloc, tcmalloc, mimalloc
	$(Q)tests/bench/run

.PHONY: test-instructions
test-instructions: $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so ## count instructions of malloc and free: against jemalloc, with sampling on and off
	$(Q)tests/bench/instructions $(BUILD)
