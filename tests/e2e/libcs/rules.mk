# SPDX-License-Identifier: Apache-2.0
#
# Test programs for other libcs than this system's (test_libcs.py). Included by tests/e2e/rules.mk.
#
# For musl they are compiled by Debian's musl-gcc. For glibc of other releases they are linked in root folders, which
# tests/e2e/libcs/roots makes in HEAPTAP_ROOTS.

LIBCS := $(BUILD)/tests/libcs
export HEAPTAP_ROOTS ?= /var/cache/heaptap-roots
# glibc 2.23, 2.31, 2.36 and 2.41.
ROOTS := xenial bullseye bookworm trixie

# The first list: what is recorded. The second: what malloc and its relatives promise, with headers that xenial lacks.
RECORDED_BY_LIBC := exact_threads children frames puppet loader late_threads libleft.so liblate_threads.so wiki_leak
CHECKED_BY_LIBC := behaviour extended getenv_under_lock api odd libearly_library.so early_host
MUSL_PROGRAMS := $(addprefix $(LIBCS)/musl/,$(RECORDED_BY_LIBC) $(CHECKED_BY_LIBC) c_law)
ROOT_PROGRAMS := $(foreach root,$(ROOTS),$(addprefix $(LIBCS)/$(root)/,$(RECORDED_BY_LIBC) \
  $(if $(filter-out xenial,$(root)),$(CHECKED_BY_LIBC))))

# musl: the kernel's headers are this system's. Roots: the compiler is this system's, and would take its own libraries.
LIBC_CC_musl := musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu
LIBC_FLAGS := -O1 -g $(WARNINGS) -Wno-deprecated-declarations -D_GNU_SOURCE= -fno-builtin -fno-omit-frame-pointer \
  -fno-optimize-sibling-calls -Iallocator/include -Itests/allocator
$(foreach root,$(ROOTS),$(eval LIBC_CC_$(root) = $$(CC) --sysroot=$$(HEAPTAP_ROOTS)/$(root) -B$$(HEAPTAP_ROOTS)/$(root)/usr/lib/x86_64-linux-gnu))

# $(1): libc. Before glibc 2.34 threads and dlopen are in libraries of their own, with which some programs are not linked.
define LIBC_PROGRAMS
$(LIBCS)/$(1)/libleft.so: tests/targets/plugin.c
$(LIBCS)/$(1)/libleft.so: private LIBC_LINK := -fPIC -shared -Wl,-Bsymbolic -DSIDE=left -DFRAME=264
$(LIBCS)/$(1)/liblate_threads.so: tests/targets/late_threads.c
$(LIBCS)/$(1)/liblate_threads.so: private LIBC_LINK := -fPIC -shared -DPLUGIN -pthread
$(LIBCS)/$(1)/libearly_library.so: tests/allocator/early_library.c
$(LIBCS)/$(1)/libearly_library.so: private LIBC_LINK := -fPIC -shared -pthread
$(LIBCS)/$(1)/early_host: $(LIBCS)/$(1)/libearly_library.so
$(LIBCS)/$(1)/early_host: private LIBC_LINK := -pthread -L$(LIBCS)/$(1) -learly_library -Wl,-rpath,'$$$$ORIGIN'
$(LIBCS)/$(1)/wiki_leak: private LIBC_LINK := -O0 -Wno-unused-result
$(LIBCS)/$(1)/late_threads: private LIBC_LINK := -ldl
$(LIBCS)/$(1)/%: LIBC_LINK := -rdynamic -pthread -ldl -lm
$(LIBCS)/$(1)/%: tests/targets/%.c
	$$(LIBC_RECIPE)
$(LIBCS)/$(1)/%: tests/allocator/%.c
	$$(LIBC_RECIPE)
$(LIBCS)/$(1)/%: tests/allocator/guest/%.c
	$$(LIBC_RECIPE)
$(LIBCS)/$(1)/libleft.so $(LIBCS)/$(1)/liblate_threads.so $(LIBCS)/$(1)/libearly_library.so:
	$$(LIBC_RECIPE)
endef

define LIBC_RECIPE
$(say) CC $@
@mkdir -p $(@D)
$(Q)$(LIBC_CC_$(notdir $(@D))) $(LIBC_FLAGS) $(DEPENDENCIES) $(filter %.c,$^) -o $@ $(LIBC_LINK)
endef
$(foreach libc,musl $(ROOTS),$(eval $(call LIBC_PROGRAMS,$(libc))))

TARGET_PROGRAMS += $(MUSL_PROGRAMS)

# In a make of its own, because the roots must be there before programs are linked in them.
.PHONY: root-programs test-libcs
root-programs:
	$(Q)tests/e2e/libcs/roots $(HEAPTAP_ROOTS) $(ROOTS)
	$(Q)$(MAKE) --no-print-directory $(ROOT_PROGRAMS)

test-libcs: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so targets root-programs ## record programs of musl and of glibc 2.23 to 2.41 (root, network)
	$(Q)$(PYTEST) tests/e2e/libcs -n $(E2E_WORKERS)
