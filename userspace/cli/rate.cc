// SPDX-License-Identifier: Apache-2.0
//
// heaptap rate: sets the mean number of bytes between the samples of one process.
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"
#include "userspace/base/messages.h"
#include "userspace/cli/ask/client.h"
#include "userspace/cli/ask/control.h"
#include "userspace/cli/ask/find_process.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/process/control_block.h"

namespace heaptap::cli {
namespace {

constexpr char kDefault[] = "default";

struct RateFlags {
  std::string socket = DefaultSocket();
  std::string process;
  std::string lg_sample;
};

std::string CheckRate(const std::string& text) {
  uint32_t lg_sample = 0;
  if (text == kDefault || (absl::SimpleAtoi(text, &lg_sample) && lg_sample <= HEAPTAP_MAX_LG_SAMPLE)) return "";
  return absl::StrCat("'", base::AsciiOnly(text), "' is neither a number from 0 to ", HEAPTAP_MAX_LG_SAMPLE, " nor ",
                      kDefault);
}

// Writes the collector's field, not the process's own rate, so that the change can be undone. Any tool on the probes
// gets samples at this rate; a later collector sets its own.
absl::Status WithoutDaemon(const RateFlags& flags) {
  const absl::StatusOr<pid_t> pid = FindPreloaded(flags.process);
  if (!pid.ok()) return pid.status();
  absl::StatusOr<process::Preloaded> found = FindControllable(*pid);
  if (!found.ok()) return found.status();
  uint32_t lg_sample = HEAPTAP_NO_RATE;
  if (flags.lg_sample != kDefault && !absl::SimpleAtoi(flags.lg_sample, &lg_sample)) {
    return absl::InvalidArgumentError("rate: expected a number");
  }
  absl::Status status = process::WriteRate(found->process, found->control_address, lg_sample);
  if (status.ok() && lg_sample != HEAPTAP_NO_RATE) {
    base::Say(absl::StrCat("no daemon: process ", *pid,
                           " keeps this rate until heaptap records it, which sets its own (--lg-sample)"));
  }
  return status;
}

int Rate(const RateFlags& flags) {
  const Client client(flags.socket);
  const absl::StatusOr<pid_t> pid = FindPid(client, flags.process);
  const absl::Status status =
      pid.ok() ? client.Order(absl::StrCat("/pid/", *pid, "/rate?lg=", flags.lg_sample)) : pid.status();
  return Report(IsNoDaemon(status) ? WithoutDaemon(flags) : status);
}

}  // namespace

void AddRate(CommandLine& line) {
  Command command =
      line.AddCommand("rate", "set the sampling rate of a process; without a daemon, directly in the process");
  auto flags = std::make_shared<RateFlags>();
  AddProcessWord(command, flags->process, "set the rate of this process").Required();
  command
      .Add(
          "LG", flags->lg_sample,
          "take a sample every 2^LG bytes on average; 'default' restores the rate of the daemon's rules or the process")
      .Required()
      .Type("")
      .Check(CheckRate);
  AddSocketOption(command, flags->socket);
  command.Runs([flags] { return Rate(*flags); });
}

}  // namespace heaptap::cli
