// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/profile_source.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"
#include "userspace/cli/remote_profile.h"
#include "userspace/export/gzip.h"
#include "userspace/export/pprof_reader.h"
#include "userspace/http/url.h"

namespace heaptap::cli {
namespace {

using profile::Profile;

// The largest known dumps have some MiB.
constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kMaxMissingShown = 3;

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot read ", base::Printable(path), ": ", why));
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const base::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return CannotRead(path, strerror(errno));
  std::string text;
  for (std::string part(kReadBytes, '\0');;) {
    const ssize_t count = read(file.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, strerror(errno));
    if (count == 0) return text;
    text.append(part, 0, count);
    if (text.size() > kMaxFileBytes)
      return CannotRead(path, absl::StrCat("it is larger than ", kMaxFileBytes, " bytes"));
  }
}

// An invalid dump is a failure, not a usage error.
absl::StatusOr<Profile> Parse(absl::string_view text, const std::string& name, exporter::ReadThreads threads) {
  absl::StatusOr<Profile> profile = exporter::ReadHeapProfile(text, name, threads);
  if (!profile.ok()) return absl::FailedPreconditionError(profile.status().message());
  return profile;
}

}  // namespace

absl::StatusOr<Dump> ReadDump(const std::string& path, exporter::ReadThreads threads) {
  absl::StatusOr<std::string> text = http::IsUrl(path) ? FetchRemote(path) : ReadWholeFile(path);
  if (!text.ok()) return text.status();
  if (exporter::IsGzip(*text)) {
    text = exporter::Gunzip(*text, kMaxFileBytes);
    if (!text.ok()) return CannotRead(path, text.status().message());
  }
  if (exporter::IsPprof(*text)) {
    absl::StatusOr<exporter::PprofContent> content = exporter::ReadPprof(*text, path);
    if (!content.ok()) return absl::FailedPreconditionError(content.status().message());
    return Dump{.profile = std::move(content->profile), .symbols = std::move(content->symbols)};
  }
  absl::StatusOr<exporter::SymbolizedText> parts = exporter::SplitSymbolized(*text, path);
  if (!parts.ok()) return absl::FailedPreconditionError(parts.status().message());
  absl::StatusOr<Profile> profile = Parse(parts->dump, path, threads);
  if (!profile.ok()) return profile.status();
  return Dump{.profile = *std::move(profile), .symbols = std::move(parts->symbols)};
}

absl::StatusOr<Profile> FetchProfile(const Client& client, pid_t pid, exporter::ReadThreads threads) {
  const std::string target = absl::StrCat("/pid/", pid, "/heap?format=heap_v2");
  absl::StatusOr<std::string> text = client.GetDump(target);
  if (!text.ok()) return text.status();
  absl::StatusOr<Profile> profile = Parse(*text, "dump", threads);
  if (!profile.ok()) return client.Unexpected(target, profile.status().message());
  return profile;
}

void SayMissing(const LocalNames& names) {
  if (names.missing().empty()) return;
  std::vector<std::string> shown;
  for (const std::string& path : names.missing()) {
    if (shown.size() == kMaxMissingShown) break;
    shown.push_back(base::Printable(path));
  }
  const size_t rest = names.missing().size() - shown.size();
  base::Say(absl::StrCat("no function names from files that are missing here or have changed: ",
                         absl::StrJoin(shown, ", "), rest > 0 ? absl::StrCat(" and ", rest, " more") : ""));
}

}  // namespace heaptap::cli
