// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/ended_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/files.h"
#include "userspace/base/messages.h"
#include "userspace/export/figures_json.h"
#include "userspace/export/figures_reader.h"

namespace heaptap::recording {
namespace {

// The file is written anew when it has so many times the lines that count.
constexpr size_t kMaxLines = 2 * EndedList::kMost;

std::string LineOf(const profile::EndedProcess& process) {
  return absl::StrCat(exporter::ToJson(process).Text(), "\n");
}

absl::Status Failure(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

absl::Status WriteTo(const std::string& path, int flags, const std::string& text) {
  const base::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0600));
  if (!file.valid()) return Failure(path, errno);
  const int error = base::WriteAll(file.get(), text);
  return error == 0 ? absl::OkStatus() : Failure(path, error);
}

}  // namespace

absl::Status EndedList::KeepIn(const std::string& path) {
  path_ = path;
  Read();
  return Write();
}

void EndedList::Read() {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    std::string error;
    profile::EndedProcess process = exporter::ReadEnded(object, "", error, exporter::Missing::kKeepsItsValue);
    if (!error.empty()) continue;
    process.summary.process_id = 0;
    all_.push_front(std::move(process));
    if (all_.size() > kMost) all_.pop_back();
  }
}

absl::Status EndedList::Write() {
  std::string text;
  for (size_t index = all_.size(); index > 0; index--) text += LineOf(all_[index - 1]);
  const std::string temporary = absl::StrCat(path_, ".new");
  if (absl::Status status = WriteTo(temporary, O_TRUNC, text); !status.ok()) return status;
  if (rename(temporary.c_str(), path_.c_str()) != 0) return Failure(path_, errno);
  lines_ = all_.size();
  return absl::OkStatus();
}

void EndedList::Add(profile::EndedProcess process) {
  all_.push_front(std::move(process));
  if (all_.size() > kMost) all_.pop_back();
  if (path_.empty()) return;
  const absl::Status status = lines_ < kMaxLines ? Append(all_.front()) : Write();
  if (!status.ok() && !std::exchange(has_failed_, true)) {
    base::Say(absl::StrCat(status.message(), "; the next daemon will not list the processes that have ended"));
  }
}

absl::Status EndedList::Append(const profile::EndedProcess& process) {
  lines_++;
  return WriteTo(path_, O_APPEND, LineOf(process));
}

}  // namespace heaptap::recording
