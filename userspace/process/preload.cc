// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/preload.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/elf/file.h"
#include "userspace/elf/functions.h"
#include "userspace/elf/symbols.h"
#include "userspace/process/handle.h"
#include "userspace/process/malloc_traits.h"

namespace heaptap::process {
namespace {

// The loader prints a line of some 100 bytes for each library.
constexpr size_t kMaxListBytes = 1 << 20;

std::string FindProgram(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* path = getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path != nullptr ? path : "/bin:/usr/bin", ':')) {
    std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", command);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return command;
}

const char* FileNameOf(Library which) { return which == Library::kGuest ? "libheaptap-guest.so" : "libheaptap.so"; }

bool IsSameFile(const std::string& one, const std::string& other) {
  struct stat status, other_status;
  return stat(one.c_str(), &status) == 0 && stat(other.c_str(), &other_status) == 0 &&
         status.st_dev == other_status.st_dev && status.st_ino == other_status.st_ino;
}

// Names that the dynamic linker replaces in a path (ld.so(8)).
bool HasToken(absl::string_view path) {
  for (const absl::string_view token : {"ORIGIN", "LIB", "PLATFORM"}) {
    if (absl::StrContains(path, absl::StrCat("$", token)) || absl::StrContains(path, absl::StrCat("${", token, "}"))) {
      return true;
    }
  }
  return false;
}

// The dynamic linker searches the program before it searches preloaded libraries.
std::string WhyMallocStays(const MallocTraits& program) {
  if (program.exports_malloc == 0) return "";
  const std::string kind = MallocKindName(program.kind);
  if (IsSanitizer(program.kind)) return absl::StrCat("it has ", kind, ", and with it a malloc of its own");
  return absl::StrCat("it has a malloc of its own", kind.empty() ? "" : absl::StrCat(", that of ", kind));
}

// What `loader --list program` prints. Empty if it fails.
std::string ListLibraries(const std::string& loader, const std::string& program) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  base::FileDescriptor from(ends[0]);
  base::FileDescriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::string list = "--list";
  std::string loader_copy = loader;
  std::string program_copy = program;
  char* arguments[] = {loader_copy.data(), list.data(), program_copy.data(), nullptr};
  pid_t pid;
  const int error = posix_spawn(&pid, loader.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return "";
  to.Reset();
  std::string text;
  char part[4096];
  for (ssize_t got; text.size() < kMaxListBytes && (got = read(from.get(), part, sizeof(part))) > 0;) {
    text.append(part, got);
  }
  from.Reset();
  int status;
  waitpid(pid, &status, 0);
  return text;
}

}  // namespace

absl::StatusOr<std::string> FindLibrary(Library which) {
  const char* const name = FileNameOf(which);
  const std::string executable = OwnExecutable();
  const std::string folder = executable.substr(0, executable.rfind('/'));
  const std::string candidates[] = {absl::StrCat(folder, "/", name), absl::StrCat(folder, "/../lib/heaptap/", name)};
  for (const std::string& candidate : candidates) {
    char resolved[PATH_MAX];
    if (realpath(candidate.c_str(), resolved) == nullptr) continue;
    if (strpbrk(resolved, " :") != nullptr || HasToken(resolved)) {
      return absl::FailedPreconditionError(
          absl::StrCat("LD_PRELOAD cannot contain the path '", resolved,
                       "': install heaptap under a path without spaces, ':' and $ORIGIN, $LIB or $PLATFORM"));
    }
    return std::string(resolved);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("cannot find ", name, ", neither at ", candidates[0], " nor at ", candidates[1]));
}

std::string PathToShow(Library which) {
  return FindLibrary(which).value_or(absl::StrCat("/path/to/", FileNameOf(which)));
}

std::vector<std::string> SplitPreload(absl::string_view value) {
  return absl::StrSplit(value, absl::ByAnyChar(" :"), absl::SkipEmpty());
}

absl::Status CheckPreload(Library which, const std::string& library) {
  const char* before = getenv("LD_PRELOAD");
  for (const std::string& entry : SplitPreload(before != nullptr ? before : "")) {
    const std::string name = entry.substr(entry.rfind('/') + 1);
    if (which == Library::kGuest && name == FileNameOf(Library::kAllocator)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "LD_PRELOAD has ", entry, ", which takes samples itself: remove it there, or leave out --guest"));
    }
    if (which == Library::kAllocator && name == FileNameOf(Library::kGuest)) {
      return absl::InvalidArgumentError(
          absl::StrCat("LD_PRELOAD has ", entry, ", the guest of another allocator: add --guest, or remove it there"));
    }
    if (which == Library::kGuest && name == FileNameOf(Library::kGuest) && !IsSameFile(entry, library)) {
      return absl::InvalidArgumentError(
          absl::StrCat("LD_PRELOAD has ", entry, ", another copy than ", library, " of --guest: remove it there"));
    }
  }
  return absl::OkStatus();
}

void SetPreloadEnvironment(const std::string& library, std::optional<uint32_t> lg_sample, bool gives_areas) {
  const char* before = getenv("LD_PRELOAD");
  const std::string preload = before != nullptr && *before != '\0' ? absl::StrCat(library, ":", before) : library;
  setenv("LD_PRELOAD", preload.c_str(), 1);

  // The process must know its collector before its first dump request.
  std::string conf = absl::StrCat("collector:", getpid());
  if (lg_sample.has_value()) absl::StrAppend(&conf, ",lg_prof_sample:", *lg_sample);
  if (gives_areas) absl::StrAppend(&conf, ",areas:true");
  const char* conf_before = getenv(HEAPTAP_CONF_VARIABLE);
  if (conf_before != nullptr && *conf_before != '\0') conf = absl::StrCat(conf_before, ",", conf);
  setenv(HEAPTAP_CONF_VARIABLE, conf.c_str(), 1);
}

std::vector<std::string> PathsInPreloadFile(absl::string_view text) {
  std::vector<std::string> paths;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    // The dynamic linker takes the rest of a line for a comment.
    line = line.substr(0, line.find('#'));
    for (const absl::string_view path : absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty())) {
      if (path.front() == '/' && !absl::StrContains(path, '$')) paths.emplace_back(path);
    }
  }
  return paths;
}

std::vector<std::string> FilesOfProgram(const std::string& command) {
  const std::string program = FindProgram(command);
  base::FileDescriptor file(open(program.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return {};
  std::vector<std::string> files = {program};
  absl::StatusOr<std::string> loader = elf::ReadInterpreter(file.get());
  if (!loader.ok()) return files;
  // Lines are "name => path (address)" or "path (address)".
  for (absl::string_view line : absl::StrSplit(ListLibraries(*loader, program), '\n')) {
    if (const size_t arrow = line.find("=> "); arrow != absl::string_view::npos) line.remove_prefix(arrow + 3);
    line = absl::StripAsciiWhitespace(line.substr(0, line.rfind(" (")));
    if (absl::StartsWith(line, "/")) files.emplace_back(line);
  }
  return files;
}

std::string WhyForeign(const std::string& path) {
  base::FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  // A 32-bit header is shorter than a 64-bit one, and has the machine at the same place.
  Elf32_Ehdr header;
  if (!fd.valid() || pread(fd.get(), &header, sizeof(header), 0) != sizeof(header)) return "";
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "";
  if (header.e_machine != EM_X86_64 && header.e_machine != EM_386) return "it is for a machine other than x86-64";
  return header.e_ident[EI_CLASS] != ELFCLASS64 ? "it is a 32-bit program" : "";
}

std::string WhyNotPreloadable(const std::string& command) {
  const std::string program = FindProgram(command);
  if (std::string why = WhyForeign(program); !why.empty()) return why;
  base::FileDescriptor fd(open(program.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return "";
  const absl::StatusOr<elf::File> file = elf::File::Open(fd.get());
  if (!file.ok()) return "";
  const MallocTraits traits = ReadMallocTraits(*file);
  if (traits.has_interpreter != 0) return WhyMallocStays(traits);
  if (traits.is_go != 0) {
    return "it is a Go program without C code, which allocates by itself: Go's runtime/pprof profiles it";
  }
  // The dynamic linker itself may be the program.
  constexpr absl::string_view kOfLinkers = "__tls_get_addr";
  return elf::FindFunctions(*file, {kOfLinkers}).exported.empty() ? "it is statically linked" : "";
}

}  // namespace heaptap::process
