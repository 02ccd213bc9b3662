// SPDX-License-Identifier: Apache-2.0
//
// heaptap doctor: checks what this kernel and this user allow, and shows what is missing, with consequence and remedy.
#include <stdio.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/cli/recording.h"
#include "userspace/cli/words/command_line.h"
#include "userspace/cli/words/commands.h"
#include "userspace/cli/words/exit_status.h"
#include "userspace/doctor/checkup.h"
#include "userspace/doctor/kernel_features.h"
#include "userspace/json/json.h"

namespace heaptap::cli {
namespace {

using json::Json;

struct DoctorFlags {
  pid_t pid = 0;
  bool json = false;
};

struct Diagnosis {
  std::vector<daemon::Finding> machine;
  std::vector<daemon::FeatureFinding> features;
  std::vector<daemon::Finding> process;
};

void PrintText(const std::vector<daemon::Finding>& findings) {
  for (const daemon::Finding& finding : findings) {
    if (finding.status.ok()) {
      printf("ok        %-28s %s\n", finding.subject.c_str(), finding.detail.c_str());
    } else {
      printf("missing   %-28s %s; %s\n", finding.subject.c_str(), std::string(finding.status.message()).c_str(),
             finding.remedy.c_str());
    }
  }
}

const char* Word(const daemon::FeatureFinding& finding) {
  if (!finding.tried) return "untried";
  if (finding.status.ok()) return "ok";
  return finding.required ? "missing" : "degraded";
}

void PrintText(const std::vector<daemon::FeatureFinding>& features) {
  for (const daemon::FeatureFinding& finding : features) {
    const std::string why = finding.status.ok() ? "" : absl::StrCat("; ", finding.status.message());
    printf("%-9s %-28s since %s%s%s; without it %s\n", Word(finding), finding.name.c_str(), finding.since.c_str(),
           finding.required ? "" : ", optional", why.c_str(), finding.lost.c_str());
  }
}

Json ToJson(const daemon::Finding& finding) {
  Json entry = {{"subject", finding.subject}, {"ok", finding.status.ok()}};
  if (finding.status.ok()) {
    entry.Set("detail", finding.detail);
  } else {
    entry.Set("missing", finding.status.message());
    entry.Set("remedy", finding.remedy);
  }
  return entry;
}

Json ToJson(const daemon::FeatureFinding& finding) {
  Json entry = {{"name", finding.name},   {"since", finding.since},    {"required", finding.required},
                {"tried", finding.tried}, {"ok", finding.status.ok()}, {"lost", finding.lost}};
  if (!finding.status.ok()) entry.Set("missing", finding.status.message());
  return entry;
}

void PrintJson(const Diagnosis& diagnosis, bool healthy) {
  Json findings = Json::List();
  for (const daemon::Finding& finding : diagnosis.machine) findings.Add(ToJson(finding));
  for (const daemon::Finding& finding : diagnosis.process) findings.Add(ToJson(finding));
  Json features = Json::List();
  for (const daemon::FeatureFinding& finding : diagnosis.features) features.Add(ToJson(finding));
  const Json document = {{"schema_version", json::kSchemaVersion},
                         {"ok", healthy},
                         {"findings", std::move(findings)},
                         {"kernel_features", std::move(features)}};
  printf("%s\n", document.Text({.indent = 2}).c_str());
}

// Missing rights come first, because they explain other failures; a missing process has its own status.
int ExitStatus(const Diagnosis& diagnosis) {
  std::vector<absl::Status> failures;
  for (const daemon::Finding& finding : diagnosis.machine) failures.push_back(finding.status);
  for (const daemon::FeatureFinding& finding : diagnosis.features) {
    if (finding.required && finding.tried) failures.push_back(finding.status);
  }
  for (const daemon::Finding& finding : diagnosis.process) failures.push_back(finding.status);
  int status = kSuccess;
  for (const absl::Status& failure : failures) {
    if (failure.ok()) continue;
    if (absl::IsPermissionDenied(failure)) return kPermission;
    status = absl::IsNotFound(failure) ? kNoTarget : kFailure;
  }
  return status;
}

// The names of what is required but missing.
std::vector<std::string> Missing(const Diagnosis& diagnosis) {
  std::vector<std::string> names;
  const auto add = [&names](const std::vector<daemon::Finding>& findings) {
    for (const daemon::Finding& finding : findings) {
      if (!finding.status.ok()) names.push_back(finding.subject);
    }
  };
  add(diagnosis.machine);
  for (const daemon::FeatureFinding& finding : diagnosis.features) {
    if (finding.required && finding.tried && !finding.status.ok()) names.push_back(finding.name);
  }
  add(diagnosis.process);
  return names;
}

void PrintVerdict(const Diagnosis& diagnosis) {
  const std::vector<std::string> missing = Missing(diagnosis);
  if (missing.empty()) {
    printf("everything that heaptap needs is there\n");
  } else {
    printf("heaptap cannot record %s; missing: %s\n", diagnosis.process.empty() ? "here" : "this process",
           absl::StrJoin(missing, ", ").c_str());
  }
}

int Doctor(const DoctorFlags& flags) {
  Diagnosis diagnosis = {.machine = daemon::CheckMachine(), .features = daemon::CheckKernelFeatures(), .process = {}};
  if (flags.pid > 0) diagnosis.process = daemon::CheckProcess(flags.pid);
  const int status = ExitStatus(diagnosis);
  if (flags.json) {
    PrintJson(diagnosis, status == kSuccess);
  } else {
    PrintText(diagnosis.machine);
    PrintText(diagnosis.features);
    PrintText(diagnosis.process);
    PrintVerdict(diagnosis);
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
