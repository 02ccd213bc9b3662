// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/answer.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/require.h"
#include "userspace/symbolize/function_names.h"

namespace heaptap::symbolize {
namespace {

enum Kind : uint32_t {
  kText = 1,    // first: the size of the text, which follows. Texts are numbered from 1; 0 is the empty text.
  kFrames = 2,  // first: the index of the address; second: the number of frames, which follow
  kStage = 3,   // first: the stage that was finished
  kGap = 4,     // first: the gap
};

struct Record {
  uint32_t kind;
  uint32_t first;
  uint32_t second;
};

template <typename T>
absl::string_view BytesOf(const T& value) {
  return absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
bool Take(absl::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(value)) return false;
  memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

}  // namespace

std::string GapText(Gap gap) {
  HEAPTAP_REQUIRE(gap != Gap::kNone);
  return absl::StrCat("no lines and no inlined functions ",
                      gap == Gap::kSplit
                          ? "where debug information is split into .dwo or .dwp files, which are not read: "
                          : "where debug information is compressed with zstd, which this libdw cannot read: ");
}

uint32_t AnswerWriter::TextNumber(absl::string_view text) {
  text = text.substr(0, kMaxNameBytes);
  if (text.empty()) return 0;
  const uint32_t next = static_cast<uint32_t>(texts_.size()) + 1;
  auto [at, inserted] = texts_.try_emplace(text, next);
  if (inserted) {
    absl::StrAppend(&bytes_, BytesOf(Record{kText, static_cast<uint32_t>(text.size()), 0}), text);
  }
  return at->second;
}

void AnswerWriter::WriteFrames(size_t index, absl::Span<const FrameNumbers> frames) {
  absl::StrAppend(&bytes_,
                  BytesOf(Record{kFrames, static_cast<uint32_t>(index), static_cast<uint32_t>(frames.size())}));
  for (const FrameNumbers& frame : frames) absl::StrAppend(&bytes_, BytesOf(frame));
}

void AnswerWriter::WriteStageDone(Stage stage) {
  absl::StrAppend(&bytes_, BytesOf(Record{kStage, static_cast<uint32_t>(stage), 0}));
}

void AnswerWriter::WriteGap(Gap gap) { absl::StrAppend(&bytes_, BytesOf(Record{kGap, static_cast<uint32_t>(gap), 0})); }

std::string AnswerWriter::TakeBytes() { return std::exchange(bytes_, std::string()); }

AnswerEnd ReadAnswer(absl::string_view bytes, Names& names, std::vector<Frames>& frames) {
  HEAPTAP_REQUIRE(std::ranges::all_of(frames, &Frames::empty));
  std::vector<absl::string_view> texts(1);
  std::vector<absl::string_view> last(frames.size());  // the latest record of each address
  AnswerEnd end;
  for (Record record; Take(bytes, record);) {
    uint64_t size = 0;
    if (record.kind == kText) size = record.first;
    if (record.kind == kFrames) size = uint64_t{record.second} * sizeof(AnswerWriter::FrameNumbers);
    if (size > bytes.size()) break;
    const absl::string_view rest = bytes.substr(0, size);
    bytes.remove_prefix(size);
    if (record.kind == kText && size <= kMaxNameBytes) {
      texts.push_back(rest);
    } else if (record.kind == kFrames && record.first < frames.size()) {
      last[record.first] = rest;
    } else if (record.kind == kStage && record.first <= static_cast<uint32_t>(Stage::kDwarf)) {
      end.done = std::max(end.done, static_cast<Stage>(record.first));
    } else if (record.kind == kGap && record.first <= static_cast<uint32_t>(Gap::kZstd)) {
      end.gap = static_cast<Gap>(record.first);
    } else {
      break;
    }
  }

  // Only texts of the latest records become names.
  std::vector<Name> made(texts.size());
  auto name = [&](uint32_t number) {
    if (number >= texts.size()) return Name();
    if (made[number].empty()) made[number] = names.Get(texts[number]);
    return made[number];
  };
  for (size_t index = 0; index < frames.size(); index++) {
    frames[index].reserve(last[index].size() / sizeof(AnswerWriter::FrameNumbers));
    for (AnswerWriter::FrameNumbers numbers; Take(last[index], numbers);) {
      frames[index].push_back({.function = name(numbers.function),
                               .file = name(numbers.file),
                               .line = numbers.line,
                               .is_inline = numbers.is_inline != 0});
    }
  }
  return end;
}

}  // namespace heaptap::symbolize
