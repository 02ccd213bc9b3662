// SPDX-License-Identifier: Apache-2.0
//
// heaptap doctor: what this kernel and this user allow, what is missing, and what to do about it.
#include <stdio.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/recording.h"
#include "userspace/service/checkup.h"
#include "userspace/service/messages.h"

namespace heaptap::cli {
namespace {

constexpr int kSchemaVersion = 1;

struct DoctorFlags {
  pid_t pid = 0;
  bool json = false;
};

void PrintText(const std::vector<service::Finding>& findings) {
  for (const service::Finding& finding : findings) {
    if (finding.status.ok()) {
      printf("ok       %-20s %s\n", finding.subject.c_str(), finding.detail.c_str());
    } else {
      printf("missing  %-20s %s; %s\n", finding.subject.c_str(), std::string(finding.status.message()).c_str(),
             finding.remedy.c_str());
    }
  }
}

void PrintJson(const std::vector<service::Finding>& findings, bool healthy) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const service::Finding& finding : findings) {
    nlohmann::ordered_json entry = {{"subject", finding.subject}, {"ok", finding.status.ok()}};
    if (finding.status.ok()) {
      entry["detail"] = finding.detail;
    } else {
      entry["missing"] = std::string(finding.status.message());
      entry["remedy"] = finding.remedy;
    }
    list.push_back(entry);
  }
  const nlohmann::ordered_json document = {{"schema_version", kSchemaVersion}, {"ok", healthy}, {"findings", list}};
  // A path may be no UTF-8.
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  printf("%s\n", document.dump(2, ' ', false, kReplace).c_str());
}

int Doctor(const DoctorFlags& flags) {
  std::vector<service::Finding> findings = service::CheckMachine();
  if (flags.pid > 0) {
    for (service::Finding& finding : service::CheckProcess(flags.pid)) findings.push_back(std::move(finding));
  }
  // What needs more rights explains the rest; a missing process is worth its own status.
  int status = kSuccess;
  for (const service::Finding& finding : findings) {
    if (finding.status.ok()) continue;
    if (absl::IsPermissionDenied(finding.status)) {
      status = kPermission;
    } else if (status != kPermission) {
      status = absl::IsNotFound(finding.status) ? kNoTarget : kFailure;
    }
  }
  if (flags.json) {
    PrintJson(findings, status == kSuccess);
  } else {
    PrintText(findings);
  }
  return status;
}

}  // namespace

void AddDoctor(CommandLine& line) {
  Command command = line.AddCommand("doctor", "say what this kernel and this user allow, and what is missing");
  auto flags = std::make_shared<DoctorFlags>();
  command.Add("-p,--pid", flags->pid, "also look at this process").Type("PID").AboveZero();
  command.AddFlag("--json", flags->json, "one JSON document instead of text");
  command.Runs([flags] { return Doctor(*flags); });
}

}  // namespace heaptap::cli
