// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/sanitizers.h"

#include <fcntl.h>
#include <stdlib.h>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/elf/file.h"
#include "userspace/process/malloc_traits.h"

namespace heaptap::process {
namespace {

// All sanitizer libraries have this in their names: libasan.so.8, libclang_rt.tsan-x86_64.so.
constexpr absl::string_view kInNames = "san";

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

MallocTraits TraitsOf(const std::string& path) {
  const base::FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return {};
  const absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
  return file.ok() ? ReadMallocTraits(*file) : MallocTraits{};
}

// If ASAN_OPTIONS has the option more than once, the last one counts.
bool AllowsOthersBefore() {
  const char* const variable = getenv("ASAN_OPTIONS");
  const absl::string_view options = variable != nullptr ? variable : "";
  constexpr absl::string_view kOption = "verify_asan_link_order=";
  const size_t at = options.rfind(kOption);
  if (at == absl::string_view::npos) return false;
  const absl::string_view value = options.substr(at + kOption.size());
  return absl::StartsWith(value, "0") || absl::StartsWith(value, "false") || absl::StartsWith(value, "no");
}

// ThreadSanitizer refuses mappings at most addresses, and its functions cannot be called before it has started.
absl::Status NotWithThreads(absl::string_view name) {
  return absl::FailedPreconditionError(
      absl::StrCat(name, ", with which no library of heaptap can run: build the program without it"));
}

absl::Status CheckLibrary(Library which, const std::string& name, MallocKind kind) {
  const bool is_guest = which == Library::kGuest;
  if (kind == MallocKind::kThreadSanitizer) return NotWithThreads(name);
  if (kind != MallocKind::kAddressSanitizer || (is_guest && AllowsOthersBefore())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      name, ", which refuses to start behind another library: ",
      is_guest ? absl::StrCat("set ", kLinkOrderOption) : absl::StrCat("set ", kLinkOrderOption, " and add --guest"),
      ", or build the program without it"));
}

}  // namespace

absl::Status CheckSanitizer(Library which, const std::vector<std::string>& files) {
  if (files.empty()) return absl::OkStatus();
  const std::string has = absl::StrCat(base::AsciiOnly(files[0]), " has ");
  const MallocTraits program = TraitsOf(files[0]);
  if (program.exports_malloc != 0 && program.kind == MallocKind::kThreadSanitizer) {
    return NotWithThreads(absl::StrCat(has, MallocKindName(program.kind)));
  }
  for (size_t i = 1; i < files.size(); i++) {
    const absl::string_view name = FileName(files[i]);
    if (!absl::StrContains(name, kInNames)) continue;
    const MallocKind kind = TraitsOf(files[i]).kind;
    absl::Status status = CheckLibrary(
        which, absl::StrCat(has, MallocKindName(kind), " (", base::AsciiOnly(std::string(name)), ")"), kind);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace heaptap::process
