# SPDX-License-Identifier: Apache-2.0
#
# Checks of the sources. Included by tests/rules.mk.

LINT := $(BUILD)/lint
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy

# All files except the build's output.
LINT_FIND := find . -path ./.git -prune -o -path ./$(BUILD) -prune -o -type f
FORMATTED = $(shell $(LINT_FIND) \( -name '*.h' -o -name '*.c' -o -name '*.cc' \) -print)
SHELL_SCRIPTS = $(shell grep -lIE '^\#! ?(/bin/(ba)?sh|/usr/bin/env bash)' $$($(LINT_FIND) \( -path './scripts/*' -o -path './.ci/*' \
  -o -path './tests/*' \) -print))
PYTHON_FILES = $(shell grep -lIE '^\#!.*python3' $$($(LINT_FIND) \( -path './scripts/*' -o -path './.ci/*' \
  -o -path './tests/*' \) ! -name '*.py' -print) ; $(LINT_FIND) -name '*.py' -print)

# Only the collector: GoogleTest's macros alone would take clang-tidy longer. A check reads every header that a file
# includes, so folders are checked in four groups. One stamp for each group that passed.
TIDY_GROUPS := 0 1 2 3
TIDIED := $(TIDY_GROUPS:%=$(LINT)/tidied_%)
tidy_group_of = $(foreach folder,$(shell printf '%s\n' $(GROUPS) | awk 'NR % $(words $(TIDY_GROUPS)) == $(1)'),$(call group_of,$(folder),$(TIDY_SOURCES)))
TIDY_SOURCES := $(wildcard userspace/*/*.cc userspace/*/*/*.cc)
TIDY_HEADERS := $(wildcard userspace/*/*.h userspace/*/*/*.h bpf/*.h allocator/include/heaptap/*.h)
# Checks that `make lint` adds to or, with -, takes from those of .clang-tidy. The static analyzer takes half of the time, so
# `make lint-analyzer` has it alone.
TIDY_CHECKS := -clang-analyzer-*
# The analyzer gives up on a function after this many steps: a quarter of the default, for a third of the time.
ANALYZER_STEPS := 50000

# $(1): group
define TIDY_GROUP
$(LINT)/tidied_$(1): $(call tidy_group_of,$(1)) $(TIDY_HEADERS) .clang-tidy tests/tidy | $(BUILD)/bpf/heaptap.skel.h
	$$(say) TIDY "group $(1), $$(words $$(filter %.cc,$$^)) files"
	@mkdir -p $$(@D)
	$$(Q)tests/tidy "$$(CLANG_TIDY)" '$$(TIDY_CHECKS)' $$@.cc $$(filter %.cc,$$^) -- $$(filter-out $$(WARNINGS),$$(USERSPACE_FLAGS)) \
	  $$(PACKAGE_FLAGS) -Xclang -analyzer-config -Xclang max-nodes=$$(ANALYZER_STEPS)
	@touch $$@
endef
$(foreach group,$(TIDY_GROUPS),$(eval $(call TIDY_GROUP,$(group))))

.PHONY: lint lint-format lint-includes lint-imports lint-layers lint-headers lint-stack lint-tidy lint-scripts lint-web
lint: ## check format, layers, imported symbols, headers, the programs' stack, clang-tidy, types of the page, shellcheck and Python syntax
	$(Q)$(MAKE) --no-print-directory lint-format lint-includes lint-imports lint-layers lint-headers lint-stack lint-scripts lint-web
	$(Q)$(MAKE) --no-print-directory -k lint-tidy

lint-format:
	$(say) FORMAT "$(words $(FORMATTED)) files"
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)

# The collector's files have a table of names instead of clang-tidy. Without constinit, which makes clang evaluate the tables of
# chunks element by element.
INCLUDES_TIDY ?= $(CLANG_TIDY)-19
lint-includes:
	$(say) INCLUDES "allocator, userspace"
	$(Q)tests/collector_includes $(wildcard userspace/*.h userspace/*/*.cc userspace/*/*.h userspace/*/*/*.cc userspace/*/*/*.h)
	$(Q)tests/includes $(INCLUDES_TIDY) $(filter-out allocator/include/%,$(wildcard allocator/*/*.cc allocator/*/*/*.cc \
	  allocator/*/*.h allocator/*/*/*.h)) -- -xc++ -std=c++20 -I. -Iallocator/include -Dconstinit=

lint-imports: $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so
	$(say) IMPORTS "$(^F)"
	$(Q)tests/imports tests/imports.txt $^

lint-layers:
	$(say) LAYERS "allocator, userspace"
	$(Q)tests/layers

lint-headers:
	$(say) HEADERS "bpf"
	$(Q)BPF_FLAGS="$(BPF_FLAGS) -Werror" tests/headers $(CLANG) $(CXX)

lint-stack: $(BUILD)/bpf/heaptap.bpf.o
	$(say) STACK "eBPF programs"
	$(Q)tests/bpf_stack $<

lint-tidy: $(TIDIED)

.PHONY: lint-analyzer
lint-analyzer: ## run clang's static analyzer, which is too slow for `make lint`
	$(Q)$(MAKE) --no-print-directory -k lint-tidy LINT=$(BUILD)/analyzer TIDY_CHECKS='-*$(COMMA)clang-analyzer-core.*$(COMMA)clang-analyzer-cplusplus.*'

LONG_TESTS += lint-analyzer

lint-scripts:
	$(say) SHELL "$(words $(SHELL_SCRIPTS)) scripts"
	$(Q)$(if $(SHELL_SCRIPTS),shellcheck $(SHELL_SCRIPTS))
	$(say) PYTHON "$(words $(PYTHON_FILES)) files"
	@mkdir -p $(LINT)
	$(Q)PYTHONPYCACHEPREFIX=$(abspath $(LINT))/pycache python3 -W error -m py_compile $(PYTHON_FILES)

lint-web:
	$(say) TYPES "userspace/web"
	$(Q)tsc -p userspace/web/tsconfig.json
	$(Q)tsc -p tests/web/tsconfig.json
