# SPDX-License-Identifier: Apache-2.0
#
# Tests and benchmarks. Included by the top-level Makefile.

# The eBPF programs, compiled for the host with simulated helpers. Hidden: the names of maps and programs are as short as
# those of other libraries.
HARNESS_OBJECTS := $(addprefix $(BUILD)/tests/unit/,bpf_harness.o bpf_helpers.o bpf_programs.o)
HARNESS_FLAGS := -std=gnu11 $(WARNINGS) -Wno-unused-parameter -Wno-unknown-pragmas -fvisibility=hidden -I.

include tests/allocator/rules.mk
include tests/e2e/rules.mk
include tests/differential/rules.mk
include tests/programs/rules.mk
include tests/bench/rules.mk
include tests/litmus/rules.mk
include tests/lib/rules.mk
-include tests/lint.mk

# Unit tests of the collector: one program. The allocator's are under tests/allocator/, with its sanitizer builds.
UNIT_SOURCES := $(wildcard tests/unit/*_test.cc) tests/unit/bpf_machine.cc tests/unit/bpf_puppet.cc tests/unit/worker_jobs.cc \
  $(addprefix tests/unit/support/,simulated_books.cc main.cc)
UNIT_OBJECTS := $(UNIT_SOURCES:%.cc=$(BUILD)/%.o)

include tests/sanitized.mk
include tests/fuzz/rules.mk

$(BUILD)/tests/unit/bpf_programs.o: tests/unit/bpf_programs.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -g $(HARNESS_FLAGS) $(DEPENDENCIES) -c $< -o $@

# Maps of an invented build with another layout.
$(BUILD)/tests/unit/other_layout.bpf.o: tests/unit/other_layout.bpf.c
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/tests/unit/other_layout.skel.h: $(BUILD)/tests/unit/other_layout.bpf.o
	$(say) SKEL $@
	$(Q)$(BPFTOOL) gen skeleton $< name other_layout_bpf > $@

$(BUILD)/tests/unit/bpf_other_layout_test.o: $(BUILD)/tests/unit/other_layout.skel.h

# Not optimised, and by clang, to compile in half the time: the collector's code, which does the work, is GCC's.
UNIT_FLAGS := $(USERSPACE_FLAGS) $(CLANG_WARNINGS) -O0
# The folder of the headers, and their times, are no part of it: another checkout may use it.
PCH_FLAGS := -Xclang -fno-pch-timestamp
UNIT_PRECOMPILED := $(BUILD)/tests/unit/support/precompiled.h.pch

$(UNIT_PRECOMPILED): tests/unit/support/precompiled.h
	$(say) PCH $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(UNIT_FLAGS) $(PACKAGE_FLAGS) -fpch-instantiate-templates $(PCH_FLAGS) $(DEPENDENCIES) -x c++-header $< -o $@

$(BUILD)/tests/unit/%.o: tests/unit/%.cc $(UNIT_PRECOMPILED)
	$(say) CLANGCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(UNIT_FLAGS) $(PACKAGE_FLAGS) -include-pch $(UNIT_PRECOMPILED) $(DEPENDENCIES) -c $< -o $@

# The collector: a test reads its debug information.
$(BUILD)/tests/unit/unit_tests: | $(BUILD)/heaptap
$(BUILD)/tests/unit/unit_tests: $(UNIT_OBJECTS) $(HARNESS_OBJECTS) $(BUILD)/libcollector.a
	$(say) LINK $@
	$(Q)$(CXX) -o $@ $^ $(PACKAGE_LIBRARIES) -lgtest -lgmock -lpthread

$(addprefix $(BUILD)/tests/unit/,unwind_file_table_test.o crews_symbolizer_test.o): private UNIT_FLAGS += -DHEAPTAP_COLLECTOR=\"$(abspath $(BUILD))/heaptap\"

# It walks its own stack, through GCC's code.
$(BUILD)/tests/unit/unwind_step_test.o: tests/unit/unwind_step_test.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(UNIT_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -c $< -o $@

# The library's notes, read by BCC.
$(BUILD)/tests/unit/probe_notes_by_bcc: tests/unit/probe_notes_by_bcc.cc $(BUILD)/libheaptap.so
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(USERSPACE_FLAGS) -DHEAPTAP_LIBRARY=\"$(abspath $(BUILD))/libheaptap.so\" $(DEPENDENCIES) $< -o $@ \
	  -lbcc -lgtest -lgtest_main -lpthread

.PHONY: test-unit test-unit-kernel test-unit-others test-unit-unsanitized
test-unit: $(BUILD)/tests/unit/unit_tests test-unit-notes ## run unit tests of the collector
	$(Q)tests/unit/run $< all

# The two halves, of which the first attaches probes.
test-unit-kernel test-unit-others: test-unit-%: $(BUILD)/tests/unit/unit_tests
	$(Q)tests/unit/run $< $*

# Those that do not run with AddressSanitizer.
test-unit-unsanitized: $(BUILD)/tests/unit/unit_tests
	$(Q)$< --gtest_brief=1 --gtest_filter='$(NOT_WITH_ASAN)'

.PHONY: test-unit-notes
test-unit-notes: $(BUILD)/tests/unit/probe_notes_by_bcc
	$(Q)$< --gtest_brief=1

# Of the page's modules, without a browser. $(BUILD)/web_tests.js: they are bundled like the page.
.PHONY: test-web
test-web: ## run unit tests of the page's modules
	$(Q)esbuild --log-level=warning --bundle --platform=node tests/web/modules.ts --outfile=$(BUILD)/web_tests.js
	$(Q)node --test $(BUILD)/web_tests.js >$(BUILD)/web_tests.txt || { cat $(BUILD)/web_tests.txt; exit 1; }
	$(Q)grep -E '^# (tests|pass|fail)' $(BUILD)/web_tests.txt

# Built before the tests run, with all cores.
KERNEL_PROGRAMS = $(TARGET_PROGRAMS) $(BUILD)/tests/unit/unit_tests $(BUILD)/tests/unit/probe_notes_by_bcc \
  $(BENCH_PROGRAMS) $(DIFFERENTIAL_TARGETS) $(TABLE_TARGETS) $(PRELOAD_TESTS) $(BUILD)/libheaptap-guest.so $(GUEST_TEST_PROGRAMS) \
  $(OWNER_PROGRAMS) $(OWNER_HOSTS)
COMPUTING_PROGRAMS = $(ALLOCATOR_TEST_PROGRAMS) $(FUZZERS) $(LITMUS)
SANITIZED_PROGRAMS = $(TSAN)/unit_tests $(ASAN)/unit_tests

# Tests of eBPF programs watch the whole machine, so they run one after the other. Beside them run tests that only compute,
# because end-to-end tests mostly wait, and tests of the allocator, most of which wait too.
KERNEL_PHASES := test-instructions test-allocator-preload test-allocator-owners test-differential-small test-jemalloc
COMPUTING_PHASES := test-lib test-web test-fuzz test-litmus
ALLOCATOR_PHASES := test-allocator-guest test-allocator-plain test-allocator-asan test-allocator-tsan test-unit-notes
# Unit tests run once: in `make ci` with sanitizers, but for those of tests/unit/not_sanitized.mk. A program under valgrind
# dies when another program's probe has put a breakpoint into the library, so unit tests that attach probes are among those
# that run one by one.
TEST_PHASES := test-e2e test-unit-kernel $(KERNEL_PHASES) -- computing-builds $(ALLOCATOR_PHASES) $(COMPUTING_PHASES) -- \
  test-unit-others
CI_PHASES := test-e2e test-unit-asan-kernel test-unit-tsan-kernel test-bpf-clang $(KERNEL_PHASES) -- \
  lint test-unit-asan-others test-unit-tsan-others test-unit-unsanitized $(COMPUTING_PHASES) test-debian13-compiles test-kernels-record -- \
  $(ALLOCATOR_PHASES)

.PHONY: kernel-builds computing-builds ci-builds
kernel-builds: $(KERNEL_PROGRAMS)
computing-builds: $(COMPUTING_PROGRAMS)
ci-builds: $(KERNEL_PROGRAMS) $(COMPUTING_PROGRAMS) $(SANITIZED_PROGRAMS)

.PHONY: test
test: ## install what is missing, build, run the tests that a change must pass (root)
	+$(Q)$(FROM_SCRATCH) DEPS=test tests/phases $(BUILD)/phases/build deps all kernel-builds
	+$(Q)$(FROM_SCRATCH) tests/phases $(BUILD)/phases/test $(TEST_PHASES)

# Compilers that take over what another checkout on this machine has compiled. Debug information then names the folder of
# that checkout, which is a nuisance in a debugger, so this is for CI alone. DEPEND: without it, ccache also preprocesses what
# it does not know, which precompiled headers do not shorten; it asks for pch_defines,time_macros where there are any.
WITH_CCACHE = PATH=/usr/lib/ccache:$$PATH CCACHE_BASEDIR=$(CURDIR) CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 \
  CCACHE_SLOPPINESS=pch_defines,time_macros

.PHONY: ci
ci: ## decide whether a change lands: `make test` with sanitizers in the unit tests, lint (root)
	+$(Q)$(WITH_CCACHE) $(FROM_SCRATCH) WERROR=-Werror DEPS="test lint kernels" tests/phases $(BUILD)/phases/build deps all ci-builds
	+$(Q)$(FROM_SCRATCH) WERROR=-Werror tests/phases $(BUILD)/phases/test $(CI_PHASES)

# --- compilers and releases -------------------------------------------------------------------------------------------

$(BUILD)/tests/bpf_load: tests/bpf_load.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) $(DEPENDENCIES) -o $@ $< -lbpf

# The eBPF programs of another clang: what it leaves out, the verifier may need.
BPF_CLANG := clang-19
.PHONY: test-bpf-clang
test-bpf-clang: $(BUILD)/tests/bpf_load $(BUILD)/bpf/heaptap.bpf.o ## load the eBPF programs as Debian 13's clang compiles them (root)
	$(say) TEST "eBPF programs of $(BPF_CLANG)"
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/compilers/$(BPF_CLANG) CLANG=$(BPF_CLANG) WERROR=-Werror \
	  $(BUILD)/compilers/$(BPF_CLANG)/bpf/heaptap.bpf.o
	$(Q)$< $(BUILD)/compilers/$(BPF_CLANG)/bpf/heaptap.bpf.o $(BUILD)/bpf/heaptap.bpf.o

# With each compiler that is installed, one after the other. No warning may remain.
COMPILERS := $(notdir $(wildcard $(addprefix /usr/bin/,g++-12 g++-13 g++-14 clang++-14 clang++-15 clang++-16 clang++-17 clang++-18 clang++-19)))
.PHONY: test-compilers test-installed-compilers $(COMPILERS:%=test-compiler-%)
test-compilers: ## build everything with each compiler of the system, g++ 12 to 14 and clang 14 to 19 (root)
	$(Q)scripts/bootstrap compilers
	$(Q)$(MAKE) --no-print-directory -k test-installed-compilers

test-installed-compilers: $(COMPILERS:%=test-compiler-%)

# The system's libstdc++.so, which its other libraries need: Debian 13's g++-13 has an older one of its own.
$(BUILD)/compilers/lib/libstdc++.so:
	@mkdir -p $(@D)
	$(Q)ln -sf "$$($(CXX) -print-file-name=libstdc++.so.6)" $@

$(COMPILERS:%=test-compiler-%): test-compiler-%: $(BUILD)/compilers/lib/libstdc++.so
	$(say) TEST "the build with $*"
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD)/compilers/$* CXX=$* CC=$(patsubst g++%,gcc%,$(patsubst clang++%,clang%,$*)) \
	  LDFLAGS=-L$(CURDIR)/$(BUILD)/compilers/lib WERROR=-Werror all

LONG_TESTS += test-compilers test-debian13

# One file of each kind: the allocator in C++ and C, assembly of the archive, the eBPF object, the collector with each of its
# large libraries (CLI11, Abseil and JSON, SQLite, protozero), a unit test, and a C program, which also runs.
DEBIAN13_FILES := guest/allocator/guest/libc.o allocator/sample/functions.o allocator/platform/libc_archive.o bpf/heaptap.bpf.o \
  $(addprefix userspace/,cli/words/command_line.o cli/ask/client.o history/database.o formats/pprof_messages.o) \
  tests/unit/base_messages_test.o tests/targets/exact_threads
.PHONY: test-debian13-compiles
test-debian13-compiles: ## compile one file of each kind with Debian 13's compilers (root; the first time: network)
	$(say) TEST "Debian 13's compilers"
	$(Q)tests/compile_on_debian13 $(DEBIAN13_FILES) -- tests/targets/exact_threads

# As a user would, on a new system.
.PHONY: test-debian13
test-debian13: ## run `make demo` and `make test` on a fresh Debian 13 (root, network)
	$(Q)scripts/bootstrap kernels
	$(Q)scripts/fresh -s trixie demo test

# About an hour and a half on two cores: a processor is emulated by one thread, so both kernels run at once.
KERNELS := 6.1 6.12
.PHONY: test-kernels
test-kernels: all targets ## run end-to-end tests on Debian's stock 6.1 and 6.12 kernels, in qemu (root)
	$(Q)$(MAKE) --no-print-directory -k -j2 --output-sync=target $(KERNELS:%=$(BUILD)/vm/%.tested)

.PHONY: test-smoke
test-smoke: all targets ## run a few end-to-end tests on these kernels, as Debian starts and where almost all is forbidden (root)
	$(Q)for kernel in $(KERNELS); do scripts/vmtest $$kernel smoke || exit 1; done

LONG_TESTS += test-smoke

# What this kernel accepts, these may refuse.
KERNELS_TEST := tests/e2e/unwind/test_unwinding.py::test_callers_in_each_thread
.PHONY: test-kernels-record
test-kernels-record: all targets ## record one program on each of these kernels (root)
	$(Q)for kernel in $(KERNELS); do VMTEST_MEMORY=2G scripts/vmtest $$kernel tests $(KERNELS_TEST) || exit 1; done

.PHONY: $(KERNELS:%=$(BUILD)/vm/%.tested)
$(KERNELS:%=$(BUILD)/vm/%.tested):
	$(Q)scripts/vmtest $(@F:%.tested=%)

# Test targets on one command line run one after the other, because some watch the whole machine.
previous :=
$(foreach goal,$(filter test% bench,$(MAKECMDGOALS)),$(if $(previous),$(eval $(goal): | $(previous)))$(eval previous := $(goal)))
