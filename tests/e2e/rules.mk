# SPDX-License-Identifier: Apache-2.0
#
# End-to-end tests and their target programs (tests/targets/). Included by tests/rules.mk.

TARGETS := $(BUILD)/tests/targets
# Frame pointers and no tail calls: tests expect certain call paths.
TARGET_FLAGS := -O1 -g $(WARNINGS) -fno-omit-frame-pointer -fno-optimize-sibling-calls -pthread

TARGET_PROGRAMS := $(addprefix $(TARGETS)/,wiki_leak wiki_leak_static puppet keeps exact_threads sampling_law children \
  contexts depth fork_storm without_bpf foreign cpp_program callers frames frames_realigned loader jit forged hostile hostile_mount hostile_victim crowd mappings named_threads \
  mtev_endpoints recent small_stacks resets short_lived hungry paced short_threads \
  deep_frames odd_stacks forged_counts pending until_null refuse_call every_request grants \
  libleft.so libright.so libbare.so libdeep.so libstop_at.so libshifted_clock.so statistics_print libstatistics.so wiki_leak_jemalloc jemalloc_example \
  jemalloc_example_conf jemalloc_example_static heaptap_example other_jemalloc other_jemalloc_linked environment_static \
  pool pool_static buffers global named_heap doors_static doors_own doors_own_static doors_cxx_static doors_cxx_own puppet_guest)

$(TARGETS)/%: tests/targets/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) $(DEPENDENCIES) $< -o $@

$(TARGETS)/%: tests/targets/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 $(TARGET_FLAGS) $(DEPENDENCIES) $< -o $@

$(TARGETS)/forged_counts: TARGET_FLAGS += -Iallocator/include

# Compiled like distributions do: no frame pointers.
$(TARGETS)/callers: tests/targets/callers.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O2 -g $(WARNINGS) -fomit-frame-pointer $< -o $@

# The same for C. No tail calls: tests expect certain call paths.
DISTRIBUTION_FLAGS := -O2 -g $(WARNINGS) -fomit-frame-pointer -fno-optimize-sibling-calls -pthread

$(addprefix $(TARGETS)/,frames loader jit forged deep_frames odd_stacks): $(TARGETS)/%: tests/targets/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DISTRIBUTION_FLAGS) $(DEPENDENCIES) $< -o $@

$(TARGETS)/frames_realigned: tests/targets/frames.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DISTRIBUTION_FLAGS) -mstackrealign $(DEPENDENCIES) $< -o $@

# Two plugins that differ only in the size of their frames, so that rules for one are wrong for the other; one without
# unwind tables; and one whose stack is larger than a small copy.
$(TARGETS)/libleft.so: PLUGIN := -DSIDE=left -DFRAME=264
$(TARGETS)/libright.so: PLUGIN := -DSIDE=right -DFRAME=520
$(TARGETS)/libbare.so: PLUGIN := -DSIDE=bare -DFRAME=264 -g0 -fno-asynchronous-unwind-tables -fno-unwind-tables
$(TARGETS)/libdeep.so: PLUGIN := -DSIDE=deep -DFRAME=65536

$(addprefix $(TARGETS)/,libleft.so libright.so libbare.so libdeep.so): tests/targets/plugin.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DISTRIBUTION_FLAGS) -fPIC -shared -Wl,-Bsymbolic $(PLUGIN) $(DEPENDENCIES) $< -o $@

# The program of jemalloc's wiki: not optimised, results unused.
$(TARGETS)/wiki_leak: tests/targets/wiki_leak.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O0 -g $(WARNINGS) -Wno-unused-result $< -o $@

$(TARGETS)/wiki_leak_static: tests/targets/wiki_leak.c $(BUILD)/libheaptap.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O0 -g $(WARNINGS) -Wno-unused-result -static $^ -o $@

$(TARGETS)/libstop_at.so $(TARGETS)/libshifted_clock.so: $(TARGETS)/lib%.so: tests/targets/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fPIC -shared $< -o $@

$(TARGETS)/libstatistics.so: tests/targets/statistics_probe.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fPIC -shared $< -o $@

# Linked with Debian's jemalloc as documented; once with options in the program.
JEMALLOC_FLAGS := -O0 -g $(WARNINGS) -Wno-unused-result -fno-omit-frame-pointer

$(TARGETS)/wiki_leak_jemalloc: tests/targets/wiki_leak.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) $< -o $@ -ljemalloc

$(TARGETS)/jemalloc_example: tests/targets/jemalloc_example.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) $< -o $@ -ljemalloc

$(TARGETS)/jemalloc_example_conf: tests/targets/jemalloc_example.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) -DPROGRAM_CONF='"prof:true,prof_final:true,prof_leak:true,lg_prof_sample:0,stats_print:true"' \
	  $< -o $@ -ljemalloc

# With jemalloc in the program itself, where preloading does not reach.
$(TARGETS)/jemalloc_example_static: tests/targets/jemalloc_example.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) $< -o $@ -Wl,-Bstatic -ljemalloc -Wl,-Bdynamic -lstdc++ -lm

$(TARGETS)/other_jemalloc_linked: tests/targets/other_jemalloc.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) $< -o $@ -Wl,--no-as-needed -ljemalloc

$(TARGETS)/environment_static: tests/targets/environment.c $(BUILD)/libheaptap.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) -static $^ -o $@

$(addprefix $(TARGETS)/,hostile crowd): $(TARGETS)/%: tests/targets/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -Iallocator/include $(DEPENDENCIES) $< -o $@

$(TARGETS)/hostile_mount: tests/targets/hostile_mount.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) $$(pkg-config --cflags fuse3) $(DEPENDENCIES) $< -o $@ $$(pkg-config --libs fuse3)

# Programs that are refused what they ask for.
$(addprefix $(TARGETS)/,refuse_call every_request grants): $(TARGETS)/%: tests/targets/faults/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fno-builtin -I. -Iallocator/include $(DEPENDENCIES) $< -o $@

# The same source with heaptap's headers and library.
$(TARGETS)/heaptap_example: tests/targets/jemalloc_example.c $(BUILD)/libheaptap.so
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(JEMALLOC_FLAGS) -Iallocator/include $(DEPENDENCIES) $< -o $@ -L$(BUILD) -lheaptap \
	  -Wl,-rpath,'$$ORIGIN/../..'

$(TARGETS)/libsmall.so: tests/targets/small_allocator.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fPIC -shared $(DEPENDENCIES) $< -o $@

$(TARGETS)/foreign: tests/targets/foreign.c $(TARGETS)/libsmall.so
	$(say) CC $@
	$(Q)$(CC) $(TARGET_FLAGS) $(DEPENDENCIES) $< -o $@ -L$(TARGETS) -lsmall -Wl,-rpath,'$$ORIGIN'

# Programs that tell heaptap of heaps of their own.
HEAP_FLAGS := $(TARGET_FLAGS) -Iallocator/include
HEAP_LIBRARIES := -L$(BUILD) -lheaptap-sample

$(addprefix $(TARGETS)/,pool named_heap): $(TARGETS)/%: tests/targets/heaps/%.c $(BUILD)/libheaptap-sample.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(HEAP_FLAGS) $(DEPENDENCIES) $< -o $@ $(HEAP_LIBRARIES)

$(TARGETS)/pool_static: tests/targets/heaps/pool.c $(BUILD)/libheaptap-sample.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(HEAP_FLAGS) -static $(DEPENDENCIES) $< -o $@ $(HEAP_LIBRARIES)

$(TARGETS)/buffers: tests/targets/heaps/buffers.cc $(BUILD)/libheaptap-sample.a
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 $(HEAP_FLAGS) $(DEPENDENCIES) $< -o $@ $(HEAP_LIBRARIES)

$(TARGETS)/global: tests/targets/heaps/global.rs $(BUILD)/libheaptap-sample.a
	$(say) RUSTC $@
	@mkdir -p $(@D)
	$(Q)MAKEFLAGS= rustc -O -g --edition 2021 $< -o $@ -L $(BUILD)

# Programs whose own calls of malloc are sampled, as `pkg-config --libs heaptap-guest` links them.
GUEST_FLAGS = $(shell sed -n 's/^Libs: *//p' allocator/heaptap-guest.pc.in | sed 's|$${libdir}|$(BUILD)|')

$(TARGETS)/doors_static: tests/targets/heaps/doors.c
$(TARGETS)/doors_own $(TARGETS)/doors_own_static: tests/targets/heaps/doors.c tests/targets/heaps/own_malloc.c
$(TARGETS)/puppet_guest: tests/targets/puppet.c
$(addprefix $(TARGETS)/,doors_static doors_own_static puppet_guest): HOW := -static
$(addprefix $(TARGETS)/,doors_static doors_own doors_own_static puppet_guest): $(BUILD)/libheaptap-guest.a allocator/heaptap-guest.pc.in
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fno-builtin $(HOW) $(filter %.c,$^) -o $@ $(GUEST_FLAGS)

$(TARGETS)/own_malloc.o: tests/targets/heaps/own_malloc.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(TARGET_FLAGS) -fno-builtin -c $< -o $@

$(TARGETS)/doors_cxx_own: $(TARGETS)/own_malloc.o
$(TARGETS)/doors_cxx_static: HOW := -static
# Calls of malloc in a shared C++ library are not wrapped.
$(TARGETS)/doors_cxx_own: HOW := -static-libstdc++ -static-libgcc
$(TARGETS)/doors_cxx_static $(TARGETS)/doors_cxx_own: tests/targets/heaps/doors_cxx.cc $(BUILD)/libheaptap-guest.a allocator/heaptap-guest.pc.in
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 $(TARGET_FLAGS) $(HOW) $(filter %.cc %.o,$^) -o $@ $(GUEST_FLAGS)

include tests/e2e/libcs/rules.mk

.PHONY: targets
targets: $(TARGET_PROGRAMS)

# E2E_TESTS: paths, or an expression for pytest's -k; all tests if it is empty.
E2E_TESTS ?=
# More than processors: tests mostly wait for the kernel to remove probes.
E2E_WORKERS ?= 4
PYTEST := /usr/bin/python3 -m pytest --color=no
E2E_SELECTION = $(if $(findstring /,$(E2E_TESTS)),$(E2E_TESTS),tests/e2e $(if $(E2E_TESTS),-k "$(E2E_TESTS)"))

# Two lanes, the second even if the first failed: tests in parallel, then tests that need the whole machine. $(1): a
# selection for pytest's -m. Status 5 of pytest: no test of a lane was selected.
define run_e2e
$(PYTEST) $(E2E_SELECTION) -n $(E2E_WORKERS) -m "not whole_machine and ($(1))" --junit-xml=$(BUILD)/e2e.xml $(2); \
first=$$?; \
$(PYTEST) $(E2E_SELECTION) -m "whole_machine and ($(1))" --junit-xml=$(BUILD)/e2e-alone.xml $(2); \
second=$$?; \
case $$first$$second in 00 | 05 | 50) ;; *) exit 1 ;; esac
endef

.PHONY: test-e2e
test-e2e: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so targets ## run end-to-end tests against the real kernel (root); E2E_TESTS
	$(Q)$(call run_e2e,not slow)

# One after the other, also behind one that failed. Other folders add to the list.
LONG_TESTS += test-long-e2e

.PHONY: test-long test-long-e2e
test-long: ## run slow tests: endurance, end to end, all of jemalloc's options, fuzzers (root)
	$(Q)scripts/bootstrap programs
	$(Q)status=0; \
	for target in $(LONG_TESTS); do $(MAKE) --no-print-directory $$target || status=1; done; \
	exit $$status

# The slow tests with their full durations, and a table of their results.
test-long-e2e: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so targets root-programs
	$(Q)rm -f $(BUILD)/long.md
	$(Q)export HEAPTAP_LONG=1; $(call run_e2e,slow or endurance,--held-table=$(BUILD)/long.md)
