// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/allocator_advice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "userspace/base/messages.h"
#include "userspace/process/preload.h"
#include "userspace/process/sanitizers.h"

namespace heaptap::daemon {
namespace {

using process::MallocKind;

// The advice for programs that no preloaded library reaches.
constexpr absl::string_view kWithoutPreload =
    "link it with libheaptap.a, or with libheaptap-guest.a and -Wl,--wrap to keep its allocator, or let its allocator "
    "call heaptap_sample_alloc of heaptap/sample.h; libheaptap-guest(3) describes all three";

// The kernel keeps this many bytes of the name of a process.
constexpr size_t kMostOfCommand = 15;

absl::string_view NameOf(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

const CodeFile* FindProgram(const Evidence& evidence) {
  const auto found = std::ranges::find_if(evidence.files, &CodeFile::is_program);
  return found != evidence.files.end() ? &*found : nullptr;
}

bool HasOwnMalloc(const CodeFile& program) {
  return program.traits.exports_malloc != 0 || program.traits.has_own_malloc != 0;
}

bool IsStatic(const CodeFile& program) { return program.traits.has_interpreter == 0; }

bool IsLibc(const CodeFile& file) {
  return file.traits.kind == MallocKind::kGlibc || file.traits.kind == MallocKind::kMusl;
}

// The entries of LD_PRELOAD, without libraries of heaptap.
std::vector<std::string> OtherPreloads(const Evidence& evidence) {
  std::vector<std::string> others = process::SplitPreload(base::AsciiOnly(evidence.start.preload));
  std::erase_if(others, [&](const std::string& entry) {
    return NameOf(entry) == NameOf(evidence.allocator) || NameOf(entry) == NameOf(evidence.guest);
  });
  return others;
}

// The file whose malloc the program calls. Null: unknown. The dynamic linker looks into the program, then into the
// preloaded libraries, then into other libraries, and into libc last. It maps the first of these other libraries
// highest.
const CodeFile* FindMalloc(const Evidence& evidence) {
  if (const CodeFile* program = FindProgram(evidence); program != nullptr && HasOwnMalloc(*program)) return program;
  const auto is_candidate = [](const CodeFile& file) { return file.traits.exports_malloc != 0 && !file.is_heaptap; };
  for (const std::string& entry : OtherPreloads(evidence)) {
    const auto found = std::ranges::find_if(
        evidence.files, [&](const CodeFile& file) { return is_candidate(file) && NameOf(file.path) == NameOf(entry); });
    if (found != evidence.files.end()) return &*found;
  }
  const CodeFile* best = nullptr;
  for (const CodeFile& file : evidence.files) {
    if (!is_candidate(file)) continue;
    if (best == nullptr || !IsLibc(file) || IsLibc(*best)) best = &file;
  }
  return best;
}

// "jemalloc", or "the allocator of libfoo.so".
std::string NameOfAllocator(const CodeFile* file) {
  if (file == nullptr) return "its allocator";
  const std::string kind = process::MallocKindName(file->traits.kind);
  return kind.empty() ? absl::StrCat("the allocator of ", NameOf(file->path)) : kind;
}

// The command as it was typed, as far as the process still shows it.
std::string CommandLine(const Evidence& evidence) {
  std::vector<std::string> words = evidence.start.arguments;
  if (words.empty()) return process::ShellWords({evidence.program});
  // Servers write a title over their arguments.
  const bool is_title = absl::StrContains(words[0], ' ') || (words.size() > 1 && words.back().empty());
  std::string first = words[0].substr(0, words[0].find(' '));
  // A login shell has a hyphen before its name, and a script has the path of its interpreter.
  if (NameOf(first).substr(0, kMostOfCommand) != evidence.command) first = evidence.program;
  if (is_title) return absl::StrCat(process::ShellWords({first}), " ...");
  words[0] = std::move(first);
  return process::ShellWords(words);
}

std::string Preloading(const Evidence& evidence) {
  const std::string command = CommandLine(evidence);
  const std::string others = absl::StrJoin(OtherPreloads(evidence), ":");
  const std::string behind = others.empty() ? "" : absl::StrCat(":", others);
  const std::string before = others.empty() ? "" : absl::StrCat("LD_PRELOAD=", others, " ");
  const CodeFile* const used = FindMalloc(evidence);
  // AddressSanitizer ends a program in which another allocator takes its place.
  const bool is_jealous = used != nullptr && used->traits.kind == MallocKind::kAddressSanitizer;
  const std::string option = is_jealous ? absl::StrCat(process::kLinkOrderOption, " ") : "";
  std::string text =
      absl::StrCat("to keep ", NameOfAllocator(used), ": ", option, before, "heaptap run --guest -- ", command, ", or ",
                   option, "LD_PRELOAD=", evidence.guest, behind, " ", command, " and then heaptap attach");
  if (!is_jealous) {
    absl::StrAppend(&text, "; for heaptap's own allocator: LD_PRELOAD=", evidence.allocator, behind);
  }
  if (evidence.start.has_other_mounts) {
    absl::StrAppend(&text,
                    "; it is in a container (another mount namespace): the library must be there too, and LD_PRELOAD "
                    "has its path there");
  }
  return text;
}

}  // namespace

std::string AllocatorInUse(const Evidence& evidence) {
  const CodeFile* program = FindProgram(evidence);
  const CodeFile* used = FindMalloc(evidence);
  if (program != nullptr && program->traits.is_go != 0) {
    return used == nullptr ? "Go's own, which is not a malloc"
                           : absl::StrCat("Go's own, which is not a malloc; its C code uses ", NameOfAllocator(used));
  }
  if (program != nullptr && IsStatic(*program)) {
    const std::string kind = process::MallocKindName(program->traits.kind);
    return absl::StrCat(kind.empty() ? "unknown" : kind, ", in the program, which is statically linked");
  }
  if (used == nullptr) return "none is known: no file of the process exports malloc";
  const std::string kind = process::MallocKindName(used->traits.kind);
  if (used == program) return absl::StrCat(kind.empty() ? "its own" : kind, ", in the program itself");
  return absl::StrCat(kind.empty() ? "unknown" : kind, " (", used->path, ")");
}

std::string HowToProfile(const Evidence& evidence) {
  if (!evidence.foreign.empty()) {
    return absl::StrCat(evidence.foreign, ", and heaptap records 64-bit programs for x86-64 only");
  }
  const CodeFile* program = FindProgram(evidence);
  const bool is_static = program != nullptr && IsStatic(*program);
  if (program != nullptr && program->traits.is_go != 0) {
    const std::string own = "use Go's heap profiler (runtime/pprof) for Go's heap";
    return is_static ? own : absl::StrCat(own, "; for the memory of its C code: ", Preloading(evidence));
  }
  if (is_static) {
    return absl::StrCat("the program is statically linked, and nothing can be preloaded: ", kWithoutPreload);
  }
  if (program != nullptr && HasOwnMalloc(*program) && process::IsSanitizer(program->traits.kind)) {
    return absl::StrCat("the program has ", process::MallocKindName(program->traits.kind),
                        ", and no preloaded library takes the place of its malloc: build it without");
  }
  if (program != nullptr && HasOwnMalloc(*program)) {
    return absl::StrCat("the program has an allocator of its own, and no preloaded library takes its place: ",
                        kWithoutPreload);
  }
  if (evidence.start.is_secure) {
    return absl::StrCat(
        "the program is set-user-ID or has capabilities of its own, and then LD_PRELOAD is ignored: start it as the "
        "user whose rights it needs, or ",
        kWithoutPreload);
  }
  if (const CodeFile* used = FindMalloc(evidence);
      used != nullptr && used->traits.kind == MallocKind::kThreadSanitizer) {
    return "the program has ThreadSanitizer, with which no library of heaptap can run: build it without";
  }
  return Preloading(evidence);
}

}  // namespace heaptap::daemon
