# SPDX-License-Identifier: Apache-2.0
#
# What reads the sources and does not run them. Included by tests/rules.mk.

LINT := $(BUILD)/lint
CLANG_FORMAT ?= clang-format
CLANG_TIDY ?= clang-tidy

# Every file of ours, wherever it is; never what was made.
LINT_FIND := find . -path ./.git -prune -o -path ./$(BUILD) -prune -o -type f
FORMATTED = $(shell $(LINT_FIND) \( -name '*.h' -o -name '*.c' -o -name '*.cc' \) -print)
SHELL_SCRIPTS = $(shell grep -lIE '^\#! ?(/bin/(ba)?sh|/usr/bin/env bash)' $$($(LINT_FIND) \( -path './scripts/*' -o -path './.ci/*' \
  -o -path './tests/*' \) -print))
PYTHON_FILES = $(shell grep -lIE '^\#!.*python3' $$($(LINT_FIND) \( -path './scripts/*' -o -path './.ci/*' \
  -o -path './tests/*' \) ! -name '*.py' -print) ; $(LINT_FIND) -name '*.py' -print)

# One stamp for each file that passed, so that a second run looks only at what has changed.
# The collector only: GoogleTest's macros take clang-tidy longer than all of it.
TIDIED := $(patsubst %.cc,$(LINT)/%.tidy,$(wildcard userspace/*/*.cc))
TIDY_HEADERS := $(wildcard userspace/*/*.h bpf/heaptap_maps.h allocator/include/heaptap/*.h)

$(LINT)/%.tidy: %.cc $(TIDY_HEADERS) .clang-tidy | $(BUILD)/bpf/heaptap.skel.h
	$(say) TIDY $<
	@mkdir -p $(@D)
	$(Q)$(CLANG_TIDY) --quiet $< -- $(filter-out $(WARNINGS),$(USERSPACE_FLAGS)) $(PACKAGE_FLAGS) 2>$@.log || { cat $@.log; exit 1; }
	@touch $@

.PHONY: lint lint-format lint-tidy lint-scripts
lint: ## format, clang-tidy, shellcheck, Python's compiler
	$(Q)$(MAKE) --no-print-directory lint-format lint-scripts
	$(Q)$(MAKE) --no-print-directory -k lint-tidy

lint-format:
	$(say) FORMAT "$(words $(FORMATTED)) files"
	$(Q)$(CLANG_FORMAT) --dry-run -Werror $(FORMATTED)

lint-tidy: $(TIDIED)

lint-scripts:
	$(say) SHELL "$(words $(SHELL_SCRIPTS)) scripts"
	$(Q)$(if $(SHELL_SCRIPTS),shellcheck $(SHELL_SCRIPTS))
	$(say) PYTHON "$(words $(PYTHON_FILES)) files"
	@mkdir -p $(LINT)
	$(Q)PYTHONPYCACHEPREFIX=$(abspath $(LINT))/pycache python3 -W error -m py_compile $(PYTHON_FILES)
