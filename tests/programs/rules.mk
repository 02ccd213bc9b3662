# SPDX-License-Identifier: Apache-2.0
#
# Runs Debian's programs with heaptap. Included by tests/rules.mk.

# Names from tests/programs/run --list, quoted if they contain spaces; empty: all.
PROGRAMS ?=

.PHONY: test-programs
test-programs: ## install what is missing, build, run Debian's programs in four ways, and with the guest over four allocators, and compare (root); PROGRAMS
	$(Q)scripts/bootstrap programs
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/programs/run $(PROGRAMS)
	$(Q)for host in glibc jemalloc tcmalloc mimalloc; do tests/programs/run --guest=$$host $(PROGRAMS) || exit; done
