# SPDX-License-Identifier: Apache-2.0
#
# The collector under sanitizers. Included by tests/rules.mk.
#
# One library of the collector, built by clang with AddressSanitizer and UndefinedBehaviorSanitizer, serves the unit tests,
# the fuzzers (tests/fuzz/rules.mk) and the end-to-end tests. Another one with ThreadSanitizer serves the tests of code with
# threads. The unit tests themselves are the objects of the plain program.

# A report needs only functions and lines; the last -O and -g take effect. HEAPTAP_DEBUG: preconditions are checked
# (userspace/base/require.h).
SANITIZED_FLAGS := $(USERSPACE_FLAGS) $(CLANG_WARNINGS) -Wthread-safety -O0 -gline-tables-only -fno-omit-frame-pointer -DHEAPTAP_DEBUG
# Clang takes three times as long with -O1, which pays only where tests do much work.
BUSY_GROUPS := history symbolize unwind

ASAN := $(BUILD)/asan
# Left out, for a quarter of the compile time: null (it crashes anyway), object-size (the address sanitizer finds these), vptr
# (there are no such casts). NDEBUG_SANITIZER: otherwise Abseil's containers have another layout under the address sanitizer
# (since 2023) than in the system's library of Abseil.
ASAN_FLAGS := -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr -fno-sanitize-recover=all \
  -DNDEBUG_SANITIZER
# The system's library of Abseil was compiled without the sanitizer. Since 2023 it has parts of the containers, which take
# over memory that other parts have poisoned, and do not know that.
ASAN_RUN_OPTIONS := $(shell pkg-config --atleast-version=20230000 absl_base && echo allow_user_poisoning=0)
ASAN_OBJECTS := $(GROUP_OBJECTS:%=$(ASAN)/%)

TSAN := $(BUILD)/tsan
TSAN_FLAGS := -fsanitize=thread
# Tests of code that threads share, and a replacement for absl::Mutex.
TSAN_TEST_SOURCES := $(addprefix tests/unit/,$(addsuffix .cc,api_endpoints_test api_http_clients_test \
  api_process_symbols_test bpf_puppet bpf_unwind_maps_test daemon_historian_test http_access_test http_server_test \
  base_background_test attach_probe_files_test tables_unwind_tables_test crews_crew_test crews_errands_test \
  crews_hands_test worker_jobs support/main support/simulated_books support/tsan_mutex))
# Without what these tests do not link.
TSAN_OBJECTS := $(TSAN_TEST_SOURCES:%.cc=$(TSAN)/%.o) $(filter-out %_cli.o %_doctor.o,$(GROUP_OBJECTS:%=$(TSAN)/%))

# $(1): ASAN or TSAN
define SANITIZED_RULES
$$(BUSY_GROUPS:%=$$($(1))/group_%.o): private SANITIZED_FLAGS += -O1

$$($(1))/userspace/%.o: userspace/%.cc
	$$(say) CLANGCXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CLANG)++ $$(SANITIZED_FLAGS) $$($(1)_FLAGS) $$(PACKAGE_FLAGS) $$(DEPENDENCIES) -c $$< -o $$@

$$($(1))/group_%.o: $$(BUILD)/groups/group_%.cc $$(BUILD)/bpf/heaptap.skel.h
	$$(say) CLANGCXX "$$@ ($$(words $$(call group_of,$$*,$$(COLLECTOR_SOURCES))) files)"
	@mkdir -p $$(@D)
	$$(Q)$$(CLANG)++ $$(SANITIZED_FLAGS) $$($(1)_FLAGS) $$(PACKAGE_FLAGS) $$(DEPENDENCIES) -c $$< -o $$@

$$($(1))/tests/%.o: tests/%.cc
	$$(say) CLANGCXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CLANG)++ $$(SANITIZED_FLAGS) $$($(1)_FLAGS) $$(PACKAGE_FLAGS) $$(DEPENDENCIES) -c $$< -o $$@

$$($(1))/tests/%.o: tests/%.c
	$$(say) CLANG $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CLANG) -O1 -gline-tables-only $$($(1)_FLAGS) $$(HARNESS_FLAGS) $$(DEPENDENCIES) -c $$< -o $$@
endef
$(eval $(call SANITIZED_RULES,ASAN))
$(eval $(call SANITIZED_RULES,TSAN))

# Unit tests with ThreadSanitizer, whose objects are not those of the plain program.
TSAN_PRECOMPILED := $(TSAN)/tests/unit/support/precompiled.h.pch

$(TSAN_PRECOMPILED): tests/unit/support/precompiled.h
	$(say) PCH $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(SANITIZED_FLAGS) $(TSAN_FLAGS) $(PACKAGE_FLAGS) -fpch-instantiate-templates $(PCH_FLAGS) $(DEPENDENCIES) \
	  -x c++-header $< -o $@

$(TSAN)/tests/unit/%.o: tests/unit/%.cc $(TSAN_PRECOMPILED)
	$(say) CLANGCXX $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(SANITIZED_FLAGS) $(TSAN_FLAGS) $(PACKAGE_FLAGS) -include-pch $(TSAN_PRECOMPILED) $(DEPENDENCIES) \
	  -c $< -o $@

$(ASAN)/libcollector.a: $(ASAN_OBJECTS)
	$(say) AR $@
	$(Q)rm -f $@ && ar crs $@ $^

# --- unit tests -------------------------------------------------------------------------------------------------------

# Tests that cannot run with a sanitizer, each with its reason.
include tests/unit/not_sanitized.mk

# The library comes first and completely, so that the linker takes its versions of inline functions.
$(ASAN)/unit_tests: $(ASAN)/libcollector.a $(UNIT_OBJECTS) $(HARNESS_OBJECTS:$(BUILD)/%=$(ASAN)/%)
	$(say) LINK $@
	$(Q)$(CLANG)++ $(ASAN_FLAGS) -o $@ -Wl,--whole-archive $< -Wl,--no-whole-archive \
	  $(filter %.o,$^) $(PACKAGE_LIBRARIES) -lgtest -lgmock -lpthread

$(TSAN)/unit_tests: $(TSAN_OBJECTS)
	$(say) LINK $@
	$(Q)$(CLANG)++ $(TSAN_FLAGS) -o $@ $^ $(PACKAGE_LIBRARIES) -lgtest -lgmock -lpthread

.PHONY: test-unit-asan test-unit-tsan
test-unit-asan: test-unit-asan-all ## run unit tests with AddressSanitizer and UndefinedBehaviorSanitizer
test-unit-tsan: test-unit-tsan-all ## run unit tests of code with threads, with ThreadSanitizer

test-unit-asan-%: $(ASAN)/unit_tests
	$(say) TEST "unit tests, address and undefined behaviour"
	$(Q)ASAN_OPTIONS=$(ASAN_RUN_OPTIONS) UBSAN_OPTIONS=print_stacktrace=1 tests/unit/run $< $* '$(NOT_WITH_ASAN)'

test-unit-tsan-%: $(TSAN)/unit_tests
	$(say) TEST "unit tests, threads"
	$(Q)tests/unit/run $< $* '$(NOT_WITH_TSAN)'

# --- end to end -------------------------------------------------------------------------------------------------------

SANITIZED := $(BUILD)/sanitized

$(SANITIZED)/heaptap: $(ASAN)/userspace/cli/main.o $(ASAN)/libcollector.a
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(CLANG)++ $(ASAN_FLAGS) -o $@ $^ $(PACKAGE_LIBRARIES)

# Next to the collector, which uses this library.
$(SANITIZED)/libheaptap.so: $(BUILD)/libheaptap.so
	$(Q)mkdir -p $(@D) && ln -sf ../libheaptap.so $@

.PHONY: heaptap-sanitized
heaptap-sanitized: $(SANITIZED)/heaptap $(SANITIZED)/libheaptap.so ## build the collector with sanitizers, build/sanitized/heaptap
	@:

# A sanitizer's finding ends the collector with a status that no test expects. It also goes to a file, for collectors that
# no test waits for. E2E_TESTS as for test-e2e.
SANITIZER_REPORTS := $(abspath $(SANITIZED))/reports
SANITIZER_STATUS := 99
SANITIZER_OPTIONS := exitcode=$(SANITIZER_STATUS):log_path=$(SANITIZER_REPORTS)/report
SANITIZER_ENVIRONMENT = HEAPTAP=$(abspath $(SANITIZED))/heaptap ASAN_OPTIONS=$(SANITIZER_OPTIONS):$(ASAN_RUN_OPTIONS) \
  UBSAN_OPTIONS=$(SANITIZER_OPTIONS):print_stacktrace=1 HEAPTAP_TIME_SCALE=$(or $(HEAPTAP_TIME_SCALE),4)

.PHONY: test-e2e-sanitized
test-e2e-sanitized: heaptap-sanitized $(BUILD)/libheaptap.so targets ## run end-to-end tests with the sanitized collector (root)
	$(Q)rm -rf $(SANITIZER_REPORTS) && mkdir -p -m 777 $(SANITIZER_REPORTS)
	$(say) TEST "end to end, with sanitizers"
	$(Q)export $(SANITIZER_ENVIRONMENT); $(call run_e2e,not slow and not product)
	$(Q)! cat $(SANITIZER_REPORTS)/report.* 2>/dev/null

# Tests in which the collector reads untrusted input. The rest is about the allocator and about other tools.
.PHONY: test-e2e-sanitized-small
test-e2e-sanitized-small: ## the same, only tests in which the collector reads untrusted input (root)
	$(Q)$(MAKE) --no-print-directory test-e2e-sanitized E2E_TESTS="$(addprefix tests/e2e/,run_attach daemon dumps unwind)"
