// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/ended_list.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/files.h"
#include "userspace/base/messages.h"
#include "userspace/json/figures_json.h"
#include "userspace/json/figures_reader.h"

namespace heaptap::recording {
namespace {

// The file is written anew when it has more lines than this.
constexpr size_t kMaxLines = 2 * EndedList::kMost;

std::string LineOf(const profile::EndedProcess& process) { return absl::StrCat(json::ToJson(process).Text(), "\n"); }

absl::Status Failure(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

absl::Status WriteTo(const std::string& path, int flags, const std::string& text) {
  const base::FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0600));
  if (!file.valid()) return Failure(path, errno);
  const int error = base::WriteAll(file.get(), text);
  return error == 0 ? absl::OkStatus() : Failure(path, error);
}

// Replaces the file, without the processes that are no longer remembered.
absl::Status WriteAnew(const std::string& path, const std::string& text) {
  const std::string temporary = absl::StrCat(path, ".new");
  if (absl::Status status = WriteTo(temporary, O_TRUNC, text); !status.ok()) return status;
  return rename(temporary.c_str(), path.c_str()) == 0 ? absl::OkStatus() : Failure(path, errno);
}

}  // namespace

absl::Status EndedList::KeepIn(const std::string& path, base::Background& files) {
  path_ = path;
  files_ = &files;
  Read();
  lines_ = all_.size();
  return WriteAnew(path_, AllText());
}

void EndedList::Read() {
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    std::string error;
    profile::EndedProcess process = json::ReadEnded(object, "", error, json::Missing::kKeepsItsValue);
    if (!error.empty()) continue;
    process.summary.process_id = 0;
    Remember(std::move(process));
  }
}

void EndedList::Remember(profile::EndedProcess process) {
  texts_.push_back(LineOf(process));
  all_.push_front(std::move(process));
  if (all_.size() <= kMost) return;
  all_.pop_back();
  texts_.pop_front();
}

std::string EndedList::AllText() const { return absl::StrJoin(texts_, ""); }

void EndedList::Add(profile::EndedProcess process) {
  Remember(std::move(process));
  if (path_.empty()) return;
  unwritten_ += texts_.back();
  lines_++;
  if (!is_writing_) Write();
}

void EndedList::Write() {
  is_writing_ = true;
  const bool is_anew = lines_ > kMaxLines;
  if (is_anew) lines_ = all_.size();
  const auto status = std::make_shared<absl::Status>();
  std::string text = std::exchange(unwritten_, "");
  if (is_anew) text = AllText();
  files_->Run(
      [path = path_, is_anew, text = std::move(text), status] {
        *status = is_anew ? WriteAnew(path, text) : WriteTo(path, O_APPEND, text);
      },
      [this, status] {
        is_writing_ = false;
        if (!status->ok() && !std::exchange(has_failed_, true)) {
          base::Say(absl::StrCat(status->message(), "; the next daemon will not list the processes that have ended"));
        }
        // Writes what has come meanwhile in one piece.
        if (!unwritten_.empty()) Write();
      });
}

}  // namespace heaptap::recording
