// SPDX-License-Identifier: Apache-2.0
//
// The answer of a reader about symbols, written piece by piece: a record of three 32-bit numbers, then the data that
// the first of them announces. A later record for an address replaces earlier ones, so the answer of a reader that dies
// is still useful.
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

// The stages of a search, from the safest to the best. Each gives the frames of all addresses.
enum class Stage : uint32_t {
  kNone = 0,
  kSymbols = 1,    // mangled names
  kDemangled = 2,  // the same names demangled
  kDwarf = 3,      // inlined functions and lines
};

// Why debug information of a file was not read.
enum class Gap : uint32_t {
  kNone = 0,
  kSplit = 1,  // it is in files of its own (.dwo, .dwp)
  kZstd = 2,   // it is compressed with zstd, which this libdw does not know
};
// What is missing, for people: the names of the files follow. REQUIRES: not kNone. Thread-safe.
std::string GapText(Gap gap);

// Writes an answer. Thread-compatible.
class AnswerWriter {
 public:
  // A frame whose texts are numbers.
  struct FrameNumbers {
    uint32_t function;
    uint32_t file;
    uint32_t line;
    uint32_t is_inline;
  };

  // The number of the text, which is written at its first use, and cut at kMaxNameBytes.
  uint32_t TextNumber(absl::string_view text);
  void WriteFrames(size_t index, absl::Span<const FrameNumbers> frames);
  void WriteStageDone(Stage stage);
  void WriteGap(Gap gap);

  // Bytes written since the last TakeBytes.
  size_t size() const { return bytes_.size(); }
  std::string TakeBytes();

 private:
  std::string bytes_;
  absl::flat_hash_map<std::string, uint32_t> texts_;
};

// Reads an answer, which may be hostile, up to the first mistake. REQUIRES: `frames` has one empty entry for each
// address of the question. Takes names from `names`. Thread-safe.
struct AnswerEnd {
  Stage done = Stage::kNone;  // the last stage that was finished
  Gap gap = Gap::kNone;
};
AnswerEnd ReadAnswer(absl::string_view bytes, Names& names, std::vector<Frames>& frames);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_ANSWER_H_
