# SPDX-License-Identifier: Apache-2.0
#
# heaptap's targets; `make help` lists them. All output goes to build/. V=1 shows the commands.

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
# All cores, unless the command line sets -j, which takes precedence. A sub-make shares its parent's job slots.
ifeq ($(MAKELEVEL),0)
  MAKEFLAGS += -j$(shell nproc)
endif

BUILD := build
PREFIX ?= /usr/local
DESTDIR ?=
CXX := g++
CC := gcc
CLANG ?= clang
# Ubuntu has one for each kernel, and the one in /usr/sbin looks for that of the running kernel.
BPFTOOL ?= $(firstword $(wildcard /usr/lib/linux-tools*/bpftool /usr/sbin/bpftool /usr/bin/bpftool) bpftool)

ifeq ($(V),1)
  Q :=
  say = @:
else
  Q := @
  say = @printf '  %-8s %s\n'
endif

# A newer compiler has more warnings, which must not end a user's build: only `make ci` makes them errors.
WERROR ?=
WARNINGS := -Wall -Wextra $(WERROR)
IS_CLANG := $(findstring clang,$(CXX))
# Clang also warns of fields that designated initializers leave out, as those of libbpf and of our options do (from version
# 18 on where they have a default, too).
CLANG_WARNINGS := -Wno-missing-field-initializers
# And where GCC's library uses what it has deprecated itself.
ifneq ($(IS_CLANG),)
  WARNINGS += $(CLANG_WARNINGS) -Wno-deprecated-declarations
endif
# Functions and lines, for backtraces and profilers. Variables for a debugger (DEBUG_INFO=-g) take a fifth of the
# collector's compile time.
DEBUG_INFO ?= -g1
# Limits the damage of our own mistakes. Not -fcf-protection: Debian's libc is not built with it, and it would add an
# instruction to malloc.
HARDENING := -D_FORTIFY_SOURCE=2 -fstack-clash-protection
# ccache with CCACHE_DEPEND asks these files what an object was made from; the skeleton of the eBPF programs is a system
# header (see PACKAGE_FLAGS).
DEPENDENCIES = $(if $(CCACHE_DEPEND),-MD,-MMD) -MP -MF $@.d -MT $@

.PHONY: all
all: $(BUILD)/heaptap $(BUILD)/libheaptap.so $(BUILD)/libheaptap.a $(BUILD)/libheaptap-guest.so $(BUILD)/libheaptap-guest.a \
  $(BUILD)/libheaptap-sample.a $(BUILD)/man ## build heaptap, its libraries and the man pages in build/
	@:

# --- allocator: no libstdc++, no exceptions; frame pointers, so that every stack can be walked through it -------------

GUEST_SOURCES := $(wildcard allocator/guest/*.cc)
SAMPLE_SOURCES := $(wildcard allocator/sample/*.cc)
ALLOCATOR_SOURCES := $(filter-out $(GUEST_SOURCES) $(SAMPLE_SOURCES),$(wildcard allocator/*/*.cc allocator/*/*/*.cc))
ALLOCATOR_ASSEMBLY := $(filter-out allocator/sample/%,$(wildcard allocator/*/*.S))
# Only in the archive: what a static program must find in libc.
ARCHIVE_ONLY := $(BUILD)/allocator/platform/libc_archive.o
# Only in the shared libraries: functions that call the next of their name, which a static program does not have; what an
# archive finds in libc; and the names that a library exports, of which a program has no other ones.
SHARED_ONLY := $(addprefix $(BUILD)/allocator/,api/dlopen.o api/dlopen_entry.o api/register_atfork.o platform/libc_shared.o \
  platform/operators.o platform/own_names.o)
# Only in libheaptap.so.
LIBRARY_ONLY := $(BUILD)/allocator/api/names.o
ALLOCATOR_OBJECTS := $(filter-out $(SHARED_ONLY) $(LIBRARY_ONLY) $(ARCHIVE_ONLY),$(ALLOCATOR_SOURCES:%.cc=$(BUILD)/%.o) $(ALLOCATOR_ASSEMBLY:%.S=$(BUILD)/%.o))
# -fstack-protector checks functions with character buffers; -fstack-protector-strong would check the slow paths too.
ALLOCATOR_FLAGS := -std=c++20 -O2 -g $(WARNINGS) $(HARDENING) -fstack-protector -I. -Iallocator/include -fPIC -fvisibility=hidden \
  -fno-exceptions -fno-rtti -fno-threadsafe-statics -fno-omit-frame-pointer -fno-optimize-sibling-calls \
  -ftls-model=initial-exec -mno-red-zone -fno-builtin -fasynchronous-unwind-tables

# Clang initialises the tables of chunks element by element, in more steps than it takes by default.
ifneq ($(IS_CLANG),)
  ALLOCATOR_FLAGS += -fconstexpr-steps=100000000
endif

# The fast paths have no frame, and jump to slow paths that have one.
$(addprefix $(BUILD)/allocator/,api/malloc_fast.o sample/sample.o sample/wrap.o) \
  $(addprefix $(BUILD)/guest/allocator/guest/,fast.o nested_calls.o new_delete.o new_functions.o): ALLOCATOR_FLAGS += -fomit-frame-pointer -foptimize-sibling-calls

$(BUILD)/allocator/%.o: allocator/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALLOCATOR_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/allocator/%.o: allocator/%.S
	$(say) AS $@
	@mkdir -p $(@D)
	$(Q)$(CC) -g $(DEPENDENCIES) -c $< -o $@

# One object, so that a static link gets the complete allocator or none of it.
$(BUILD)/heaptap_allocator.o: allocator/text.ld $(ALLOCATOR_OBJECTS)
	$(say) LINK $@
	$(Q)$(LD) -r --force-group-allocation -o $@ -T $^

# -nostdlib: one file for every libc (allocator/platform/libc.h). -z now: no lazy binding inside malloc. -z nodelete: blocks
# outlive any dlclose.
LINK_SHARED = $(CC) -shared -nostdlib -o $@ $^ -Wl,-soname,$(@F) -Wl,-z,now -Wl,-z,relro -Wl,-z,nodelete -Wl,--build-id -lgcc

# -z initfirst: its constructor comes before all others. What other libraries do when they start (handlers of fork, all
# pthread keys) finds the allocator started.
$(BUILD)/libheaptap.so: $(BUILD)/heaptap_allocator.o $(SHARED_ONLY) $(LIBRARY_ONLY)
	$(say) LINK $@
	$(Q)$(LINK_SHARED) -Wl,-z,initfirst

$(BUILD)/heaptap_archive.o: $(BUILD)/heaptap_allocator.o $(ARCHIVE_ONLY)
	$(say) LINK $@
	$(Q)$(LD) -r -o $@ $^

$(BUILD)/libheaptap.a: $(BUILD)/heaptap_archive.o
	$(say) AR $@
	$(Q)rm -f $@ && ar crs $@ $^

# The guest has its own api and its own memory of chunks, and everything else of the allocator except what emulates
# jemalloc. Its chunks lie in one range, so core/ is another one (core/slab.h).
GUEST_OBJECTS := $(patsubst $(BUILD)/%,$(BUILD)/guest/%,$(GUEST_SOURCES:%.cc=$(BUILD)/%.o) \
  $(filter-out $(BUILD)/allocator/core/chunk_memory.o $(addprefix $(BUILD)/allocator/,api/% jemalloc/%),$(ALLOCATOR_OBJECTS)))

$(BUILD)/guest/allocator/%.o: ALLOCATOR_FLAGS += -DHEAPTAP_GUEST
$(BUILD)/guest/allocator/%.o: allocator/%.cc
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ALLOCATOR_FLAGS) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/guest/allocator/%.o: allocator/%.S
	$(say) AS $@
	@mkdir -p $(@D)
	$(Q)$(CC) -g $(DEPENDENCIES) -c $< -o $@

$(BUILD)/heaptap_guest.o: allocator/text.ld $(GUEST_OBJECTS)
	$(say) LINK $@
	$(Q)$(LD) -r --force-group-allocation -o $@ -T $^

# -z initfirst: its constructor hides names before other constructors look for them.
$(BUILD)/libheaptap-guest.so: $(BUILD)/heaptap_guest.o $(SHARED_ONLY) | allocator/guest/exports.map
	$(say) LINK $@
	$(Q)$(LINK_SHARED) -Wl,-z,initfirst -Wl,--version-script=allocator/guest/exports.map

# Two objects for programs to link, each with only its own symbols, since libheaptap.a may be linked too. The second needs
# the first.
SAMPLE_OBJECTS := $(addprefix $(BUILD)/allocator/sample/,control.o functions.o probes.o remembered.o sample.o threads.o)

$(BUILD)/allocator/sample/functions.o: allocator/sample/functions.c
	$(say) CC $@
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c99 -O2 -g $(WARNINGS) -Iallocator/include -fPIC -fvisibility=hidden $(DEPENDENCIES) -c $< -o $@

$(BUILD)/heaptap_sample.o: allocator/text.ld $(SAMPLE_OBJECTS)
$(BUILD)/heaptap_wrap.o: allocator/text.ld $(BUILD)/allocator/sample/wrap.o

$(BUILD)/heaptap_sample.o $(BUILD)/heaptap_wrap.o: allocator/sample/exports.txt
	$(say) LINK $@
	$(Q)$(LD) -r --force-group-allocation -o $@ -T $(filter-out %.txt,$^)
	$(Q)objcopy --keep-global-symbols=allocator/sample/exports.txt $@

$(BUILD)/libheaptap-sample.a: $(BUILD)/heaptap_sample.o
$(BUILD)/libheaptap-guest.a: $(BUILD)/heaptap_wrap.o $(BUILD)/heaptap_sample.o

$(BUILD)/libheaptap-sample.a $(BUILD)/libheaptap-guest.a:
	$(say) AR $@
	$(Q)rm -f $@ && ar crs $@ $^

# --- bpf: one object and its skeleton, the same on every kernel (bpf/kernel.h) ----------------------------------------

# Unused parameters: the kernel prescribes the signatures of callbacks.
BPF_FLAGS := -target bpf -mcpu=v3 -O2 -g $(WARNINGS) -Wno-unused-parameter -D__TARGET_ARCH_x86 -I. \
  -idirafter /usr/include/x86_64-linux-gnu

$(BUILD)/bpf/heaptap.bpf.o: bpf/heaptap.bpf.c
	$(say) BPF $@
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_FLAGS) $(DEPENDENCIES) -c $< -o $(@:.o=.tmp.o)
	$(Q)$(BPFTOOL) gen object $@ $(@:.o=.tmp.o)
	$(Q)rm -f $(@:.o=.tmp.o)

$(BUILD)/bpf/heaptap.skel.h: $(BUILD)/bpf/heaptap.bpf.o
	$(say) SKEL $@
	$(Q)$(BPFTOOL) gen skeleton $< name heaptap_bpf > $@

# --- userspace: the collector -----------------------------------------------------------------------------------------

COLLECTOR_SOURCES := $(filter-out userspace/cli/main.cc,$(wildcard userspace/*/*.cc userspace/*/*/*.cc))
# Builds from scratch compile each folder as one file: a header is read once for a group, and a template is instantiated
# once, which takes less than half the time. A change of one file then costs its whole group, so builds for people who change
# something compile each file alone. A build folder stays as it was built first. Two files of a group must not define the
# same name in an anonymous namespace.
GROUPED ?= $(if $(wildcard $(BUILD)/userspace/base/*.o),,$(wildcard $(BUILD)/userspace/group_base.o))
GROUPS := $(patsubst userspace/%/,%,$(wildcard userspace/*/))
GROUP_OBJECTS := $(GROUPS:%=group_%.o)
# For the recipes of builds from scratch.
FROM_SCRATCH = GROUPED=$(if $(wildcard $(BUILD)/userspace/base/*.o),,1)
# $(1): group; $(2): all files
group_of = $(filter userspace/$(1)/%,$(2))
COLLECTOR_OBJECTS := $(if $(GROUPED),$(GROUP_OBJECTS:%=$(BUILD)/userspace/%),$(COLLECTOR_SOURCES:%.cc=$(BUILD)/%.o))
# Headers of libraries are system headers: warnings are for our own code.
ABSL_PACKAGES := absl_synchronization absl_status absl_statusor absl_strings absl_flat_hash_map absl_flat_hash_set absl_time absl_cleanup absl_span absl_str_format
PACKAGES := $(ABSL_PACKAGES) libbpf libdw liblzma re2 sqlite3 zlib
# Evaluated once, at the first use: `make deps` may have to install pkg-config before.
PACKAGE_FLAGS = $(eval PACKAGE_FLAGS := $(patsubst -I%,-isystem%,$(filter-out -pthread,$(shell pkg-config --cflags $(PACKAGES) 2>/dev/null))))$(PACKAGE_FLAGS)
# libiberty has no .pc file, and that of ncurses defines macros for every file.
PACKAGE_LIBRARIES = $(eval PACKAGE_LIBRARIES := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -liberty -lncursesw -ltinfo)$(PACKAGE_LIBRARIES)
# heaptap has the static libraries of all but the C library, where the system has them: its workers are processes, each of
# which would load 45 libraries (8 ms instead of 1.6), and heaptap then needs no other library where it runs.
C_LIBRARIES := -lm -lpthread -pthread
static_library = $(if $(filter /%,$(shell $(CXX) -print-file-name=lib$(1:-l%=%).a)),-l:lib$(1:-l%=%).a,$(1))
COLLECTOR_LIBRARIES = -Wl,--start-group $(foreach library,$(filter-out $(C_LIBRARIES),$(PACKAGE_LIBRARIES) \
  $(shell pkg-config --static --libs $(filter-out absl_%,$(PACKAGES)))),$(call static_library,$(library))) -Wl,--end-group \
  -static-libstdc++ -static-libgcc $(C_LIBRARIES)
VERSION := 0.1.0
# The folder of the page's script and style, which userspace/web/assets.cc embeds.
WEB := $(BUILD)/web
# ZLIB_CONST: zlib declares its input const.
USERSPACE_FLAGS := -DHEAPTAP_VERSION=\"$(VERSION)\" -DHEAPTAP_WEB_FOLDER=\"$(WEB)\" -DZLIB_CONST -std=c++20 -O2 $(DEBUG_INFO) $(WARNINGS) -I. -Iallocator/include -isystem $(BUILD)

# Not for the unit tests, which are built with sanitizers too.
COLLECTOR_FLAGS := $(HARDENING) -fstack-protector-strong -D_GLIBCXX_ASSERTIONS -fPIE

# Speed does not matter for commands, and half of their code is CLI11 and JSON, which -O2 compiles a fifth slower. The parsers
# of Boost.Beast take half the time with -O1.
QUICK_OBJECTS := $(patsubst %.cc,$(BUILD)/%.o,$(wildcard userspace/cli/*.cc userspace/cli/*/*.cc) userspace/http/wire.cc) \
  $(BUILD)/userspace/group_cli.o
QUICK_FLAGS := -O1 $(if $(IS_CLANG),,-Wno-maybe-uninitialized)

# The headers that most files include are compiled once, for each -O. GCC finds the compiled header next to the included
# name. A compiler that does not accept it reads the copy of the header.
PRECOMPILED := $(BUILD)/userspace/precompiled.h
QUICK_PRECOMPILED := $(BUILD)/userspace/quick/precompiled.h
$(QUICK_PRECOMPILED).gch $(QUICK_OBJECTS): private USERSPACE_FLAGS += $(QUICK_FLAGS)
$(QUICK_OBJECTS): private PRECOMPILED := $(QUICK_PRECOMPILED)
$(QUICK_OBJECTS): $(QUICK_PRECOMPILED).gch

$(PRECOMPILED).gch $(QUICK_PRECOMPILED).gch: userspace/precompiled.h
	$(say) PCH $@
	@mkdir -p $(@D)
	@cp $< $(@:.gch=)
	$(Q)$(CXX) $(USERSPACE_FLAGS) $(COLLECTOR_FLAGS) $(PACKAGE_FLAGS) $(DEPENDENCIES) -x c++-header $< -o $@

# Rewritten only if a file was added or removed.
.PHONY: always
$(BUILD)/groups/group_%.cc: always
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(call group_of,$*,$(COLLECTOR_SOURCES)) >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
.PRECIOUS: $(BUILD)/groups/group_%.cc

# -Wno-restrict: in groups GCC 12 inlines more, and then takes insertions into a std::string for overlapping copies (GCC
# bug 105651).
$(BUILD)/userspace/group_%.o: $(BUILD)/groups/group_%.cc $(PRECOMPILED).gch | $(BUILD)/bpf/heaptap.skel.h
	$(say) CXX "$@ ($(words $(call group_of,$*,$(COLLECTOR_SOURCES))) files)"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(USERSPACE_FLAGS) $(if $(IS_CLANG),,-Wno-restrict) $(COLLECTOR_FLAGS) $(PACKAGE_FLAGS) -include $(PRECOMPILED) $(DEPENDENCIES) -c $< -o $@

$(BUILD)/userspace/%.o: userspace/%.cc $(PRECOMPILED).gch | $(BUILD)/bpf/heaptap.skel.h
	$(say) CXX $@
	@mkdir -p $(@D)
	$(Q)$(CXX) $(USERSPACE_FLAGS) $(COLLECTOR_FLAGS) $(PACKAGE_FLAGS) -include $(PRECOMPILED) $(DEPENDENCIES) -c $< -o $@

# The page (userspace/web/README.md): one script and one style, and their hashes for the policy of the single file.
$(WEB)/page.js: $(wildcard userspace/web/*.ts)
	$(say) WEB $@
	@mkdir -p $(@D)
	$(Q)esbuild --log-level=warning --bundle --minify --target=es2020 --charset=utf8 userspace/web/main.ts --outfile=$@
$(WEB)/page.css: userspace/web/style.css
	$(say) WEB $@
	@mkdir -p $(@D)
	$(Q)esbuild --log-level=warning --minify $< --outfile=$@
# As Content-Security-Policy writes it: SHA-256 in base64.
$(WEB)/%.sha256: $(WEB)/%
	$(say) HASH $@
	$(Q)sha256sum <$< | cut -c 1-64 | tr a-f A-F | basenc --base16 --decode | base64 | tr -d '\n' >$@
WEB_ASSETS := $(addprefix $(WEB)/,page.js page.css page.js.sha256 page.css.sha256)
# Those of sanitized builds, too (tests/sanitized.mk; tests/fuzz/rules.mk for build/search).
EMBEDDING := $(addprefix $(BUILD)/,userspace/web/assets.o userspace/group_web.o asan/group_web.o tsan/group_web.o search/asan/group_web.o)
$(EMBEDDING): $(WEB_ASSETS)
# ccache does not see what the assembler includes, and would take an object with an earlier page.
$(EMBEDDING): export CCACHE_DISABLE := 1

# The compiler treats the skeleton as a system header, so dependency files omit it.
$(patsubst %.cc,$(BUILD)/%.o,$(wildcard userspace/bpf/kernel_*.cc)) $(BUILD)/userspace/group_bpf.o: $(BUILD)/bpf/heaptap.skel.h

$(BUILD)/libcollector.a: $(COLLECTOR_OBJECTS)
	$(say) AR $@
	$(Q)rm -f $@ && ar crs $@ $^

$(BUILD)/heaptap: $(BUILD)/userspace/cli/main.o $(BUILD)/libcollector.a
	$(say) LINK $@
	$(Q)$(CXX) -pie -Wl,-z,relro,-z,now $(LDFLAGS) -o $@ $^ $(COLLECTOR_LIBRARIES)

# --- man pages --------------------------------------------------------------------------------------------------------

MAN_PAGES := $(patsubst scripts/man/%.scd,$(BUILD)/man/%,$(wildcard scripts/man/*.[0-9].scd))

.PHONY: $(BUILD)/man
$(BUILD)/man: $(MAN_PAGES)

# Three pages share the options of a recording.
$(BUILD)/man/%: scripts/man/%.scd scripts/man/recording_options.scd
	$(say) MAN $@
	@mkdir -p $(@D)
	$(Q)sed -e '/^@RECORDING_OPTIONS@$$/ { r scripts/man/recording_options.scd' -e 'd }' $< | scdoc > $@

# --- tests ------------------------------------------------------------------------------------------------------------

include tests/rules.mk

# --- targets for people -----------------------------------------------------------------------------------------------

# Purposes of scripts/bootstrap: build demo test programs lint kernels; empty: all of them.
DEPS ?=

.PHONY: deps
deps: ## install the missing Debian packages (root); DEPS=PURPOSE...
	$(Q)scripts/bootstrap $(DEPS)

.PHONY: demo
demo: ## install what is missing, build, profile three programs, show the results (root)
	$(Q)scripts/bootstrap demo
	$(Q)$(MAKE) --no-print-directory $(FROM_SCRATCH) all
	$(Q)scripts/demo

.PHONY: install
install: all ## install to $(DESTDIR)$(PREFIX)
	install -D -m 755 $(BUILD)/heaptap $(DESTDIR)$(PREFIX)/bin/heaptap
	install -D -m 755 $(BUILD)/libheaptap.so $(DESTDIR)$(PREFIX)/lib/heaptap/libheaptap.so
	install -D -m 755 $(BUILD)/libheaptap-guest.so $(DESTDIR)$(PREFIX)/lib/heaptap/libheaptap-guest.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/heaptap $(BUILD)/libheaptap.a $(BUILD)/libheaptap-guest.a $(BUILD)/libheaptap-sample.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/heaptap scripts/*.bt scripts/heaptap.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/heaptap/systemd scripts/systemd/profiled.conf
	sed -e 's|@PREFIX@|$(PREFIX)|g' scripts/systemd/heaptap.service.in \
	  >$(DESTDIR)$(PREFIX)/share/heaptap/systemd/heaptap.service
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/heaptap scripts/stackcount scripts/live_objects
	for page in $(notdir $(MAN_PAGES)); do \
	  install -d $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}; \
	  sed -e 's|/usr/local/|$(PREFIX)/|g' $(BUILD)/man/$$page >$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$$page; \
	done
	install -d $(DESTDIR)$(PREFIX)/include/heaptap/jemalloc $(DESTDIR)$(PREFIX)/lib/pkgconfig
	install -m 644 allocator/include/heaptap/*.h $(DESTDIR)$(PREFIX)/include/heaptap
	install -m 644 allocator/include/jemalloc/*.h $(DESTDIR)$(PREFIX)/include/heaptap/jemalloc
	for package in heaptap heaptap-guest heaptap-sample; do \
	  sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' allocator/$$package.pc.in \
	    >$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$package.pc; \
	done

.PHONY: clean
clean: ## remove build/
	rm -rf $(BUILD)

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-25s %s\n", $$1, $$2 }' Makefile tests/*.mk tests/*/rules.mk tests/*/*/rules.mk

-include $(shell find $(BUILD) -path $(BUILD)/vm -prune -o -type f -name '*.d' -print 2>/dev/null)
