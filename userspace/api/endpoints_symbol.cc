// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/endpoints_symbol.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/frame_names.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {

Reply AnswerSymbols(Call& call, const profile::NamedProcess& process,
                    std::string (*join)(const std::vector<std::string>& names)) {
  // Any number but 0, which means no symbols.
  if (call.request.method != "POST")
    return http::Response{.content_type = http::kPlainText, .body = "num_symbols: 1\n"};
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
  call.asker.NeedAllRoom();
  const absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  const profile::FindSourceFrames find = call.symbols.Find(*snapshot, addresses);
  profile::FrameNames names(snapshot->profile, find);
  http::Response answer = {.content_type = http::kPlainText};
  for (uint64_t address : addresses) {
    if (answer.body.size() > kMaxSymbolBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the names take more than ", kMaxSymbolBytes >> 20, " MiB; send fewer addresses at once"));
    }
    absl::StrAppend(&answer.body, "0x", absl::Hex(address), "\t", join(names.At(address)), "\n");
  }
  return answer;
}

Reply AnswerCommandLine(Call& call, const profile::NamedProcess& process) {
  std::vector<std::string> arguments = call.symbols.CommandLine(process);
  // Clients need a name.
  if (arguments.empty() || arguments[0].empty()) arguments = {process.command.empty() ? "?" : process.command};
  for (std::string& argument : arguments) argument = base::Printable(argument);
  return http::Response{.body = absl::StrJoin(arguments, absl::string_view("\0", 1))};
}

}  // namespace heaptap::api
