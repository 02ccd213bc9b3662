// SPDX-License-Identifier: Apache-2.0
//
// Walks the tree of a compilation unit once for all its addresses; dwarf_getscopes would walk it for each.
#include "userspace/symbolize/dwarf_frames.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <libelf.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/require.h"
#include "userspace/symbolize/scope_names.h"

namespace heaptap::symbolize {
namespace {

struct EndElf {
  void operator()(Elf* elf) const { elf_end(elf); }
};
struct EndDwarf {
  void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
};

// A file and its debug information.
struct DebugFile {
  explicit DebugFile(int fd) {
    if (fd < 0) return;
    elf.reset(elf_begin(fd, ELF_C_READ_MMAP, nullptr));
    if (elf != nullptr) dwarf.reset(dwarf_begin_elf(elf.get(), DWARF_C_READ, nullptr));
  }
  std::unique_ptr<Elf, EndElf> elf;
  std::unique_ptr<Dwarf, EndDwarf> dwarf;
};

// Whether `shared` has the build-id that `file` names.
bool IsSharedBy(const DebugFile& file, const DebugFile& shared) {
  const char* name;
  const void* wanted;
  const void* build_id;
  const ssize_t wanted_size = dwelf_dwarf_gnu_debugaltlink(file.dwarf.get(), &name, &wanted);
  const ssize_t size = dwelf_elf_gnu_build_id(shared.elf.get(), &build_id);
  return size > 0 && size == wanted_size && memcmp(build_id, wanted, static_cast<size_t>(size)) == 0;
}

// An address and the functions around it, the outermost first.
struct Place {
  uint64_t address = 0;
  size_t index = 0;
  std::vector<Dwarf_Die> functions = {};
};
using Places = std::vector<Place*>;

bool ByAddress(const Place* place, uint64_t address) { return place->address < address; }

// The places in the code of the entry. REQUIRES: `places` ascends; so does the result.
Places Within(Dwarf_Die* entry, const Places& places) {
  HEAPTAP_REQUIRE(std::ranges::is_sorted(places, {}, &Place::address));
  Places held;
  if (places.empty()) return held;
  Dwarf_Addr base;
  Dwarf_Addr start;
  Dwarf_Addr end;
  for (ptrdiff_t offset = 0; (offset = dwarf_ranges(entry, offset, &base, &start, &end)) > 0;) {
    auto at = std::lower_bound(places.begin(), places.end(), start, ByAddress);
    for (; at != places.end() && (*at)->address < end; ++at) held.push_back(*at);
  }
  if (!std::is_sorted(held.begin(), held.end(), [](auto* a, auto* b) { return a->address < b->address; })) {
    std::sort(held.begin(), held.end(), [](auto* a, auto* b) { return a->address < b->address; });
  }
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held;
}

// Calls `visit` for each entry directly below `parent`.
template <typename Visit>
void ForEachChild(Dwarf_Die* parent, Visit visit) {
  Dwarf_Die child;
  if (dwarf_child(parent, &child) != 0) return;
  do {
    visit(&child);
  } while (dwarf_siblingof(&child, &child) == 0);
}

// Adds the inlined functions below `scope` to `places`, which lie in its code.
void AddInlined(Dwarf_Die* scope, const Places& places, int depth) {
  if (depth > kMaxScopes) return;
  ForEachChild(scope, [&](Dwarf_Die* child) {
    const int tag = dwarf_tag(child);
    const bool is_inlined = tag == DW_TAG_inlined_subroutine;
    if (!is_inlined && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block && tag != DW_TAG_catch_block) return;
    Places held = Within(child, places);
    if (held.empty()) return;
    for (Place* place : held) {
      if (is_inlined && place->functions.size() <= kMaxInlined) place->functions.push_back(*child);
    }
    AddInlined(child, held, depth + 1);
  });
}

// Finds the functions below `scope` that contain some of `places`. `deep`: also functions within functions, which few
// languages have, and which need a walk through the whole unit.
void FindFunctions(Dwarf_Die* scope, const Places& places, bool deep, int depth) {
  if (depth > kMaxScopes) return;
  ForEachChild(scope, [&](Dwarf_Die* child) {
    switch (dwarf_tag(child)) {
      case DW_TAG_subprogram: {
        Places held = Within(child, places);
        std::erase_if(held, [](const Place* place) { return !place->functions.empty(); });
        for (Place* place : held) place->functions.push_back(*child);
        if (!held.empty()) AddInlined(child, held, depth + 1);
        if (deep) FindFunctions(child, places, deep, depth + 1);
        break;
      }
      case DW_TAG_lexical_block:
        if (!deep) break;
        [[fallthrough]];
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
      case DW_TAG_union_type:
      case DW_TAG_enumeration_type:
        FindFunctions(child, places, deep, depth + 1);
        break;
      default:
        break;
    }
  });
}

void SetFunction(Dwarf_Die* function, ScopeNames& scopes, DwarfFrame& frame) {
  Dwarf_Attribute attribute;
  for (unsigned name : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    const char* text = dwarf_formstring(dwarf_attr_integrate(function, name, &attribute));
    if (text == nullptr) continue;
    frame.function = text;
    frame.is_linkage_name = true;
    return;
  }
  frame.function = scopes.NameOf(function);
}

uint32_t Number(Dwarf_Die* entry, unsigned name) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_formudata(dwarf_attr(entry, name, &attribute), &value) != 0) return 0;
  return static_cast<uint32_t>(value);
}

// The paths of a unit's files.
struct Files {
  explicit Files(Dwarf_Die* unit) {
    size_t count = 0;
    if (dwarf_getsrcfiles(unit, &list, &count) != 0) list = nullptr;
    Dwarf_Attribute attribute;
    folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
  }

  void SetPath(const char* path, DwarfFrame& frame) const {
    if (path == nullptr) return;
    frame.file = path[0] == '/' || folder == nullptr ? path : absl::StrCat(folder, "/", path);
  }

  Dwarf_Files* list = nullptr;
  const char* folder;  // where the compiler ran
};

// Whether a piece of the entry's code begins at `address`.
bool BeginsAt(Dwarf_Die* entry, Dwarf_Addr address) {
  Dwarf_Addr base;
  Dwarf_Addr start;
  Dwarf_Addr end;
  for (ptrdiff_t offset = 0; (offset = dwarf_ranges(entry, offset, &base, &start, &end)) > 0;) {
    if (start == address) return true;
  }
  return false;
}

// A line of the source.
struct SourceLine {
  explicit SourceLine(Dwarf_Line* row) : file(dwarf_linesrc(row, nullptr, nullptr)) { dwarf_lineno(row, &number); }
  explicit SourceLine(Dwarf_Die* function) : file(dwarf_decl_file(function)) { dwarf_decl_line(function, &number); }

  bool IsInFileOf(const SourceLine& other) const {
    return file != nullptr && other.file != nullptr && strcmp(file, other.file) == 0;
  }
  bool operator==(const SourceLine& other) const { return number == other.number && IsInFileOf(other); }

  const char* file;
  int number = 0;
};

// Chooses the row of the function among `rows`, all rows at its address in the order of the line program. A sequence of
// rows may end with empty rows at the address where the sequence of the next function begins, and libdw mixes the two.
// `before`: the row before them; null: none.
//
// The format does not tell them apart. If the first row has the function's line, its sequence comes first, and the
// empty rows at the end of the other sequence mostly repeat the line of `before`. Then the file of the innermost
// function decides.
Dwarf_Line* ChooseRow(std::vector<Dwarf_Line*> rows, Dwarf_Line* before, Place& place) {
  if (rows.empty()) return nullptr;
  if (before != nullptr && SourceLine(rows.front()) == SourceLine(&place.functions.front())) {
    while (rows.size() > 1 && SourceLine(rows.back()) == SourceLine(before)) rows.pop_back();
  }
  const SourceLine innermost(&place.functions.back());
  const auto in_file =
      std::find_if(rows.rbegin(), rows.rend(), [&](Dwarf_Line* row) { return SourceLine(row).IsInFileOf(innermost); });
  return in_file != rows.rend() ? *in_file : rows.back();
}

// The row of the unit's line table for the address of the place; null: none. Unlike dwarf_getsrc_die, it counts rows at
// the end of a sequence only if a function begins there (ChooseRow).
Dwarf_Line* FindLine(Dwarf_Die* unit, Place& place) {
  Dwarf_Lines* lines = nullptr;
  size_t count = 0;
  if (dwarf_getsrclines(unit, &lines, &count) != 0) return nullptr;
  auto address_of = [&](size_t row) {
    Dwarf_Addr address = 0;
    dwarf_lineaddr(dwarf_onesrcline(lines, row), &address);
    return address;
  };
  size_t beyond = 0;  // the first row beyond the address
  for (size_t end = count; beyond < end;) {
    const size_t middle = beyond + (end - beyond) / 2;
    if (address_of(middle) <= place.address) {
      beyond = middle + 1;
    } else {
      end = middle;
    }
  }
  if (beyond == 0) return nullptr;
  const Dwarf_Addr address = address_of(beyond - 1);
  std::vector<Dwarf_Line*> rows;
  bool ends = false;
  size_t first = beyond;  // at the address
  for (; first > 0 && address_of(first - 1) == address; first--) {
    Dwarf_Line* row = dwarf_onesrcline(lines, first - 1);
    bool is_end = false;
    dwarf_lineendsequence(row, &is_end);
    ends |= is_end;
    if (!is_end) rows.push_back(row);
  }
  if (!ends) return rows.front();
  if (place.functions.empty() || !BeginsAt(&place.functions.front(), address)) return nullptr;
  std::reverse(rows.begin(), rows.end());
  return ChooseRow(std::move(rows), first > 0 ? dwarf_onesrcline(lines, first - 1) : nullptr, place);
}

std::vector<DwarfFrame> Describe(Dwarf_Die* unit, const Files& files, ScopeNames& scopes, Place& place) {
  std::vector<DwarfFrame> frames;
  DwarfFrame frame;
  if (Dwarf_Line* line = FindLine(unit, place); line != nullptr) {
    files.SetPath(dwarf_linesrc(line, nullptr, nullptr), frame);
    int number = 0;
    if (dwarf_lineno(line, &number) == 0 && number > 0) frame.line = static_cast<uint32_t>(number);
  }
  // The line at which an inlined function is called is the line of its caller.
  for (size_t left = place.functions.size(); left > 0; left--) {
    Dwarf_Die* function = &place.functions[left - 1];
    SetFunction(function, scopes, frame);
    frames.push_back(std::move(frame));
    frame = DwarfFrame();
    if (left == 1) break;
    if (files.list != nullptr) {
      files.SetPath(dwarf_filesrc(files.list, Number(function, DW_AT_call_file), nullptr, nullptr), frame);
    }
    frame.line = Number(function, DW_AT_call_line);
  }
  if (place.functions.empty() && (frame.line != 0 || !frame.file.empty())) frames.push_back(std::move(frame));
  return frames;
}

}  // namespace

DwarfReading FindDwarfFrames(int fd, int shared_fd, absl::Span<const uint64_t> addresses,
                             const DwarfFramesFound& found) {
  HEAPTAP_REQUIRE(std::ranges::is_sorted(addresses));
  elf_version(EV_CURRENT);
  DebugFile shared(shared_fd);
  DebugFile file(fd);
  if (file.dwarf == nullptr) return {};
  DwarfReading reading = {.was_read = true};
  if (shared.dwarf != nullptr && IsSharedBy(file, shared)) dwarf_setalt(file.dwarf.get(), shared.dwarf.get());

  std::vector<Place> all(addresses.size());
  Places open;  // not found in a unit yet
  for (size_t index = 0; index < addresses.size(); index++) {
    all[index] = {.address = addresses[index], .index = index};
    open.push_back(&all[index]);
  }
  ScopeNames scopes;
  Dwarf_CU* unit_handle = nullptr;
  Dwarf_Die unit;
  uint8_t type;
  // The entry of a skeleton's split unit is not asked for, because libdw would open files for it.
  while (!open.empty() &&
         dwarf_get_units(file.dwarf.get(), unit_handle, &unit_handle, nullptr, &type, &unit, nullptr) == 0) {
    if (type == DW_UT_type || type == DW_UT_split_type) continue;
    const Places places = Within(&unit, open);
    if (places.empty()) continue;
    FindFunctions(&unit, places, false, 0);
    Places rest = places;
    auto is_found = [](const Place* place) { return !place->functions.empty(); };
    std::erase_if(rest, is_found);
    if (!rest.empty()) FindFunctions(&unit, rest, true, 0);

    const Files files(&unit);
    for (Place* place : places) {
      // Some compilers describe inlined functions in the skeleton too.
      if (type == DW_UT_skeleton && place->functions.empty()) {
        reading.is_split = true;
        continue;
      }
      std::vector<DwarfFrame> frames = Describe(&unit, files, scopes, *place);
      if (frames.empty()) continue;
      found(place->index, frames);
    }
    // Units may claim each other's code by mistake; the first with a function for an address wins.
    std::erase_if(open, is_found);
  }
  return reading;
}

}  // namespace heaptap::symbolize
