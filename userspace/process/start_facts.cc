// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/start_facts.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/messages.h"
#include "userspace/process/proc_files.h"

namespace heaptap::process {
namespace {

// The longest environment that is read. Environments of services have some kilobytes.
constexpr size_t kMaxEnvironmentBytes = 1 << 20;
// The longest command line that is read: enough for people.
constexpr size_t kMaxCommandLineBytes = 16 << 10;
// The kernel writes about twenty entries.
constexpr size_t kMaxAuxiliaryBytes = 4096;
// The longest command line that is shown.
constexpr size_t kLongestShown = 400;

bool IsSecure(absl::string_view auxiliary) {
  for (; auxiliary.size() >= sizeof(Elf64_auxv_t); auxiliary.remove_prefix(sizeof(Elf64_auxv_t))) {
    Elf64_auxv_t entry;
    std::copy_n(auxiliary.data(), sizeof(entry), reinterpret_cast<char*>(&entry));
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
  }
  return false;
}

bool HasOtherMounts(pid_t pid) {
  struct stat own, other;
  const auto is_known = [&other](pid_t thread) { return stat(ThreadFile(thread, "ns/mnt").c_str(), &other) == 0; };
  return stat("/proc/self/ns/mnt", &own) == 0 && AskThreads(pid, is_known) && own.st_ino != other.st_ino;
}

bool IsPlain(char character) {
  return absl::ascii_isalnum(static_cast<unsigned char>(character)) ||
         absl::string_view("_@%+=:,./-").find(character) != absl::string_view::npos;
}

}  // namespace

absl::StatusOr<StartFacts> ReadStartFacts(pid_t pid) {
  const absl::StatusOr<std::string> environment = ReadProcFile(pid, "environ", kMaxEnvironmentBytes);
  if (!environment.ok()) return environment.status();
  const absl::StatusOr<std::string> auxiliary = ReadProcFile(pid, "auxv", kMaxAuxiliaryBytes);
  if (!auxiliary.ok()) return auxiliary.status();
  const absl::StatusOr<std::string> command = ReadProcFile(pid, "cmdline", kMaxCommandLineBytes);
  if (!command.ok()) return command.status();
  StartFacts facts = {.is_secure = IsSecure(*auxiliary), .has_other_mounts = HasOtherMounts(pid)};
  for (absl::string_view variable : absl::StrSplit(*environment, '\0')) {
    if (absl::ConsumePrefix(&variable, "LD_PRELOAD=")) facts.preload = std::string(variable);
  }
  facts.arguments = absl::StrSplit(absl::StripSuffix(*command, absl::string_view("", 1)), '\0');
  return facts;
}

// Fields end with NUL, which none of them can contain.
std::string Encode(const StartFacts& facts) {
  std::string text = absl::StrCat(facts.is_secure ? "1" : "0", facts.has_other_mounts ? "1" : "0", facts.preload,
                                  absl::string_view("", 1));
  for (const std::string& argument : facts.arguments) absl::StrAppend(&text, argument, absl::string_view("", 1));
  return text;
}

absl::StatusOr<StartFacts> DecodeStartFacts(absl::string_view text) {
  std::vector<std::string> fields = absl::StrSplit(text, '\0');
  const auto is_flag = [](char character) { return character == '0' || character == '1'; };
  if (fields.size() < 2 || fields[0].size() < 2 || !is_flag(fields[0][0]) || !is_flag(fields[0][1])) {
    return absl::InvalidArgumentError("not the facts about the start of a process");
  }
  StartFacts facts = {
      .is_secure = fields[0][0] == '1', .has_other_mounts = fields[0][1] == '1', .preload = fields[0].substr(2)};
  facts.arguments.assign(fields.begin() + 1, fields.end() - 1);
  return facts;
}

std::string ShellWords(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const std::string printable = base::AsciiOnly(word);
    const bool is_plain = !printable.empty() && std::ranges::all_of(printable, IsPlain);
    absl::StrAppend(&text, text.empty() ? "" : " ",
                    is_plain ? printable : absl::StrCat("'", absl::StrReplaceAll(printable, {{"'", "'\\''"}}), "'"));
    if (text.size() > kLongestShown) return absl::StrCat(text.substr(0, kLongestShown), " ...");
  }
  return text;
}

}  // namespace heaptap::process
