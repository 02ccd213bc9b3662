# SPDX-License-Identifier: Apache-2.0
#
# Tests of the allocator. The core (everything but libc's names and the probes) is an ordinary library here, so that it
# can be built with sanitizers; the invariants of slab.h are asserted.

ALLOCATOR_CORE := $(filter-out allocator/symbols_%.cc,$(wildcard allocator/*.cc)) tests/allocator/recorder.cc
ALLOCATOR_TEST_SOURCES := $(wildcard tests/unit/allocator_*_test.cc)
ALLOCATOR_TEST_FLAGS := -std=c++20 -O1 -g $(WARNINGS) -DHEAPTAP_DEBUG -fno-omit-frame-pointer \
  -Iallocator -Iallocator/include -Itests/allocator
ALLOCATOR_VARIANTS := plain asan tsan ubsan
ALLOCATOR_SANITIZER_plain :=
ALLOCATOR_SANITIZER_asan := -fsanitize=address
ALLOCATOR_SANITIZER_tsan := -fsanitize=thread
ALLOCATOR_SANITIZER_ubsan := -fsanitize=undefined -fno-sanitize-recover=all

# What runs on one thread has no races, and takes ThreadSanitizer long.
ALLOCATOR_FILTER_tsan := --gtest_filter=RemoteFree.*:ThreadExit.*:SamplingLaw.Changes*:Allocate.Usable*:Mallctl*:ThreadCounters.*:ThreadPeak.*:Snapshot.*:Fill.Slabs*

define ALLOCATOR_VARIANT
$(BUILD)/test-allocator/$(1)/%.o: %.cc
	$$(say) CXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(ALLOCATOR_TEST_FLAGS) $$(ALLOCATOR_SANITIZER_$(1)) $$(DEPENDENCIES) -c $$< -o $$@

$(BUILD)/test-allocator/$(1)/unit: $(patsubst %.cc,$(BUILD)/test-allocator/$(1)/%.o,$(ALLOCATOR_CORE) $(ALLOCATOR_TEST_SOURCES))
	$$(say) LINK $$@
	$$(Q)$$(CXX) $$(ALLOCATOR_SANITIZER_$(1)) -o $$@ $$^ -lgtest -lgtest_main -lpthread

$(BUILD)/test-allocator/$(1)/stress: $(patsubst %.cc,$(BUILD)/test-allocator/$(1)/%.o,$(ALLOCATOR_CORE) tests/allocator/stress.cc)
	$$(say) LINK $$@
	$$(Q)$$(CXX) $$(ALLOCATOR_SANITIZER_$(1)) -o $$@ $$^ -lpthread

.PHONY: test-allocator-$(1)
test-allocator-$(1): $(BUILD)/test-allocator/$(1)/unit $(BUILD)/test-allocator/$(1)/stress
	$$(say) TEST "allocator, $(1)"
	$$(Q)MALLOC_CONF=prof:true timeout 60 $$(BUILD)/test-allocator/$(1)/unit --gtest_brief=1 $$(ALLOCATOR_FILTER_$(1))
	$$(Q)MALLOC_CONF=prof:true,prof_stats:true timeout 60 $$(BUILD)/test-allocator/$(1)/unit --gtest_brief=1 \
	  --gtest_filter='SampleStatisticsTest.*'
	$$(Q)timeout 60 $$(BUILD)/test-allocator/$(1)/unit --gtest_brief=1 --gtest_filter='Mallctl*'
	$$(Q)timeout 60 $$(BUILD)/test-allocator/$(1)/stress 4 5 $(2)
endef
$(eval $(call ALLOCATOR_VARIANT,plain,40000))
$(eval $(call ALLOCATOR_VARIANT,asan,15000))
$(eval $(call ALLOCATOR_VARIANT,tsan,8000))
$(eval $(call ALLOCATOR_VARIANT,ubsan,20000))

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

$(BUILD)/test-allocator/extended: tests/allocator/extended.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g $(WARNINGS) -Iallocator/include $(DEPENDENCIES) -o $@ $<

.PHONY: test-allocator-preload
test-allocator-preload: $(BUILD)/libheaptap.so $(BUILD)/libheaptap.a $(BUILD)/test-allocator/behaviour \
  $(BUILD)/test-allocator/options $(BUILD)/test-allocator/options_static $(BUILD)/test-allocator/extended
	$(say) TEST "allocator, preloaded"
	$(Q)timeout 120 tests/allocator/preload $(BUILD)

.PHONY: test-allocator
test-allocator: $(ALLOCATOR_VARIANTS:%=test-allocator-%) test-allocator-preload ## the allocator: unit tests and stress, also under sanitizers
