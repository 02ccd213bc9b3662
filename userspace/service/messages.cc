// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/messages.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace heaptap::service {

void SayPlain(absl::string_view line) {
  const std::string text = absl::StrCat(line, "\n");
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

void Say(absl::string_view line) { SayPlain(absl::StrCat("heaptap: ", line)); }

std::string Printable(absl::string_view text) {
  std::string printable(text);
  for (char& character : printable) {
    if (character < ' ' || character > '~') character = '?';
  }
  return printable;
}

}  // namespace heaptap::service
