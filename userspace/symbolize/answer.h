// SPDX-License-Identifier: Apache-2.0
//
// How a confined process tells what it found: three numbers of 32 bits, then what their first one says. What is said
// later about an address replaces what was said before, so what a process said before it died is of use.
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_ANSWER_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/symbolize/frame.h"

namespace heaptap::symbolize {

// What is tried, from the safest to the best. Each says all that is known of all addresses.
enum class Stage : uint32_t {
  kNone = 0,
  kSymbols = 1,    // mangled names
  kDemangled = 2,  // the same names demangled
  kDwarf = 3,      // inlined functions and lines
};

// Makes an answer. Thread-compatible.
class AnswerWriter {
 public:
  // A frame's texts by number.
  struct FrameNumbers {
    uint32_t function;
    uint32_t file;
    uint32_t line;
    uint32_t is_inline;
  };

  // The text's number; it is written once, and cut if it is too long (kMaxNameBytes).
  uint32_t TextNumber(absl::string_view text);
  void WriteFrames(size_t index, absl::Span<const FrameNumbers> frames);
  void WriteStageDone(Stage stage);

  // How much was written since the last TakeBytes.
  size_t size() const { return bytes_.size(); }
  std::string TakeBytes();

 private:
  std::string bytes_;
  absl::flat_hash_map<std::string, uint32_t> texts_;
};

// Reads an answer that may be anything, up to the first mistake. `frames` has the size of the question, each of them
// empty; names are taken from `names`. Returns the last stage that was finished. Thread-safe.
Stage ReadAnswer(absl::string_view bytes, Names& names, std::vector<Frames>& frames);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_ANSWER_H_
