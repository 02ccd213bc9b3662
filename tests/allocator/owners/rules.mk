# SPDX-License-Identifier: Apache-2.0
#
# Programs that own a part of a family of functions, for tests/allocator/owners/run. Included by tests/allocator/rules.mk.

OWNERS := $(ALLOCATOR_TESTS)/owners
OWNER_STANDARDS := 98 11 14 17 20 23
# Kinds of programs of which one standard is enough.
OWNER_STANDARD := 17
# -Wsized-deallocation asks for more than the standard does.
OWNER_FLAGS := -O1 -g $(WARNINGS) -fno-builtin -fPIC -Iallocator/include -Itests/allocator

define OWNER_OBJECTS
$(OWNERS)/%.$(1).o: tests/allocator/owners/%.cc
	$$(say) CXX $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) -std=c++$(1) $(OWNER_FLAGS) -Wno-sized-deallocation $$(DEPENDENCIES) -c $$< -o $$@
$(OWNERS)/program.$(1) $(OWNERS)/program_libcxx.$(1): $(OWNERS)/forms.$(1).o $(OWNERS)/operators.$(1).o $(OWNERS)/sampling_on.o
endef
$(foreach standard,$(OWNER_STANDARDS),$(eval $(call OWNER_OBJECTS,$(standard))))

$(OWNERS)/arrays.$(OWNER_STANDARD).o: tests/allocator/owners/operators.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++$(OWNER_STANDARD) $(OWNER_FLAGS) -Wno-sized-deallocation -DARRAYS $(DEPENDENCIES) -c $< -o $@

OWNER_FAMILIES := 0 1 2
define OWNER_FAMILY
$(OWNERS)/own_malloc.$(1).o $(OWNERS)/family.$(1).o: $(OWNERS)/%.$(1).o: tests/allocator/owners/%.c
	$$(say) CC $$@
	@mkdir -p $$(@D)
	$$(Q)$$(CC) $(OWNER_FLAGS) -DFAMILY=$(1) $$(DEPENDENCIES) -c $$< -o $$@
$(OWNERS)/libfamily.$(1).a: $(OWNERS)/own_malloc.$(1).o
	$$(say) AR $$@
	$$(Q)rm -f $$@ && ar crs $$@ $$^
$(OWNERS)/family.$(1): $(OWNERS)/family.$(1).o $(OWNERS)/sampling_on.o $(OWNERS)/libfamily.$(1).a
$(OWNERS)/family_cxx.$(1): $(OWNERS)/forms.$(OWNER_STANDARD).o $(OWNERS)/sampling_on.o $(OWNERS)/own_malloc.$(1).o
endef
$(foreach family,$(OWNER_FAMILIES),$(eval $(call OWNER_FAMILY,$(family))))

$(OWNERS)/sampling_on.o: tests/allocator/owners/sampling_on.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) $(OWNER_FLAGS) $(DEPENDENCIES) -c $< -o $@

OWNER_OPERATORS := $(OWNERS)/operators.$(OWNER_STANDARD).o
OWNER_FORMS := $(OWNERS)/forms.$(OWNER_STANDARD).o $(OWNERS)/sampling_on.o
$(OWNERS)/program_arrays: $(OWNER_FORMS) $(OWNERS)/arrays.$(OWNER_STANDARD).o
$(OWNERS)/program_now $(OWNERS)/program_static_library $(OWNERS)/plugin.so $(OWNERS)/plugin_symbolic.so: \
  $(OWNER_FORMS) $(OWNER_OPERATORS)
$(OWNERS)/liboperators.so: $(OWNER_OPERATORS)
$(OWNERS)/program_of_library: $(OWNER_FORMS) $(OWNERS)/liboperators.so
# A C++ program that opens plugins, and one that takes its operators from the allocator.
$(OWNERS)/plugin_host_cxx: tests/allocator/plugin_host.c
$(OWNERS)/program_without_library: tests/allocator/owners/without_library.cc $(BUILD)/libheaptap.so

OWNER_CXX_PROGRAMS := $(addprefix $(OWNERS)/,$(OWNER_STANDARDS:%=program.%) $(OWNER_FAMILIES:%=family_cxx.%) \
  program_arrays program_now program_static_library plugin.so plugin_symbolic.so liboperators.so program_of_library)
OWNER_C_PROGRAMS := $(addprefix $(OWNERS)/,$(OWNER_STANDARDS:%=program_libcxx.%) $(OWNER_FAMILIES:%=family.%) \
  plugin_host_cxx program_without_library)

$(OWNER_C_PROGRAMS): private LINK_OWNER = $(CC)
$(OWNER_CXX_PROGRAMS): private LINK_OWNER = $(CXX)
$(OWNER_STANDARDS:%=$(OWNERS)/program_libcxx.%): private OWNER_LIBRARIES := -Wl,--no-as-needed -l:libc++.so.1 -l:libc++abi.so.1
$(OWNERS)/program_now: private OWNER_LIBRARIES := -Wl,-z,now
$(OWNERS)/program_static_library: private OWNER_LIBRARIES := -static-libstdc++ -static-libgcc
$(OWNERS)/plugin.so: private OWNER_LIBRARIES := -shared
$(OWNERS)/liboperators.so: private OWNER_LIBRARIES := -shared -Wl,-soname,liboperators.so
$(OWNERS)/plugin_symbolic.so: private OWNER_LIBRARIES := -shared -Wl,-Bsymbolic
$(OWNERS)/program_of_library: private OWNER_LIBRARIES := -Wl,-rpath,'$$ORIGIN'
$(OWNERS)/plugin_host_cxx: private OWNER_LIBRARIES := -Wl,--no-as-needed -lstdc++
$(OWNERS)/program_without_library: private OWNER_LIBRARIES := -no-pie -fno-pie -fno-exceptions -Itests/allocator -Wl,-rpath,'$$ORIGIN/../..'

$(OWNER_C_PROGRAMS) $(OWNER_CXX_PROGRAMS):
	$(say) LINK $@
	@mkdir -p $(@D)
	$(Q)$(LINK_OWNER) -O1 -g $(WARNINGS) -o $@ $^ $(OWNER_LIBRARIES)

OWNER_PROGRAMS := $(OWNER_C_PROGRAMS) $(OWNER_CXX_PROGRAMS)
OWNER_HOSTS := $(ALLOCATOR_TESTS)/plugin_host

# Not in parallel with tests of a daemon, which records every process.
.PHONY: test-allocator-owners
test-allocator-owners: $(BUILD)/libheaptap.so $(BUILD)/libheaptap-guest.so $(OWNER_PROGRAMS) $(OWNER_HOSTS)
	$(say) TEST "allocator, families with other owners"
	$(Q)timeout 1200 tests/allocator/owners/run $(BUILD)
