# SPDX-License-Identifier: Apache-2.0
#
# The collector under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer. Included by tests/rules.mk.

SANITIZED := $(BUILD)/sanitized
SANITIZED_FLAGS := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SANITIZED_OBJECTS := $(patsubst %.cc,$(SANITIZED)/%.o,$(COLLECTOR_SOURCES) userspace/cli/main.cc)

$(SANITIZED)/userspace/%.o: userspace/%.cc | $(BUILD)/bpf/heaptap.skel.h
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(USERSPACE_FLAGS) $(SANITIZED_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(SANITIZED)/userspace/bpf/books.o $(SANITIZED)/userspace/bpf/books_load.o \
  $(SANITIZED)/userspace/bpf/unwind_maps.o: $(BUILD)/bpf/heaptap.skel.h

$(SANITIZED)/heaptap: $(SANITIZED_OBJECTS)
	$(say) LINK $@
	$(Q)$(CXX) $(SANITIZED_FLAGS) -o $@ $^ $(PACKAGE_LIBRARIES)

# Beside the collector, which takes this one.
$(SANITIZED)/libheaptap.so: $(BUILD)/libheaptap.so
	$(Q)mkdir -p $(@D) && ln -sf ../libheaptap.so $@

.PHONY: heaptap-sanitized
heaptap-sanitized: $(SANITIZED)/heaptap $(SANITIZED)/libheaptap.so ## the collector with sanitizers, build/sanitized/heaptap
	@:

# What a sanitizer finds ends the collector with a status of its own, which no test takes for an answer, and is written
# down, for the collectors that nobody waits for. E2E_TESTS as for test-e2e.
SANITIZER_REPORTS := $(abspath $(SANITIZED))/reports
SANITIZER_STATUS := 99
SANITIZER_OPTIONS := exitcode=$(SANITIZER_STATUS):log_path=$(SANITIZER_REPORTS)/report
SANITIZER_ENVIRONMENT = HEAPTAP=$(abspath $(SANITIZED))/heaptap ASAN_OPTIONS=$(SANITIZER_OPTIONS) \
  UBSAN_OPTIONS=$(SANITIZER_OPTIONS):print_stacktrace=1

.PHONY: test-e2e-sanitized
test-e2e-sanitized: heaptap-sanitized $(BUILD)/libheaptap.so targets ## end-to-end tests of the collector with sanitizers (root)
	$(Q)rm -rf $(SANITIZER_REPORTS) && mkdir -p -m 777 $(SANITIZER_REPORTS)
	$(say) TEST "end to end, with sanitizers"
	$(Q)export $(SANITIZER_ENVIRONMENT); $(call run_e2e,not slow)
	$(Q)! cat $(SANITIZER_REPORTS)/report.* 2>/dev/null

# Where the collector reads what others say. The rest is about the allocator, or other programs' view of it.
.PHONY: test-e2e-sanitized-small
test-e2e-sanitized-small: ## those of them where the collector reads what others say (root)
	$(Q)$(MAKE) --no-print-directory test-e2e-sanitized E2E_TESTS="$(addprefix tests/e2e/,run_attach daemon dumps unwind)"
