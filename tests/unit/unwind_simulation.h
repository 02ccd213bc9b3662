// SPDX-License-Identifier: Apache-2.0
//
// A simulated process for the walk in the harness: a stack that tests fill word by word, and functions with one rule
// each. Two files are mapped, and code without a file.
#ifndef HEAPTAP_TESTS_UNIT_UNWIND_SIMULATION_H_
#define HEAPTAP_TESTS_UNIT_UNWIND_SIMULATION_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "tests/unit/bpf_harness.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::harness {

inline constexpr uint64_t kStackTop = 0x7ffd00100000;
inline constexpr uint64_t kCodeBytes = 0x10000;
// The addresses of the code: of each file, and of none.
enum Place { kProgram, kLibrary, kNoFile, kPlaces };
inline constexpr uint64_t kCodeAt[kPlaces] = {0x401000, 0x7f0000001000, 0x10000000};
// The file offsets of the code.
inline constexpr uint64_t kCodeOffset[kPlaces] = {0x1000, 0x5000, 0};
inline constexpr heaptap_file_key kKeys[kNoFile] = {{100, 0x800001, 0}, {200, 0x800001, 7}};
inline constexpr uint64_t kFunctionBytes = 16;

inline uint32_t Rule(uint32_t cfa_kind, int32_t cfa_parameter = 0, uint32_t rbp_kind = HEAPTAP_RBP_SAME,
                     int32_t rbp_parameter = 0, uint32_t ra_kind = HEAPTAP_RA_AT_CFA) {
  return heaptap_unwind_rule(cfa_kind, cfa_parameter, rbp_kind, rbp_parameter, ra_kind);
}

// The rule of the function that a thread begins in, and of one that has pushed nothing.
inline const uint32_t kEnd = Rule(HEAPTAP_CFA_END);
inline const uint32_t kPlain = Rule(HEAPTAP_CFA_RSP, 1);

class Simulation {
 public:
  Kernel kernel;
  Registers registers;
  unwind::FileTable tables[kNoFile];

  explicit Simulation(uint64_t stack_pages = 8) : stack_begin_(kStackTop - stack_pages * kPage) {
    for (const Place place : {kProgram, kLibrary, kNoFile}) {
      Mapping mapping = {.start = kCodeAt[place], .end = kCodeAt[place] + kCodeBytes, .executable = true};
      if (place != kNoFile) {
        mapping.file = kKeys[place];
        mapping.file_offset = kCodeOffset[place];
        tables[place].base = kCodeOffset[place];
      }
      kernel.mappings.push_back(mapping);
    }
    kernel.mappings.push_back({.start = stack_begin_, .end = kStackTop});
    kernel.memory[stack_begin_].resize(stack_pages * kPage);
    registers.rsp() = next_ = stack_begin_;
  }

  // Where the stack's memory begins.
  uint64_t stack_begin() const { return stack_begin_; }

  // Makes a function; its address, a multiple of its size.
  uint64_t Function(uint32_t rule, Place place = kProgram) {
    const uint64_t address = kCodeAt[place] + functions_[place]++ * kFunctionBytes;
    if (place == kNoFile) return address;
    std::vector<heaptap_row>& rows = tables[place].rows;
    rows.push_back({.pc = static_cast<uint32_t>(address - kCodeAt[place]), .rule = rule});
    return address;
  }

  // Writes words to the stack, upwards from where the last ones ended, at first from RSP. The address of the first.
  uint64_t Words(std::initializer_list<uint64_t> words) {
    const uint64_t first = next_;
    for (const uint64_t word : words) {
      kernel.WriteWord(next_, word);
      next_ += 8;
    }
    return first;
  }
  // Where the next words go.
  uint64_t next() const { return next_; }
  void MoveTo(uint64_t address) { next_ = address; }

  // Loads the tables that have rows, each under a new number.
  void Load() {
    for (const Place place : {kProgram, kLibrary}) Load(place);
  }
  void Load(Place place) {
    if (tables[place].rows.empty()) return;
    Load(kKeys[place], tables[place]);
  }
  void Load(const heaptap_file_key& key, const unwind::FileTable& table) {
    const std::vector<heaptap_rows> nodes = unwind::MakeNodes(table.rows, 0, SIZE_MAX);
    for (uint32_t node = 0; node < nodes.size(); node++) {
      kernel.Put("rows", heaptap_rows_key{next_table_, node}, nodes[node]);
    }
    heaptap_file file = {};
    file.state = HEAPTAP_FILE_LOADED;
    file.table = next_table_++;
    file.levels = unwind::CountLevels(table.rows.size());
    file.base = table.base;
    kernel.Put("files", key, file);
  }
  void SetState(Place place, uint32_t state) {
    heaptap_file file = {};
    file.state = state;
    kernel.Put("files", kKeys[place], file);
  }

  // What the collector says of an address.
  std::optional<uint32_t> FindRule(uint64_t address) const {
    for (const Mapping& mapping : kernel.mappings) {
      if (address < mapping.start || address >= mapping.end) continue;
      if (!mapping.executable) return std::nullopt;
      for (const Place place : {kProgram, kLibrary}) {
        if (mapping.file.has_value() && mapping.file->inode == kKeys[place].inode) {
          return unwind::RuleAtOffset(tables[place], address - mapping.start + mapping.file_offset);
        }
      }
      return 0;
    }
    return std::nullopt;
  }

  heaptap_stack Walk(uint64_t rip) {
    registers.rip = rip;
    return kernel.Walk(registers);
  }
  std::optional<heaptap_stack> Sample(uint64_t rip, uint64_t* id = nullptr) {
    registers.rip = rip;
    return kernel.Sample(registers, id);
  }

 private:
  uint64_t stack_begin_;
  uint64_t next_;
  uint32_t next_table_ = 1;
  uint64_t functions_[kPlaces] = {};
};

// What is kept of a stack with these frames.
inline std::vector<uint64_t> KeptFrames(std::vector<uint64_t> all) {
  if (all.size() > HEAPTAP_MAX_WALK) all.resize(HEAPTAP_MAX_WALK);
  if (all.size() <= HEAPTAP_MAX_FRAMES) return all;
  constexpr ptrdiff_t kOuter = HEAPTAP_MAX_FRAMES - HEAPTAP_INNER_FRAMES - 1;
  std::vector<uint64_t> kept(all.begin(), all.begin() + HEAPTAP_INNER_FRAMES);
  kept.push_back(HEAPTAP_FRAMES_LEFT_OUT);
  kept.insert(kept.end(), all.end() - kOuter, all.end());
  return kept;
}

inline std::vector<uint64_t> Frames(const heaptap_stack& stack) {
  return std::vector<uint64_t>(stack.frames, stack.frames + stack.count);
}

}  // namespace heaptap::harness

#endif  // HEAPTAP_TESTS_UNIT_UNWIND_SIMULATION_H_
