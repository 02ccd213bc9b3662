// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/messages.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"

namespace heaptap::base {
namespace {

// A message can quote a file's notes, which may be megabytes.
constexpr size_t kLongestLine = 4096;

}  // namespace

void SayPlain(absl::string_view line) {
  // The last defence: an unprintable name could forge lines or control the terminal.
  const std::string text = absl::StrCat(Printable(line), "\n");
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

void Say(absl::string_view line) {
  const bool is_cut = line.size() > kLongestLine;
  SayPlain(absl::StrCat("heaptap: ", line.substr(0, kLongestLine), is_cut ? " ..." : ""));
}

std::string AsciiOnly(absl::string_view text) {
  std::string printable(text);
  for (char& character : printable) {
    if (character < ' ' || character > '~') character = '?';
  }
  return printable;
}

}  // namespace heaptap::base
