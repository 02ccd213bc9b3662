// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/http_endpoints_symbol.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/export/frame_names.h"
#include "userspace/export/printable_text.h"
#include "userspace/service/process_command_line.h"

namespace heaptap::service {

HttpReply AnswerSymbols(HttpCall& call, const ProcessSummary& process,
                        std::string (*join)(const std::vector<std::string>& names)) {
  // Any number but 0, which means no symbols.
  if (call.request.method != "POST") return HttpAnswer{.content_type = kPlainText, .body = "num_symbols: 1\n"};
  std::vector<uint64_t> addresses;
  for (absl::string_view word : absl::StrSplit(call.request.body, absl::ByAnyChar("+ \r\n"), absl::SkipEmpty())) {
    uint64_t address = 0;
    if (!absl::SimpleHexAtoi(word, &address)) {
      return absl::InvalidArgumentError("the body must be hexadecimal addresses separated by +");
    }
    if (addresses.size() == kMaxAddresses) {
      return absl::InvalidArgumentError(absl::StrCat("too many addresses; send at most ", kMaxAddresses, " at once"));
    }
    addresses.push_back(address);
  }
  const absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
  if (!snapshot.ok()) return snapshot.status();
  const exporter::FindSourceFrames find = call.symbols.Find(*snapshot, addresses);
  exporter::FrameNames names(snapshot->profile, find);
  HttpAnswer answer = {.content_type = kPlainText};
  for (uint64_t address : addresses) {
    absl::StrAppend(&answer.body, "0x", absl::Hex(address), "\t", join(names.At(address)), "\n");
  }
  return answer;
}

HttpReply AnswerCommandLine(HttpCall& call, const ProcessSummary& process) {
  std::vector<std::string> arguments = ProcessCommandLine(process.pid);
  if (!IsStillThere(call, process)) return NoSuchProcess(process.pid);
  // Clients need a name.
  if (arguments.empty() || arguments[0].empty()) arguments = {process.command.empty() ? "?" : process.command};
  for (std::string& argument : arguments) argument = exporter::Printable(argument);
  return HttpAnswer{.body = absl::StrJoin(arguments, absl::string_view("\0", 1))};
}

}  // namespace heaptap::service
