# SPDX-License-Identifier: Apache-2.0
#
# Tests of the allocator. Here it is an ordinary library, without the probes and without libc's names (api/), so that it can
# be built with sanitizers. HEAPTAP_DEBUG switches assertions on.

ALLOCATOR_TESTS := $(BUILD)/test-allocator
ALLOCATOR_TESTED := $(filter-out %/libc_shared.cc $(filter-out %/lifecycle.cc,$(wildcard allocator/api/*.cc)),$(ALLOCATOR_SOURCES)) tests/allocator/recorder.cc
# What decides in the guest and in libheaptap-sample.a; tests are their host, control block and probes.
ALLOCATOR_DECIDES := $(addprefix allocator/,guest/decision.cc guest/thread.cc sample/remembered.cc sample/sample.cc sample/threads.cc)
ALLOCATOR_TEST_SOURCES := $(wildcard tests/allocator/*_test.cc) tests/unit/support/main.cc
ALLOCATOR_TEST_FLAGS := -std=c++20 -O1 -g1 $(WARNINGS) -DHEAPTAP_DEBUG -fno-omit-frame-pointer \
  -I. -Iallocator/include -Itests/allocator

ALLOCATOR_SANITIZER_plain :=
ALLOCATOR_SANITIZER_asan := -fsanitize=address,undefined -fno-sanitize-recover=all
ALLOCATOR_SANITIZER_tsan := -fsanitize=thread

# The plain program and the one for AddressSanitizer share the tests' objects: only the allocator is checked.
# ThreadSanitizer must also see what the tests do, and needs no tests without threads.
ALLOCATOR_TESTS_DIR_plain := plain
ALLOCATOR_TESTS_DIR_asan := plain
ALLOCATOR_TESTS_DIR_tsan := tsan
ALLOCATOR_SOURCES_plain := $(ALLOCATOR_TEST_SOURCES)
ALLOCATOR_SOURCES_asan := $(ALLOCATOR_TEST_SOURCES)
ALLOCATOR_SOURCES_tsan := $(shell grep -lE 'std::thread|int main' $(ALLOCATOR_TEST_SOURCES))

# Tests that cannot run with a sanitizer.
#   ResidentDeathTest: the sanitizers map memory without a reserve too, by which the test knows the allocator's.
#   OutOfMemory: the sanitizers need address space themselves, more than the test's limit.
#   LateAllocations, LateThreads: ThreadSanitizer forgets a thread in the last round of destructors.
#   Fork, Orphans, CheckDeathTest, CheckWhenDeathTest: ThreadSanitizer allows no threads in the child of a fork, and none
#     of the other threads' locks.
# The others allocate and fill for two minutes there, on one thread.
ALLOCATOR_EXCLUDED_plain :=
ALLOCATOR_EXCLUDED_asan := :ResidentDeathTest.*:OutOfMemory.*
ALLOCATOR_EXCLUDED_tsan := :ResidentDeathTest.*:OutOfMemory.*:ThreadExit.LateAllocations:ThreadCounters.LateThreadsCountToo:Fork.*:ThreadCounters.OrphansOfAForkBeginAtNothing:*CheckDeathTest.*:CheckWhenDeathTest.*:Fill.NewMemoryIs*:Fill.DoesNotChangeTheSamplingLaw:Reallocate.KeepsContentsThroughAllKinds:HugeCache.*AtOnce:HugeCache.ZeroedBlocksReadAsZero:Allocate.BlocksDoNotOverlap:*SparseSlab.ReturnsFreePages*:*SparseSlab.AFullSlab*:*SparseSlab.TheCounters*

# A fixed seed for sampling, so that all runs are alike.
ALLOCATOR_ENVIRONMENT := HEAPTAP_CONF=prof_seed:1
# For all tests together: main.cc names a hanging test long before.
# Ends what hangs. The tests have a low priority beside others, and may get little time.
ALLOCATOR_RUN := timeout 1200

COMMA := ,
# The functions that mapping_failure_test.cc, which has no threads, makes fail.
ALLOCATOR_WRAP := $(addprefix -Wl$(COMMA)--wrap=_ZN7heaptap,10MapAlignedEmmm 13ResizeMappingEPvmm 11MoveMappingEPvmmS0_)
# The functions that settable_clock.cc replaces.
CLOCK_WRAP := $(addprefix -Wl$(COMMA)--wrap=_ZN7heaptap,9ReadClockEi 12ReturnMemoryEv)

# $(1): variant; $(2): steps of each thread of the stress test
define ALLOCATOR_VARIANT
$(ALLOCATOR_TESTS)/$(1)/precompiled.h.gch: tests/allocator/precompiled.h
	$$(say) PCH $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(ALLOCATOR_TEST_FLAGS) $$(ALLOCATOR_SANITIZER_$(1)) $$(DEPENDENCIES) -x c++-header $$< -o $$@

$(ALLOCATOR_TESTS)/$(1)/%.o: %.cc
	$$(say) CXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(ALLOCATOR_TEST_FLAGS) $$(ALLOCATOR_SANITIZER_$(1)) $$(DEPENDENCIES) -c $$< -o $$@

$(ALLOCATOR_TESTS)/$(1)/%_test.o: %_test.cc $(ALLOCATOR_TESTS)/$(1)/precompiled.h.gch
	$$(say) CXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(ALLOCATOR_TEST_FLAGS) $$(ALLOCATOR_SANITIZER_$(1)) -include $(ALLOCATOR_TESTS)/$(1)/precompiled.h \
	  -Winvalid-pch $$(DEPENDENCIES) -c $$< -o $$@

# The core comes first, so that the linker takes its versions of inline functions.
$(ALLOCATOR_TESTS)/$(1)/unit: $(patsubst %.cc,$(ALLOCATOR_TESTS)/$(1)/%.o,$(ALLOCATOR_TESTED) $(ALLOCATOR_DECIDES)) \
    $(patsubst %.cc,$(ALLOCATOR_TESTS)/$(ALLOCATOR_TESTS_DIR_$(1))/%.o,$(ALLOCATOR_SOURCES_$(1)) tests/allocator/settable_clock.cc)
	$$(say) LINK $$@
	$$(Q)$$(CXX) $$(ALLOCATOR_SANITIZER_$(1)) $$(CLOCK_WRAP) $$(if $$(filter %/mapping_failure_test.o,$$^),$$(ALLOCATOR_WRAP)) \
	  -o $$@ $$^ -lgtest -lpthread

$(ALLOCATOR_TESTS)/$(1)/stress: $(ALLOCATOR_TESTED:%.cc=$(ALLOCATOR_TESTS)/$(1)/%.o) \
    $(ALLOCATOR_TESTS)/$(ALLOCATOR_TESTS_DIR_$(1))/tests/allocator/stress.o
	$$(say) LINK $$@
	$$(Q)$$(CXX) $$(ALLOCATOR_SANITIZER_$(1)) -o $$@ $$^ -lpthread

.PHONY: test-allocator-$(1)
test-allocator-$(1): $(ALLOCATOR_TESTS)/$(1)/unit $(ALLOCATOR_TESTS)/$(1)/stress
	$$(say) TEST "allocator, $(1)"
	$$(Q)$(ALLOCATOR_ENVIRONMENT) MALLOC_CONF=prof:true $(ALLOCATOR_RUN) $(ALLOCATOR_TESTS)/$(1)/unit --gtest_brief=1 \
	  --gtest_filter='-SampleStatisticsTest.*$(ALLOCATOR_EXCLUDED_$(1))'
	$$(Q)$(ALLOCATOR_ENVIRONMENT) MALLOC_CONF=prof:true,prof_stats:true $(ALLOCATOR_RUN) $(ALLOCATOR_TESTS)/$(1)/unit \
	  --gtest_brief=1 --gtest_filter='SampleStatisticsTest.*'
	$$(Q)$(ALLOCATOR_ENVIRONMENT) env -u MALLOC_CONF $(ALLOCATOR_RUN) $(ALLOCATOR_TESTS)/$(1)/unit --gtest_brief=1 \
	  --gtest_filter='Mallctl*'
	$$(Q)$(ALLOCATOR_ENVIRONMENT) $(ALLOCATOR_RUN) $(ALLOCATOR_TESTS)/$(1)/stress 4 5 $(2)
endef
ALLOCATOR_TEST_PROGRAMS := $(foreach variant,plain asan tsan,$(addprefix $(ALLOCATOR_TESTS)/$(variant)/,unit stress))
$(eval $(call ALLOCATOR_VARIANT,plain,40000))
$(eval $(call ALLOCATOR_VARIANT,asan,20000))
$(eval $(call ALLOCATOR_VARIANT,tsan,8000))

$(BUILD)/test-allocator/behaviour: tests/allocator/behaviour.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -Wno-deprecated-declarations -fno-builtin $(DEPENDENCIES) -o $@ $<

$(BUILD)/test-allocator/options: tests/allocator/options.c $(BUILD)/libheaptap.so
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin $(DEPENDENCIES) -o $@ $< -L$(BUILD) -lheaptap

$(BUILD)/test-allocator/options_static: tests/allocator/options.c $(BUILD)/libheaptap.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin $(DEPENDENCIES) -o $@ $< $(BUILD)/libheaptap.a

# C programs for tests/allocator/preload. They export their functions, so that libraries can call them.
PRELOAD_PROGRAMS := $(addprefix $(ALLOCATOR_TESTS)/,getenv_under_lock plugin_host)

$(PRELOAD_PROGRAMS): $(ALLOCATOR_TESTS)/%: tests/allocator/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -rdynamic -pthread $(DEPENDENCIES) -o $@ $<

# The same plugin with either C++ library, with its own copy of one, and as a program.
NEW_PLUGINS := $(addprefix $(ALLOCATOR_TESTS)/,new_libstdcxx.so new_libcxx.so new_own_library.so)
NEW_PROGRAMS := $(addprefix $(ALLOCATOR_TESTS)/,new_program new_program_linked)
$(ALLOCATOR_TESTS)/new_libstdcxx.so: NEW_LINK := $(CXX) -shared
$(ALLOCATOR_TESTS)/new_libcxx.so: NEW_LINK := $(CC) -shared -Wl,--no-as-needed -l:libc++.so.1 -l:libc++abi.so.1
$(ALLOCATOR_TESTS)/new_own_library.so: NEW_LINK := $(CXX) -shared -static-libstdc++ -static-libgcc
$(NEW_PROGRAMS): NEW_LINK := $(CXX)
$(ALLOCATOR_TESTS)/new_program_linked: $(BUILD)/libheaptap.a

$(ALLOCATOR_TESTS)/new_plugin.o: tests/allocator/new_plugin.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O1 -g $(WARNINGS) -fno-builtin -fPIC $(DEPENDENCIES) -c $< -o $@

$(NEW_PLUGINS) $(NEW_PROGRAMS): $(ALLOCATOR_TESTS)/new_plugin.o
	$(say) LINK $@
	$(Q)$(NEW_LINK) -o $@ $^

# A program and a library whose constructor comes before the first allocation.
EARLY := $(addprefix $(ALLOCATOR_TESTS)/,early_host libearly_library.so refuse_keys.so)

$(ALLOCATOR_TESTS)/libearly_library.so $(ALLOCATOR_TESTS)/refuse_keys.so: $(ALLOCATOR_TESTS)/%.so:
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -fPIC -shared -pthread $(DEPENDENCIES) -o $@ $<

$(ALLOCATOR_TESTS)/libearly_library.so: tests/allocator/early_library.c
$(ALLOCATOR_TESTS)/refuse_keys.so: tests/allocator/refuse_keys.c

$(ALLOCATOR_TESTS)/early_host: tests/allocator/early_host.c $(ALLOCATOR_TESTS)/libearly_library.so
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -pthread $(DEPENDENCIES) -o $@ $< -L$(@D) -learly_library -Wl,-rpath,'$$ORIGIN'

# The caller finds its plugin through its own RUNPATH, which the program does not have.
DEEPBIND := $(ALLOCATOR_TESTS)/deepbind

$(DEEPBIND)/plugins/deepbind_plugin.so: tests/allocator/deepbind_plugin.c
$(DEEPBIND)/libdeepbind_caller.so: tests/allocator/deepbind_caller.c
$(DEEPBIND)/libdeepbind_caller.so: DEEPBIND_LINK := -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/plugins'
$(DEEPBIND)/plugins/deepbind_plugin.so $(DEEPBIND)/libdeepbind_caller.so:
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -fPIC -shared $(DEPENDENCIES) -o $@ $< $(DEEPBIND_LINK)

$(ALLOCATOR_TESTS)/deepbind_host: tests/allocator/deepbind_host.c $(DEEPBIND)/libdeepbind_caller.so \
  $(DEEPBIND)/plugins/deepbind_plugin.so
	$(say) CC $@
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin $(DEPENDENCIES) -o $@ $< -L$(DEEPBIND) -ldeepbind_caller \
	  -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/deepbind'

$(addprefix $(ALLOCATOR_TESTS)/,cxx_behaviour cxx_operators): $(ALLOCATOR_TESTS)/%: tests/allocator/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O1 -g $(WARNINGS) -fno-builtin -pthread $(DEPENDENCIES) -o $@ $<

$(ALLOCATOR_TESTS)/cxx_plugin.so: tests/allocator/cxx_plugin.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O1 -g $(WARNINGS) -fPIC -shared $(DEPENDENCIES) -o $@ $<

$(addprefix $(BUILD)/test-allocator/,extended arenas): $(BUILD)/test-allocator/%: tests/allocator/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -Iallocator/include $(DEPENDENCIES) -o $@ $<

PRELOAD_TESTS := $(BUILD)/libheaptap.so $(BUILD)/libheaptap.a $(BUILD)/test-allocator/behaviour \
  $(BUILD)/test-allocator/options $(BUILD)/test-allocator/options_static $(BUILD)/test-allocator/extended $(BUILD)/test-allocator/arenas \
  $(ALLOCATOR_TESTS)/cxx_behaviour $(ALLOCATOR_TESTS)/cxx_operators $(ALLOCATOR_TESTS)/cxx_plugin.so \
  $(PRELOAD_PROGRAMS) $(EARLY) $(NEW_PLUGINS) $(NEW_PROGRAMS) $(ALLOCATOR_TESTS)/deepbind_host $(ALLOCATOR_TESTS)/guest/own_malloc \
  $(ALLOCATOR_TESTS)/owners/program_without_library

# Not in parallel with tests of a daemon, which records every process: some of these need unrecorded processes.
.PHONY: test-allocator-preload
test-allocator-preload: $(PRELOAD_TESTS)
	$(say) TEST "allocator, preloaded"
	$(Q)timeout 1200 tests/allocator/preload $(BUILD)

# Programs that libheaptap-guest.so is preloaded into, over several hosts.
GUEST_TESTS := $(ALLOCATOR_TESTS)/guest

$(addprefix $(GUEST_TESTS)/,api own_malloc odd pages twice): $(GUEST_TESTS)/%: tests/allocator/guest/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -rdynamic -Iallocator/include -Itests/allocator $(DEPENDENCIES) -o $@ $<

$(addprefix $(GUEST_TESTS)/,law moments border): $(GUEST_TESTS)/%: tests/allocator/guest/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O1 -g $(WARNINGS) -fno-builtin -pthread -Iallocator/include -Itests/allocator \
	  -Itests/allocator/guest $(DEPENDENCIES) -o $@ $<

# Where LeakSanitizer is the allocator.
$(GUEST_TESTS)/keeps_all: tests/allocator/guest/keeps_all.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -fsanitize=leak -Iallocator/include -Itests/allocator $(DEPENDENCIES) -o $@ $<

$(addprefix $(GUEST_TESTS)/,plugin.so audit.so bare_host.so young_host.so): $(GUEST_TESTS)/%.so: tests/allocator/guest/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -fno-builtin -fPIC -shared $(DEPENDENCIES) -o $@ $<

$(GUEST_TESTS)/heap_law: tests/allocator/guest/heap_law.cc $(BUILD)/libheaptap-sample.a
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 -O1 -g $(WARNINGS) -pthread -Iallocator/include -Itests/allocator $(DEPENDENCIES) -o $@ $< \
	  -L$(BUILD) -lheaptap-sample

GUEST_TEST_PROGRAMS := $(addprefix $(GUEST_TESTS)/,api own_malloc odd pages twice law heap_law moments border keeps_all plugin.so audit.so \
  bare_host.so young_host.so)

# As above, not in parallel with a daemon.
.PHONY: test-allocator-guest
test-allocator-guest: $(BUILD)/libheaptap-guest.so $(BUILD)/libheaptap.so $(GUEST_TEST_PROGRAMS)
	$(say) TEST "allocator, guest of others"
	$(Q)timeout 2400 tests/allocator/guest/run $(BUILD)

include tests/allocator/owners/rules.mk

.PHONY: test-allocator
test-allocator: test-allocator-plain test-allocator-asan test-allocator-tsan test-allocator-preload test-allocator-guest test-allocator-owners ## run unit and stress tests of the allocator, also with sanitizers
