// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/debuginfod.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/frame_names.h"
#include "userspace/report/human.h"

namespace heaptap::cli {
namespace {

constexpr char kLibrary[] = "libdebuginfod.so.1";
constexpr char kUrls[] = "DEBUGINFOD_URLS";
// The library's own limit for a file, in seconds. From elfutils 0.192 on, the library does not call OnProgress while a
// server says nothing.
constexpr char kMaxTime[] = "DEBUGINFOD_MAXTIME";

// The functions of <elfutils/debuginfod.h> in elfutils 0.179.
struct Library {
  struct Client;
  using Progress = int (*)(Client* client, long done, long total);
  using Find = int (*)(Client* client, const unsigned char* build_id, int build_id_bytes, char** path);

  Client* (*begin)() = nullptr;
  void (*end)(Client* client) = nullptr;
  Find find_debug_file = nullptr;
  Find find_program = nullptr;
  void (*set_progress)(Client* client, Progress progress) = nullptr;
  void (*set_user_data)(Client* client, void* data) = nullptr;
  void* (*get_user_data)(Client* client) = nullptr;
};

absl::StatusOr<Library> Load() {
  // Stays loaded: libcurl may have threads.
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("--debuginfod: there is no ", kLibrary,
                     "; install libdebuginfod1 (Debian, Ubuntu) or elfutils-debuginfod-client (Fedora, RHEL)"));
  }
  Library library;
  bool is_whole = true;
  const auto load = [&]<typename Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    is_whole = is_whole && function != nullptr;
  };
  load("debuginfod_begin", library.begin);
  load("debuginfod_end", library.end);
  load("debuginfod_find_debuginfo", library.find_debug_file);
  load("debuginfod_find_executable", library.find_program);
  load("debuginfod_set_progressfn", library.set_progress);
  load("debuginfod_set_user_data", library.set_user_data);
  load("debuginfod_get_user_data", library.get_user_data);
  if (!is_whole) {
    return absl::FailedPreconditionError(absl::StrCat("--debuginfod: ", kLibrary, " is older than elfutils 0.179"));
  }
  return library;
}

class LoadedDebuginfod : public Debuginfod {
 public:
  LoadedDebuginfod(const Library& library, Library::Client* client, Options options)
      : library_(library), client_(client), options_(std::move(options)) {
    get_user_data = library.get_user_data;
    library_.set_user_data(client_, this);
    library_.set_progress(client_, OnProgress);
  }
  ~LoadedDebuginfod() override { library_.end(client_); }
  LoadedDebuginfod(const LoadedDebuginfod&) = delete;
  LoadedDebuginfod& operator=(const LoadedDebuginfod&) = delete;

  base::FileDescriptor FindDebugFile(const std::string& build_id, const std::string& name) override {
    return Find(library_.find_debug_file, "debug information of", build_id, name);
  }
  base::FileDescriptor FindProgram(const std::string& build_id, const std::string& name) override {
    return Find(library_.find_program, "", build_id, name);
  }
  const std::vector<std::string>& problems() const override { return problems_; }

 private:
  // A function of the library, which is loaded once. It is static because the callback gets nothing but the client.
  static inline void* (*get_user_data)(Library::Client* client) = nullptr;

  // A result other than 0 means to give up.
  static int OnProgress(Library::Client* client, long done, long total) {
    auto* const self = static_cast<LoadedDebuginfod*>(get_user_data(client));
    if (base::Now() > self->deadline_) {
      self->is_late_ = true;
      return 1;
    }
    if (self->options_.progress != nullptr) {
      const std::string size = total > 0 ? absl::StrCat(" of ", report::HumanBytes(static_cast<double>(total))) : "";
      self->options_.progress(absl::StrCat("fetching ", self->what_, ": ",
                                           report::HumanBytes(static_cast<double>(std::max(done, 0L))), size));
    }
    return 0;
  }

  base::FileDescriptor Find(Library::Find find, absl::string_view kind, const std::string& build_id,
                            const std::string& name) {
    if (problems_.size() >= kMostProblems || build_id.empty()) return {};
    what_ = absl::StrCat(kind, kind.empty() ? "" : " ", base::Printable(profile::FileName(name)));
    deadline_ = base::Now() + options_.time;
    is_late_ = false;
    // A build-id with a length of 0 would be a text of digits.
    const int found = find(client_, reinterpret_cast<const unsigned char*>(build_id.data()),
                           static_cast<int>(build_id.size()), nullptr);
    if (found >= 0) return base::FileDescriptor(found);
    is_late_ |= found == -ETIME && base::Now() > deadline_;
    // The servers, or the cache that remembers their answers, say that there is no such file. A cancelled request ends
    // in the same way.
    if (found == -ENOENT && !is_late_) return {};
    problems_.push_back(absl::StrCat(
        "debuginfod: cannot fetch ", what_, " (build-id ", absl::BytesToHexString(build_id),
        "): ", is_late_ ? absl::StrCat("it took more than ", report::HumanDuration(options_.time)) : strerror(-found),
        problems_.size() + 1 == kMostProblems ? "; the servers are not asked any more" : ""));
    return {};
  }

  const Library library_;
  Library::Client* const client_;
  const Options options_;
  std::vector<std::string> problems_;
  // The file that is fetched, for people.
  std::string what_;
  base::Instant deadline_;
  bool is_late_ = false;
};

}  // namespace

absl::Status Debuginfod::Check() {
  const char* const urls = getenv(kUrls);
  if (urls == nullptr || urls[strspn(urls, " ")] == '\0') {
    return absl::InvalidArgumentError(absl::StrCat(
        "--debuginfod: ", kUrls,
        " is not set; name the servers, such as https://debuginfod.debian.net (sudo needs --preserve-env=", kUrls,
        ")"));
  }
  return Load().status();
}

absl::StatusOr<std::unique_ptr<Debuginfod>> Debuginfod::Open(Options options) {
  if (absl::Status status = Check(); !status.ok()) return status;
  const absl::StatusOr<Library> library = Load();
  if (!library.ok()) return library.status();
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(options.time, absl::Seconds(1)));
  // The limit that the user has set has precedence.
  setenv(kMaxTime, absl::StrCat(seconds).c_str(), /*overwrite=*/0);
  Library::Client* const client = library->begin();
  if (client == nullptr) return absl::FailedPreconditionError("--debuginfod: the library does not work");
  return std::make_unique<LoadedDebuginfod>(*library, client, std::move(options));
}

}  // namespace heaptap::cli
