// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/subjects/local_names.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/cli/subjects/debuginfod.h"
#include "userspace/cli/words/progress.h"
#include "userspace/crews/symbolizer.h"
#include "userspace/process/maps.h"
#include "userspace/profile/frame_names.h"
#include "userspace/symbolize/debug_files.h"

namespace heaptap::cli {
namespace {

// `time`: the time of the profile. A compiler that writes its output anew can get the inode of the old file, or keep
// it.
absl::StatusOr<process::MappedFile> OpenHere(const elf::Mapping& mapping, const std::optional<absl::Time>& time) {
  // process::OpenByPath uses only cached attributes; this loads them. With O_PATH, the file itself is not opened.
  const base::FileDescriptor handle(open(mapping.path.c_str(), O_PATH | O_CLOEXEC));
  absl::StatusOr<process::MappedFile> file = process::OpenByPath(mapping);
  struct stat status;
  if (!file.ok() || !mapping.build_id.empty() || !time.has_value()) return file;
  if (fstat(file->file.get(), &status) != 0 || absl::TimeFromTimespec(status.st_ctim) > *time) {
    return absl::NotFoundError(absl::StrCat(mapping.path, " has changed since"));
  }
  return file;
}

// The file is not opened by its path at once: opening a device can have effects. With RESOLVE_IN_ROOT, links of the
// other machine lead to its own files.
absl::StatusOr<process::MappedFile> OpenBelow(const std::string& sysroot, const std::string& path) {
  const base::FileDescriptor root(open(sysroot.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT;
  const base::FileDescriptor handle(
      static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof(how))));
  struct stat status;
  const bool is_regular = handle.valid() && fstat(handle.get(), &status) == 0 && S_ISREG(status.st_mode);
  base::FileDescriptor file(
      is_regular ? open(absl::StrCat("/proc/self/fd/", handle.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1);
  if (!file.valid()) return absl::NotFoundError(absl::StrCat("no file ", path, " below ", sysroot));
  return process::MappedFile{.file = std::move(file), .path = {}};
}

// Whether the mapping comes from a format that knows a file by its build-id only, as pprof's does.
bool HasOnlyBuildId(const elf::Mapping& mapping) {
  return mapping.inode == 0 && !mapping.build_id.empty() && absl::StartsWith(mapping.path, "/");
}

// The file, if it has the build-id of the mapping or the mapping has none.
absl::StatusOr<process::MappedFile> SameBuild(absl::StatusOr<process::MappedFile> file, const elf::Mapping& mapping) {
  if (file.ok() && !mapping.build_id.empty() &&
      !symbolize::IsDebugFile({.build_id = mapping.build_id}, file->file.get())) {
    return absl::NotFoundError(absl::StrCat(mapping.path, " has another build-id"));
  }
  return file;
}

// Opens a file with debug information of the program whose status is `program`. The file must belong to root or to the
// owner of the program, so that other users of a shared folder have no say. Invalid: there is none.
base::FileDescriptor OpenTrusted(const std::string& sysroot, const std::string& path, const struct stat& program) {
  absl::StatusOr<process::MappedFile> file = OpenBelow(sysroot, path);
  struct stat status;
  if (!file.ok() || fstat(file->file.get(), &status) != 0) return {};
  const bool is_itself = status.st_dev == program.st_dev && status.st_ino == program.st_ino;
  if (is_itself || (status.st_uid != 0 && status.st_uid != program.st_uid)) return {};
  return std::move(file->file);
}

// The files that may be the debug file of a .gnu_debuglink, where debuggers look for it: beside the program, and in
// .debug there.
std::vector<base::FileDescriptor> OpenLinked(const std::string& sysroot, const symbolize::DebugLinks& links,
                                             const std::string& path, const struct stat& program) {
  std::vector<base::FileDescriptor> found;
  // The process that read the name may have been taken over.
  if (links.link_name.find('/') != std::string::npos || !absl::StartsWith(path, "/")) return found;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const char* below : {"", ".debug/"}) {
    base::FileDescriptor file = OpenTrusted(sysroot, absl::StrCat(folder, below, links.link_name), program);
    if (file.valid()) found.push_back(std::move(file));
  }
  return found;
}

// Opens the file that a .gnu_debugaltlink may mean: at its path, which may be relative to the folder of the program or
// to .debug there.
base::FileDescriptor OpenShared(const std::string& sysroot, const symbolize::DebugLinks& links, const std::string& path,
                                const struct stat& program) {
  if (absl::StartsWith(links.shared_name, "/")) return OpenTrusted(sysroot, links.shared_name, program);
  if (!absl::StartsWith(path, "/")) return {};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const char* below : {"", ".debug/"}) {
    base::FileDescriptor file = OpenTrusted(sysroot, absl::StrCat(folder, below, links.shared_name), program);
    if (file.valid()) return file;
  }
  return {};
}

// 1234567 as 1,234,567.
std::string WithCommas(size_t number) {
  std::string digits = absl::StrCat(number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::vector<uint64_t> CallAddresses(const profile::Profile& profile) {
  std::vector<uint64_t> addresses;
  for (const profile::Context& context : profile.contexts) {
    for (const uint64_t frame : context.frames) addresses.push_back(profile::CallAddress(frame));
  }
  return addresses;
}

}  // namespace

void AddDebuginfodOption(Command command, NamePlaces& places) {
  command.AddFlag("--debuginfod", places.debuginfod,
                  "fetch missing debug information from the servers in DEBUGINFOD_URLS");
  places.show_progress = true;
}

void AddPlacesOptions(Command command, NamePlaces& places) {
  command.Add("--sysroot", places.sysroot, "look up names in files below DIR: a copy of the profile's machine")
      .Type("DIR");
  command.Add("--symbols", places.symbols, "look for debug files in DIR instead of /usr/lib/debug").Type("DIR");
  AddDebuginfodOption(command, places);
}

absl::Status CheckPlaces(const NamePlaces& places) {
  return places.debuginfod ? Debuginfod::Check() : absl::OkStatus();
}

LocalNames::LocalNames(const profile::Profile& profile, const NamePlaces& places, formats::Symbols known)
    : time_(profile.time), frames_(std::move(known)) {
  std::vector<uint64_t> addresses = CallAddresses(profile);
  std::erase_if(addresses, [this](uint64_t address) { return frames_.contains(address); });
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  Progress progress(places.show_progress);
  std::unique_ptr<Debuginfod> debuginfod;
  if (places.debuginfod) {
    absl::StatusOr<std::unique_ptr<Debuginfod>> opened =
        Debuginfod::Open({.progress = [&progress](const std::string& text) { progress.Set(text); }});
    if (opened.ok()) debuginfod = *std::move(opened);
  }
  worker::Crews crews(worker::Urgency::kForeground);
  worker::Symbolizer::Options options;
  if (!places.sysroot.empty()) options.debug_root = absl::StrCat(places.sysroot, options.debug_root);
  if (!places.symbols.empty()) options.debug_root = places.symbols;
  if (debuginfod != nullptr) {
    options.fetch = [&debuginfod](const std::string& build_id, const std::string& path) {
      return debuginfod->FindDebugFile(build_id, path);
    };
  }
  struct stat program = {};  // of the file that is looked at
  const std::string root = places.sysroot.empty() ? "/" : places.sysroot;
  options.open_linked = [&program, &root](const symbolize::DebugLinks& links, const std::string& path) {
    return OpenLinked(root, links, path, program);
  };
  options.open_shared = [&program, &root](const symbolize::DebugLinks& links, const std::string& path) {
    return OpenShared(root, links, path, program);
  };
  worker::Symbolizer symbolizer(crews, options);
  for (absl::Span<const uint64_t> rest = addresses; !rest.empty();) {
    const elf::Mapping* mapping = profile::FindMapping(profile.mappings, rest[0]);
    if (mapping == nullptr) {
      rest.remove_prefix(1);
      continue;
    }
    const size_t count = std::lower_bound(rest.begin(), rest.end(), mapping->end) - rest.begin();
    const absl::Span<const uint64_t> inside = rest.subspan(0, count);
    const size_t done = addresses.size() - rest.size();
    rest.remove_prefix(count);
    const absl::StatusOr<process::MappedFile> file = Open(*mapping, places, debuginfod.get());
    if (!file.ok() || fstat(file->file.get(), &program) != 0) continue;
    // The addresses are looked up in pieces that the symbolizer takes at once.
    for (size_t at = 0; at < count; at += worker::kMaxBatch) {
      progress.Set(absl::StrCat("looking up names: ", WithCommas(done + at), " of ", WithCommas(addresses.size()),
                                " addresses, ", profile::FileName(mapping->path)));
      LookUp(symbolizer, {.fd = file->file.get(), .mapping = *mapping}, inside.subspan(at, worker::kMaxBatch));
    }
  }
  if (debuginfod != nullptr) problems_ = debuginfod->problems();
}

absl::StatusOr<process::MappedFile> LocalNames::Open(const elf::Mapping& mapping, const NamePlaces& places,
                                                     Debuginfod* debuginfod) {
  // The kernel's own mappings, such as [vdso], have no file.
  const bool is_below = !places.sysroot.empty() && absl::StartsWith(mapping.path, "/");
  if (mapping.inode == 0 && !is_below && !HasOnlyBuildId(mapping)) return absl::NotFoundError("no file");
  absl::StatusOr<process::MappedFile> file = !places.sysroot.empty()   ? OpenBelow(places.sysroot, mapping.path)
                                             : HasOnlyBuildId(mapping) ? OpenBelow("/", mapping.path)
                                                                       : OpenHere(mapping, time_);
  file = SameBuild(std::move(file), mapping);
  if (!file.ok() && debuginfod != nullptr && !mapping.build_id.empty()) {
    base::FileDescriptor fetched = debuginfod->FindProgram(mapping.build_id, mapping.path);
    if (fetched.valid() && symbolize::IsDebugFile({.build_id = mapping.build_id}, fetched.get())) {
      return process::MappedFile{.file = std::move(fetched), .path = {}};
    }
  }
  if (!file.ok()) missing_.insert(mapping.path);
  return file;
}

void LocalNames::LookUp(worker::Symbolizer& symbolizer, const worker::JobFile& file,
                        absl::Span<const uint64_t> addresses) {
  std::vector<uint64_t> offsets;
  offsets.reserve(addresses.size());
  for (const uint64_t address : addresses) offsets.push_back(worker::FileOffset(file.mapping, address));
  const std::vector<symbolize::Frames> found = symbolizer.Symbolize(getuid(), file, offsets);
  if (symbolizer.gap() != symbolize::Gap::kNone) gaps_[symbolizer.gap()].insert(file.mapping.path);
  for (size_t i = 0; i < addresses.size(); i++) {
    std::vector<profile::SourceFrame>& frames = frames_[addresses[i]];
    for (const symbolize::Frame& frame : found[i]) {
      frames.push_back(
          {.function = std::string(frame.function.view()), .file = std::string(frame.file.view()), .line = frame.line});
    }
  }
}

profile::FindSourceFrames LocalNames::Find() const {
  return [this](uint64_t address) {
    const auto found = frames_.find(address);
    return found == frames_.end() ? std::vector<profile::SourceFrame>() : found->second;
  };
}

}  // namespace heaptap::cli
