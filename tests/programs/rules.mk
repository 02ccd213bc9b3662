# SPDX-License-Identifier: Apache-2.0
#
# Debian's own programs on heaptap. Included by tests/rules.mk.

# Names as tests/programs/run --list has them, those with blanks in quotes; all of them if this is empty.
PROGRAMS ?=

.PHONY: test-programs
test-programs: ## install what is missing, build, run Debian's programs in four ways, compare (root); PROGRAMS
	$(Q)scripts/bootstrap programs
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/programs/run $(PROGRAMS)
