// SPDX-License-Identifier: Apache-2.0
//
// heaptap doctor: checks what this kernel and this user allow, and shows what is missing, with consequence and remedy.
#include <stdio.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/cli/command_line.h"
#include "userspace/cli/commands.h"
#include "userspace/cli/exit_status.h"
#include "userspace/cli/recording.h"
#include "userspace/export/json.h"
#include "userspace/service/checkup.h"
#include "userspace/service/kernel_features.h"
#include "userspace/service/messages.h"

namespace heaptap::cli {
namespace {

using exporter::Json;

constexpr int kSchemaVersion = 1;

struct DoctorFlags {
  pid_t pid = 0;
  bool json = false;
};

struct Report {
  std::vector<service::Finding> machine;
  std::vector<service::FeatureFinding> features;
  std::vector<service::Finding> process;
};

void PrintText(const std::vector<service::Finding>& findings) {
  for (const service::Finding& finding : findings) {
    if (finding.status.ok()) {
      printf("ok        %-28s %s\n", finding.subject.c_str(), finding.detail.c_str());
    } else {
      printf("missing   %-28s %s; %s\n", finding.subject.c_str(), std::string(finding.status.message()).c_str(),
             finding.remedy.c_str());
    }
  }
}

const char* Word(const service::FeatureFinding& finding) {
  if (!finding.tried) return "untried";
  if (finding.status.ok()) return "ok";
  return finding.required ? "missing" : "degraded";
}

void PrintText(const std::vector<service::FeatureFinding>& features) {
  for (const service::FeatureFinding& finding : features) {
    const std::string why = finding.status.ok() ? "" : absl::StrCat("; ", finding.status.message());
    printf("%-9s %-28s since %s%s%s; without it %s\n", Word(finding), finding.name.c_str(), finding.since.c_str(),
           finding.required ? "" : ", optional", why.c_str(), finding.lost.c_str());
  }
}

Json ToJson(const service::Finding& finding) {
  Json entry = {{"subject", finding.subject}, {"ok", finding.status.ok()}};
  if (finding.status.ok()) {
    entry.Set("detail", finding.detail);
  } else {
    entry.Set("missing", finding.status.message());
    entry.Set("remedy", finding.remedy);
  }
  return entry;
}

Json ToJson(const service::FeatureFinding& finding) {
  Json entry = {{"name", finding.name},   {"since", finding.since},    {"required", finding.required},
                {"tried", finding.tried}, {"ok", finding.status.ok()}, {"lost", finding.lost}};
  if (!finding.status.ok()) entry.Set("missing", finding.status.message());
  return entry;
}

void PrintJson(const Report& report, bool healthy) {
  Json findings = Json::List();
  for (const service::Finding& finding : report.machine) findings.Add(ToJson(finding));
  for (const service::Finding& finding : report.process) findings.Add(ToJson(finding));
  Json features = Json::List();
  for (const service::FeatureFinding& finding : report.features) features.Add(ToJson(finding));
  const Json document = {{"schema_version", kSchemaVersion},
                         {"ok", healthy},
                         {"findings", std::move(findings)},
                         {"kernel_features", std::move(features)}};
  printf("%s\n", document.Text({.indent = 2}).c_str());
}

// Missing rights come first, because they explain other failures; a missing process has its own status.
int ExitStatus(const Report& report) {
  std::vector<absl::Status> failures;
  for (const service::Finding& finding : report.machine) failures.push_back(finding.status);
  for (const service::FeatureFinding& finding : report.features) {
    if (finding.required && finding.tried) failures.push_back(finding.status);
  }
  for (const service::Finding& finding : report.process) failures.push_back(finding.status);
  int status = kSuccess;
  for (const absl::Status& failure : failures) {
    if (failure.ok()) continue;
    if (absl::IsPermissionDenied(failure)) return kPermission;
    status = absl::IsNotFound(failure) ? kNoTarget : kFailure;
  }
  return status;
}

int Doctor(const DoctorFlags& flags) {
  Report report = {.machine = service::CheckMachine(), .features = service::CheckKernelFeatures(), .process = {}};
  if (flags.pid > 0) report.process = service::CheckProcess(flags.pid);
  const int status = ExitStatus(report);
  if (flags.json) {
    PrintJson(report, status == kSuccess);
  } else {
    PrintText(report.machine);
    PrintText(report.features);
    PrintText(report.process);
  }
  return status;
}

}  // namespace

void AddDoctor(CommandLine& line) {
  Command command = line.AddCommand("doctor", "check what this kernel and this user allow, and show what is missing");
  auto flags = std::make_shared<DoctorFlags>();
  command.Add("-p,--pid", flags->pid, "also check this process").Type("PID").AboveZero();
  command.AddFlag("--json", flags->json, "print one JSON document instead of text");
  command.Runs([flags] { return Doctor(*flags); });
}

}  // namespace heaptap::cli
