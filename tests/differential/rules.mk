# SPDX-License-Identifier: Apache-2.0
#
# The differential test: heaptap's call paths against jemalloc's. Included by tests/rules.mk.

DIFFERENTIAL := $(BUILD)/tests/differential
# Compiled like distributions do: no frame pointers, tail calls. Lazy binding, so that stubs have work.
DIFFERENTIAL_FLAGS := -O2 -fomit-frame-pointer $(WARNINGS) -pthread
DIFFERENTIAL_LINK := -Wl,-z,lazy -Wl,-rpath,'$$ORIGIN' -L$(DIFFERENTIAL)

DIFFERENTIAL_TARGETS := $(addprefix $(DIFFERENTIAL)/,exceptions signals single_step plt_stubs lazy_resolver \
  variable_frames recursion tail_calls noreturn vfork plugins plugin_first.so plugin_second.so archive optimised \
  static/jemalloc/archive static/heaptap/archive)

$(DIFFERENTIAL)/%: tests/differential/targets/%.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) $< -o $@ $(DIFFERENTIAL_LINK) $(LIBRARIES)

$(DIFFERENTIAL)/%: tests/differential/targets/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) $< -o $@ $(DIFFERENTIAL_LINK)

$(DIFFERENTIAL)/libplt.so: tests/differential/targets/libplt.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) -fPIC -shared $< -o $@ -Wl,-z,lazy

$(DIFFERENTIAL)/single_step $(DIFFERENTIAL)/plt_stubs $(DIFFERENTIAL)/lazy_resolver: LIBRARIES := -lplt
$(DIFFERENTIAL)/single_step $(DIFFERENTIAL)/plt_stubs $(DIFFERENTIAL)/lazy_resolver: $(DIFFERENTIAL)/libplt.so

$(DIFFERENTIAL)/noreturn: DIFFERENTIAL_FLAGS += -falign-functions=1

# Both plugins at the same free address, so that one is mapped where the other was.
$(DIFFERENTIAL)/plugin_first.so: DIFFERENTIAL_FLAGS += -DFIRST
$(DIFFERENTIAL)/plugin_%.so: tests/differential/targets/plugin.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) -fno-toplevel-reorder -fPIC -shared $< -o $@ \
	  -Wl,-Ttext-segment=0x600000000000

$(DIFFERENTIAL)/libtree.a: tests/differential/targets/tree.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) -fPIE -c $< -o $(@:.a=.o)
	$(Q)rm -f $@ && ar crs $@ $(@:.a=.o)

$(DIFFERENTIAL)/archive: LIBRARIES := -ltree
$(DIFFERENTIAL)/archive: $(DIFFERENTIAL)/libtree.a

# The same program as a static PIE with heaptap in it, and as a dynamic one for jemalloc: linked statically, Debian's
# jemalloc aborts when it profiles (glibc's start-up allocates before the unwinder can find its tables).
$(DIFFERENTIAL)/static/heaptap/archive: tests/differential/targets/archive.c $(DIFFERENTIAL)/libtree.a \
    $(BUILD)/libheaptap.a
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) -static-pie $< -o $@ -L$(DIFFERENTIAL) -ltree $(BUILD)/libheaptap.a

$(DIFFERENTIAL)/static/jemalloc/archive: $(DIFFERENTIAL)/archive
	@mkdir -p $(@D)
	$(Q)cp $< $@

$(DIFFERENTIAL)/optimised: tests/differential/targets/optimised.cc tests/differential/targets/optimised_shapes.cc \
    tests/differential/targets/optimised.h
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++20 $(WARNINGS) -O3 -flto -fomit-frame-pointer $(filter %.cc,$^) -o $@

# The program that tries the control interface: plain, with built-in options, and linked with either allocator, because
# nothing can be preloaded into a set-user-ID program.
TABLE_TARGETS := $(addprefix $(DIFFERENTIAL)/,mallctl_trials mallctl_trials_symbol mallctl_trials_harder \
  secure/jemalloc/mallctl_trials secure/heaptap/mallctl_trials)

$(DIFFERENTIAL)/mallctl_trials_symbol: PROGRAM_OPTIONS := -DMALLOC_CONF='"lg_prof_sample:3,prof:true,symbol:bad"'
$(DIFFERENTIAL)/mallctl_trials_harder: PROGRAM_OPTIONS := -DMALLOC_CONF_HARDER='"lg_prof_sample:6,harder:bad"'
$(DIFFERENTIAL)/secure/jemalloc/mallctl_trials: PROGRAM_OPTIONS := -Wl,--no-as-needed -ljemalloc
$(DIFFERENTIAL)/secure/heaptap/mallctl_trials: PROGRAM_OPTIONS := -Wl,--whole-archive $(BUILD)/libheaptap.a \
  -Wl,--no-whole-archive
$(DIFFERENTIAL)/secure/heaptap/mallctl_trials: $(BUILD)/libheaptap.a

$(filter-out $(DIFFERENTIAL)/mallctl_trials,$(TABLE_TARGETS)): tests/differential/targets/mallctl_trials.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(DIFFERENTIAL_FLAGS) $(DEPENDENCIES) -rdynamic $< -o $@ $(PROGRAM_OPTIONS)

.PHONY: differential-targets
differential-targets: $(DIFFERENTIAL_TARGETS)

.PHONY: test-differential test-differential-small
test-differential test-differential-small: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so \
  differential-targets

# Tests of the comparisons themselves.
DIFFERENTIAL_PYTEST = PYTHONDONTWRITEBYTECODE=1 $(PYTEST) -c tests/differential/pytest.ini

test-differential: ## compare call paths of many programs with jemalloc's (root)
	$(Q)$(DIFFERENTIAL_PYTEST) tests/differential/test_paths.py
	$(Q)tests/differential/run
	$(Q)tests/differential/run --counted
	$(Q)tests/differential/run --guest

test-differential-small: ## the same, only programs that take seconds (root)
	$(Q)$(DIFFERENTIAL_PYTEST) tests/differential/test_paths.py
	$(Q)tests/differential/run --small
	$(Q)tests/differential/run --counted python3 perl git exceptions signals variable_frames recursion vfork plugins static_pie
	$(Q)tests/differential/run --guest free ls exceptions vfork optimised

.PHONY: test-differential-wrapped test-differential-busy
test-differential-wrapped test-differential-busy: $(BUILD)/heaptap $(BUILD)/libheaptap.so differential-targets

test-differential-wrapped: ## the same, for programs started by a shell script and env (root)
	$(Q)tests/differential/run --wrapped

test-differential-busy: ## the same with three busy loops in parallel (root)
	$(Q)tests/differential/run --wrapped --busy

.PHONY: test-jemalloc test-jemalloc-all
test-jemalloc test-jemalloc-all: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(TABLE_TARGETS)

test-jemalloc: ## compare mallctl names and a sample of option strings with jemalloc's (root)
	$(Q)$(DIFFERENTIAL_PYTEST) tests/differential/test_tables.py
	$(Q)tests/differential/run_tables --sample

test-jemalloc-all: ## compare mallctl names and all option strings with jemalloc's (root)
	$(Q)tests/differential/run_tables

# For `make test-long`.
LONG_TESTS += test-differential test-differential-wrapped test-differential-busy test-jemalloc-all
