// SPDX-License-Identifier: Apache-2.0
//
// Words of commands that heaptap prints, to be copied into a shell.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_SHELL_WORD_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_SHELL_WORD_H_

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace heaptap::cli {

// A printable word as a shell takes it: in quotes if the shell gives one of its letters a meaning, as in most URLs with
// a query.
inline std::string ShellWord(const std::string& word) {
  const auto is_plain = [](char letter) {
    return absl::ascii_isalnum(letter) || absl::StrContains("@%+=:,./-_", letter);
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_SHELL_WORD_H_
