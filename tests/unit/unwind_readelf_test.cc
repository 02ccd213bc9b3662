// SPDX-License-Identifier: Apache-2.0
//
// Compares the tables of real libraries, row by row, with readelf's (binutils) reading of their call frame information.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/elf/file.h"
#include "userspace/unwind/table.h"

namespace heaptap::unwind {
namespace {

constexpr uint32_t kSomeExpression = ~uint32_t{0};  // readelf prints only "exp"

// "rsp+16" or "c-16" to its name and offset.
std::pair<std::string, int> Split(const std::string& cell) {
  size_t sign = cell.find_first_of("+-");
  int offset = 0;
  if (sign == std::string::npos || !absl::SimpleAtoi(cell.substr(sign), &offset)) return {cell, 0};
  return {cell.substr(0, sign), offset};
}

// The rule whose CFA lies so many words above RSP.
uint32_t AboveRsp(int words) {
  if (words < HEAPTAP_FAR_WORDS) return heaptap_unwind_rule(HEAPTAP_CFA_RSP, words, 0, 0, 0);
  for (int kind = HEAPTAP_CFA_FAR; kind <= HEAPTAP_CFA_LAST_FAR; ++kind) {
    const uint32_t rule = heaptap_unwind_rule(kind, words - HEAPTAP_FAR_WORDS, 0, 0, 0);
    if (heaptap_unwind_far_words(rule) == static_cast<uint32_t>(words)) return rule;
  }
  return heaptap_unwind_rule(HEAPTAP_CFA_UNKNOWN, 0, 0, 0, 0);
}

// The rule of a row of readelf's, by the names of its columns.
uint32_t Expected(std::map<std::string, std::string> cells) {
  static const std::vector<std::string> kNames = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
                                                  "r8",  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
  if (cells["ra"] == "u") return heaptap_unwind_rule(HEAPTAP_CFA_END, 0, 0, 0, 0);
  if (cells["CFA"] == "exp") return kSomeExpression;
  const uint32_t unknown = heaptap_unwind_rule(HEAPTAP_CFA_UNKNOWN, 0, 0, 0, 0);
  if (cells["rsp"] != "" && cells["rsp"] != "u") return unknown;
  auto [name, offset] = Split(cells["CFA"]);
  uint32_t rule = 0;
  if (name == "rsp") {
    rule = AboveRsp(offset / 8);
  } else if (name == "rbp") {
    rule = heaptap_unwind_rule(HEAPTAP_CFA_RBP, offset / 8, 0, 0, 0);
  } else {
    int number = 0;
    while (kNames.at(number) != name) ++number;
    rule = heaptap_unwind_rule(HEAPTAP_CFA_REGISTER, number << 8 | offset / 8, 0, 0, 0);
  }
  if (offset % 8 != 0 || rule == unknown || (name != "rsp" && offset / 8 > INT16_MAX)) return unknown;
  const std::string rbx = cells["rbx"];
  if (rbx != "" && rbx != "u") {
    const int slot = rbx[0] == 'c' ? -Split(rbx).second / 8 - 1 : 0;
    rule |= heaptap_unwind_rbx(slot > 0 && slot < HEAPTAP_RBX_LOST ? slot : HEAPTAP_RBX_LOST);
  }
  std::string rbp = cells["rbp"];
  int number = 0;
  if (cells["ra"][0] == 'r' && absl::SimpleAtoi(cells["ra"].substr(1), &number)) {
    uint32_t kind = rbp == "" || rbp == "u" ? HEAPTAP_RBP_SAME : HEAPTAP_RBP_LOST;
    return rule | heaptap_unwind_rule(0, 0, kind, number, HEAPTAP_RA_REGISTER);
  }
  if (cells["ra"] != "c-8") return unknown;
  if (rbp == "" || rbp == "u") return rule;
  if (rbp[0] != 'c') return rule | heaptap_unwind_rule(0, 0, HEAPTAP_RBP_LOST, 0, 0);
  return rule | heaptap_unwind_rule(0, 0, HEAPTAP_RBP_AT_CFA, Split(rbp).second / 8, 0);
}

// recording::Rules by the address where they begin, and 0 where a function ends; nothing if there is no readelf.
std::map<uint64_t, uint32_t> ReadByReadelf(const std::string& path) {
  std::map<uint64_t, uint32_t> rules;
  std::map<uint64_t, uint32_t> ends;
  std::map<std::string, uint32_t> rules_of_cies;
  std::string cie;
  std::string command = absl::StrCat("readelf -W --debug-dump=frames-interp '", path, "' 2>/dev/null");
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> header;
  uint64_t start = 0;
  uint64_t end = 0;
  char* line = nullptr;
  size_t capacity = 0;
  while (pipe && getline(&line, &capacity, pipe.get()) > 0) {
    std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    if (words.size() < 3) continue;
    if (words[0] == "LOC") {
      header = words;
    } else if (words.size() > 5 && words[3] == "FDE") {
      if (sscanf(words[5].c_str(), "pc=%lx..%lx", &start, &end) != 2) continue;
      // A function without instructions has no rows of its own.
      rules[start] = rules_of_cies[words[4].substr(strlen("cie="))];
      ends[end] = 0;
    } else if (words[0].size() == 16 && words[2] != "ZERO" && (words.size() < 4 || words[3] != "CIE")) {
      std::map<std::string, std::string> cells;
      size_t column = 1;
      for (size_t i = 1; i < words.size() && column < header.size(); ++i) {
        if (words[i][0] == '(') continue;  // the name of a register
        cells[header[column++]] = words[i];
      }
      uint64_t address = std::stoull(words[0], nullptr, 16);
      // clang describes what follows a function's last instruction, too.
      if (start != 0 && address >= end) continue;
      (start == 0 ? rules_of_cies[cie] : rules[address]) = Expected(std::move(cells));
    } else if (words.size() > 3 && words[3] == "CIE") {
      cie = words[0];
      start = 0;
    }
  }
  free(line);
  rules.merge(ends);  // where no function begins
  return rules;
}

absl::StatusOr<Table> Build(int descriptor) {
  auto file = elf::File::Open(descriptor);
  if (!file.ok()) return file.status();
  return BuildTable(*file);
}

class UnwindReadelf : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = absl::StrCat("/usr/lib/x86_64-linux-gnu/", GetParam());
    file_.Reset(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_.valid()) FAIL() << path_ << " is not here; scripts/bootstrap installs what brings it";
  }

  std::string path_;
  base::FileDescriptor file_;
};

TEST_P(UnwindReadelf, AgreesRowByRow) {
  auto expected = ReadByReadelf(path_);
  if (expected.empty()) FAIL() << "no readelf: scripts/bootstrap installs binutils";
  auto table = Build(file_.get());
  ASSERT_TRUE(table.ok()) << table.status();
  uint64_t expressions = 0;
  size_t row = 0;
  uint32_t last = 0;
  for (auto [address, rule] : expected) {
    uint32_t found = RuleAt(*table, address);
    if (rule == kSomeExpression) {
      ++expressions;
      uint32_t kind = heaptap_unwind_cfa_kind(found);
      EXPECT_TRUE(kind == HEAPTAP_CFA_UNKNOWN || (kind >= HEAPTAP_CFA_PLT && kind <= HEAPTAP_CFA_SIGNAL));
      rule = found;
    }
    ASSERT_EQ(found, rule) << absl::StrCat(path_, " at ", absl::Hex(address));
    // No rows beyond readelf's.
    if (rule == last) continue;
    ASSERT_LT(row, table->rows.size());
    ASSERT_EQ(table->rows[row++].pc + table->base, address);
    last = rule;
  }
  EXPECT_EQ(row, table->rows.size());
  EXPECT_GT(row, 100u);
  EXPECT_EQ(table->statistics.broken + table->statistics.outside + table->statistics.overlapping, 0u);
}

// The same file, as if its section headers had been stripped.
TEST_P(UnwindReadelf, TheSameWithoutSections) {
  off_t size = lseek(file_.get(), 0, SEEK_END);
  std::string bytes(size, '\0');
  ASSERT_EQ(pread(file_.get(), bytes.data(), bytes.size(), 0), size);
  auto* header = reinterpret_cast<Elf64_Ehdr*>(bytes.data());
  header->e_shoff = header->e_shnum = header->e_shstrndx = 0;
  auto table = Build(file_.get());
  auto without = Build(elf::FileWith(bytes).get());
  ASSERT_TRUE(table.ok() && without.ok()) << table.status() << without.status();
  ASSERT_EQ(table->rows.size(), without->rows.size());
  for (size_t i = 0; i < table->rows.size(); ++i) {
    ASSERT_EQ(table->rows[i].pc, without->rows[i].pc);
    ASSERT_EQ(table->rows[i].rule, without->rows[i].rule);
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, UnwindReadelf,
                         ::testing::Values("libc.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2", "libcrypto.so.3",
                                           "../../bin/perl"));

}  // namespace
}  // namespace heaptap::unwind
