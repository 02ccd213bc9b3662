// SPDX-License-Identifier: Apache-2.0
//
// The ELF file that a fuzzer's input stands for.
#ifndef HEAPTAP_TESTS_FUZZ_FUZZED_ELF_H_
#define HEAPTAP_TESTS_FUZZ_FUZZED_ELF_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

// An input that begins as ELF files do is the file. Any other is a list of changes, of three bytes each, to the file
// that `make_valid` makes: so the fuzzer reaches what lies behind the headers. A program
// always passes the same `make_valid`.
inline std::string FuzzedElf(std::string (*make_valid)(), const uint8_t* data, size_t size) {
  if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) return std::string(data, data + size);
  static const std::string valid = make_valid();
  std::string file = valid;
  for (; size >= 3; data += 3, size -= 3) file[(data[0] | data[1] << 8) % file.size()] = static_cast<char>(data[2]);
  return file;
}

#endif  // HEAPTAP_TESTS_FUZZ_FUZZED_ELF_H_
