# SPDX-License-Identifier: Apache-2.0
#
# Tests of the tests: repetition and faults. Included by tests/rules.mk.

.PHONY: test-lib
test-lib: ## run unit tests of test-repeat and test-mutations
	$(Q)PYTHONDONTWRITEBYTECODE=1 $(PYTEST) -c tests/lib/pytest.ini tests/lib

# N: rounds. TESTS: names as in tests/lib/named_tests.py, in quotes where the shell needs them; the whole suite if empty.
# LOAD: processes that spin beside each second run; 0: all runs are quiet.
N ?= 100
TESTS ?=
LOAD ?= 4

.PHONY: test-repeat
test-repeat: all kernel-builds computing-builds ## run tests N=100 times, quiet and beside LOAD=4 busy processes (root); TESTS
	$(Q)tests/repeat --runs $(N) --load $(LOAD) \
	  $(or $(TESTS),'phases:$(filter-out computing-builds,$(TEST_PHASES))')

# FAULTS: lists, files or folders whose faults are tried; all if it is empty.
FAULTS ?=

.PHONY: test-mutations
test-mutations: all ## put one fault at a time into a copy, and see which test notices (root); FAULTS
	$(Q)tests/mutations/run $(addprefix --only ,$(FAULTS))
