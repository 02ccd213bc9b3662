// SPDX-License-Identifier: Apache-2.0
//
// For tests: programs made by the compiler, and the output of binutils for them.
#ifndef HEAPTAP_TESTS_UNIT_SYMBOLIZE_PROGRAM_H_
#define HEAPTAP_TESTS_UNIT_SYMBOLIZE_PROGRAM_H_

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/unit/support/folder.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/crews/symbolizer.h"
#include "userspace/elf/file.h"

namespace heaptap::symbolize {

// Prints a frame in GoogleTest's messages.
inline void PrintTo(const Frame& frame, std::ostream* out) {
  *out << (frame.is_inline ? "inline " : "") << frame.function.view() << " " << frame.file.view() << ":" << frame.line;
}

// Runs a shell command; fails the test if the command fails.
inline void Shell(const std::string& command) { ASSERT_EQ(system(command.c_str()), 0) << command; }

// The output of a shell command.
inline std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return text;
  char part[1 << 16];
  for (size_t count; (count = fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, count);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

struct Symbol {
  uint64_t start = 0;
  uint64_t size = 0;
  std::string name = {};  // demangled
};

// The functions that have a size; `flags` for nm(1).
inline std::vector<Symbol> FunctionsOf(const std::string& path, const std::string& flags = "") {
  std::vector<Symbol> symbols;
  const std::string command =
      absl::StrCat("nm -C -S --defined-only --without-symbol-versions ", flags, " '", path, "'");
  for (absl::string_view line : absl::StrSplit(OutputOf(command), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words.size() != 4 || words[2].size() != 1 || std::string("tTwWi").find(words[2]) == std::string::npos) continue;
    symbols.push_back({.start = strtoull(words[0].c_str(), nullptr, 16),
                       .size = strtoull(words[1].c_str(), nullptr, 16),
                       .name = words[3]});
  }
  return symbols;
}

// Addresses within functions: the first and last bytes, and every `step`th.
inline std::vector<uint64_t> AddressesIn(const std::vector<Symbol>& functions, uint64_t step) {
  std::vector<uint64_t> addresses;
  for (const Symbol& function : functions) {
    for (uint64_t at = 0; at < function.size; at += step) addresses.push_back(function.start + at);
    if (function.size != 0) addresses.push_back(function.start + function.size - 1);
  }
  return addresses;
}

// The answers of `symbolizer` for link-time addresses.
inline std::vector<Frames> Symbolize(worker::Symbolizer& symbolizer, const std::string& path,
                                     const std::vector<uint64_t>& addresses) {
  base::FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
  std::vector<uint64_t> offsets;
  for (uint64_t address : addresses) {
    offsets.push_back(file.ok() ? file->AddressToOffset(address, PF_X).value_or(~uint64_t{0}) : address);
  }
  elf::Mapping mapping;
  mapping.path = path;
  return symbolizer.Symbolize(getuid(), {.fd = fd.get(), .mapping = mapping}, offsets);
}

// The same from addr2line(1), or a tool with the same output; "" and 0 for what it does not know.
inline std::vector<Frames> AskAddr2line(const TemporaryFolder& folder, const std::string& path,
                                        const std::vector<uint64_t>& addresses,
                                        const std::string& tool = "addr2line -C") {
  std::string question;
  for (uint64_t address : addresses) absl::StrAppend(&question, absl::Hex(address), "\n");
  WriteFile(folder / "addresses", question);
  const std::string text = OutputOf(absl::StrCat(tool, " -a -f -i -e '", path, "' <'", folder / "addresses", "'"));
  std::vector<Frames> all;
  std::string function;
  bool is_function = true;
  for (absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    if (is_function && line.substr(0, 2) == "0x") {
      if (!all.empty()) all.back().back().is_inline = false;
      all.emplace_back();
    } else if (is_function) {
      function = line == "??" ? "" : std::string(line);
      is_function = false;
    } else {
      const std::pair<absl::string_view, absl::string_view> place = {line.substr(0, line.rfind(':')),
                                                                     line.substr(line.rfind(':') + 1)};
      uint32_t number = 0;
      // "12 (discriminator 3)"; "?" is 0.
      if (!absl::SimpleAtoi(place.second.substr(0, place.second.find(' ')), &number)) number = 0;
      all.back().push_back({.function = Name(function),
                            .file = Name(place.first == "??" ? "" : place.first),
                            .line = number,
                            .is_inline = true});
      is_function = true;
    }
  }
  if (!all.empty()) all.back().back().is_inline = false;
  return all;
}

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_TESTS_UNIT_SYMBOLIZE_PROGRAM_H_
