// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/profile_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/subjects/remote_profile.h"
#include "userspace/crews/crew.h"
#include "userspace/http/url.h"
#include "userspace/symbolize/answer.h"
#include "userspace/worker/dump_job.h"
#include "userspace/worker/packet.h"

namespace heaptap::cli {
namespace {

using profile::Profile;

constexpr size_t kReadBytes = 1 << 20;

// A dump of 1 GiB takes 15 s.
constexpr worker::Limits kDumpLimits = {.time = absl::Minutes(5), .answer_bytes = worker::kMaxDumpAnswerBytes};

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot read ", base::Printable(path), ": ", why));
}

absl::Status TooLarge(const std::string& path) {
  return CannotRead(path, absl::StrCat("it is larger than ", formats::kMaxDumpBytes, " bytes"));
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int file) {
  std::string text;
  for (std::string part(kReadBytes, '\0');;) {
    const ssize_t count = read(file, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, strerror(errno));
    if (count == 0) return text;
    text.append(part, 0, count);
    if (text.size() > formats::kMaxDumpBytes) return TooLarge(path);
  }
}

// An invalid dump is a failure, not a usage error.
absl::Status Invalid(const absl::Status& status) { return absl::FailedPreconditionError(status.message()); }

// A dump that is read: an open file, or its bytes.
struct Source {
  base::FileDescriptor file = {};
  std::string bytes = {};
  // When the file was written; none: unknown.
  std::optional<absl::Time> time = {};
};

absl::StatusOr<Source> Open(const std::string& path) {
  Source source;
  if (http::IsUrl(path)) {
    absl::StatusOr<std::string> bytes = FetchRemote(path, {.bytes = formats::kMaxDumpBytes});
    if (!bytes.ok()) return bytes.status();
    source.bytes = *std::move(bytes);
    return source;
  }
  source.file.Reset(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!source.file.valid() || fstat(source.file.get(), &status) != 0) return CannotRead(path, strerror(errno));
  // Files of /proc have a size of 0.
  if (S_ISREG(status.st_mode) && status.st_size > 0) {
    if (static_cast<size_t>(status.st_size) > formats::kMaxDumpBytes) return TooLarge(path);
    source.time = absl::TimeFromTimespec(status.st_mtim);
    return source;
  }
  absl::StatusOr<std::string> bytes = ReadWholeFile(path, source.file.get());
  if (!bytes.ok()) return bytes.status();
  source.bytes = *std::move(bytes);
  source.file.Reset();
  return source;
}

absl::StatusOr<Dump> ReadHere(const std::string& path, Source source, formats::ReadThreads threads) {
  if (source.file.valid()) {
    absl::StatusOr<std::string> bytes = ReadWholeFile(path, source.file.get());
    if (!bytes.ok()) return bytes.status();
    source.bytes = *std::move(bytes);
  }
  absl::StatusOr<Dump> dump = formats::ReadDump(source.bytes, path, threads);
  return dump.ok() ? std::move(dump) : Invalid(dump.status());
}

// One reader reads all dumps of a command: in profiles without addresses, equal functions have equal addresses only if
// one process has read both (formats/pprof_reader.h).
absl::StatusOr<worker::Crew*> Reader() {
  static auto* const crew =
      new absl::StatusOr<std::unique_ptr<worker::Crew>>(worker::Crew::Start(worker::Urgency::kForeground));
  if (!crew->ok()) return crew->status();
  return (*crew)->get();
}

absl::StatusOr<Dump> ReadWithoutRights(const std::string& path, Source source, formats::ReadThreads threads) {
  const absl::StatusOr<worker::Crew*> reader = Reader();
  if (!reader.ok()) return CannotRead(path, reader.status().message());
  if (!source.file.valid()) {
    absl::StatusOr<base::FileDescriptor> file = worker::PutInFile(source.bytes);
    if (!file.ok()) return CannotRead(path, file.status().message());
    source = {.file = *std::move(file)};
  }
  const worker::Answer answer = (*reader)->Do(
      {.job = worker::Job::kDump, .file = {.fd = source.file.get()}, .question = worker::DumpQuestion(path, threads)},
      kDumpLimits);
  if (absl::IsAborted(answer.status) || absl::IsUnavailable(answer.status)) {
    return CannotRead(path, "the process that read it has died; the file may have changed meanwhile");
  }
  if (absl::IsResourceExhausted(answer.status)) {
    return CannotRead(path, "its profile takes too much memory (root's commands bound it; try it as another user)");
  }
  if (absl::IsDeadlineExceeded(answer.status)) return CannotRead(path, "it takes too much time");
  if (!answer.status.ok()) return Invalid(answer.status);
  absl::StatusOr<Dump> dump = worker::DecodeDump(answer.bytes);
  return dump.ok() ? std::move(dump) : CannotRead(path, dump.status().message());
}

}  // namespace

absl::StatusOr<Dump> ReadDump(const std::string& path, formats::ReadThreads threads) {
  absl::StatusOr<Source> source = Open(path);
  if (!source.ok()) return source.status();
  const std::optional<absl::Time> time = source->time;
  absl::StatusOr<Dump> dump = geteuid() == 0 ? ReadWithoutRights(path, *std::move(source), threads)
                                             : ReadHere(path, *std::move(source), threads);
  // Other writers of dumps do not say when they were written.
  if (dump.ok() && !dump->profile.time.has_value()) dump->profile.time = time;
  return dump;
}

absl::StatusOr<Profile> FetchProfile(const Client& client, pid_t pid, formats::ReadThreads threads) {
  const std::string target = absl::StrCat("/pid/", pid, "/heap?format=heap_v2");
  absl::StatusOr<std::string> text = client.GetDump(target);
  if (!text.ok()) return text.status();
  absl::StatusOr<Profile> profile = formats::ReadHeapProfile(*text, "dump", threads);
  if (!profile.ok()) return client.Unexpected(target, profile.status().message());
  return profile;
}

absl::StatusOr<Dump> FetchBlocks(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/heap?format=blocks");
  const absl::StatusOr<std::string> bytes = client.GetDump(target);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Dump> dump = formats::ReadDump(*bytes, "answer", formats::ReadThreads::kSum);
  return dump.ok() ? std::move(dump) : client.Unexpected(target, dump.status().message());
}

void SayMissing(const LocalNames& names) {
  for (const std::string& problem : names.problems()) base::Say(problem);
  for (const auto& [gap, paths] : names.gaps()) {
    base::Say(absl::StrCat(symbolize::GapText(gap), base::SomeOf(paths)));
  }
  if (names.missing().empty()) return;
  base::Say(absl::StrCat("no function names from files that are missing here or have changed: ",
                         base::SomeOf(names.missing())));
}

}  // namespace heaptap::cli
