// SPDX-License-Identifier: Apache-2.0
#include "userspace/symbolize/resolve.h"

#include <elf.h>
#include <string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/elf/file.h"
#include "userspace/elf/known_code.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/symbolize/demangle.h"
#include "userspace/symbolize/dwarf_frames.h"
#include "userspace/symbolize/function_names.h"
#include "userspace/symbolize/mini_debug_info.h"

namespace heaptap::symbolize {
namespace {

std::optional<uint64_t> OffsetToAddress(const elf::File& file, uint64_t offset) {
  for (const elf::Segment& segment : file.segments()) {
    if (segment.type != PT_LOAD || (segment.flags & PF_X) == 0) continue;
    if (offset < segment.offset || offset - segment.offset >= segment.file_size) continue;
    return segment.address + (offset - segment.offset);
  }
  return std::nullopt;
}

// The name that gdb gives such a frame.
constexpr char kSignalFrame[] = "<signal handler called>";

// Addresses in ascending order, and their indexes in the question. Their order may differ from that of file offsets.
struct Addresses {
  std::vector<uint64_t> values;
  std::vector<size_t> indexes;
};

Addresses ToAddresses(const elf::File& file, absl::Span<const uint64_t> file_offsets) {
  std::vector<std::pair<uint64_t, size_t>> pairs;
  for (size_t index = 0; index < file_offsets.size(); index++) {
    std::optional<uint64_t> address = OffsetToAddress(file, file_offsets[index]);
    if (address.has_value()) pairs.emplace_back(*address, index);
  }
  std::sort(pairs.begin(), pairs.end());
  Addresses addresses;
  for (const auto& [address, index] : pairs) {
    addresses.values.push_back(address);
    addresses.indexes.push_back(index);
  }
  return addresses;
}

bool IsCompressedWithZstd(const elf::File& file) {
  constexpr uint32_t kZstd = 2;  // ELFCOMPRESS_ZSTD, which older headers do not have
  const elf::Section* section = file.FindSection(".debug_info");
  if (section == nullptr || (section->flags & SHF_COMPRESSED) == 0) return false;
  const absl::StatusOr<std::string> head =
      file.Read(section->offset, sizeof(Elf64_Chdr), sizeof(Elf64_Chdr), "a header");
  Elf64_Chdr header;
  if (!head.ok()) return false;
  memcpy(&header, head->data(), sizeof(header));
  return header.ch_type == kZstd;
}

class Resolver {
 public:
  Resolver(absl::FunctionRef<void(absl::string_view)> write, Addresses addresses)
      : write_(write), addresses_(std::move(addresses)), names_(addresses_.values.size()) {}

  // Whether the file has such a table. A broken table counts as empty; another table may have names.
  bool TrySymbols(const elf::File& file, SymbolTable table) {
    return !absl::IsNotFound(FindFunctionNames(file, table, addresses_.values, names_));
  }

  // Takes the names of a stripped file from .gnu_debugdata.
  void TryMiniDebugInfo(const elf::File& file) {
    const absl::StatusOr<std::string> bytes = ReadMiniDebugInfo(file);
    if (!bytes.ok()) return;
    const absl::StatusOr<elf::File> inner = elf::File::OpenBytes(*bytes);
    if (inner.ok()) TrySymbols(*inner, SymbolTable::kStatic);
  }

  // The kernel makes the frame of a signal, without a call. So the address before the return address of such a frame
  // may be an address of other code.
  void NameSignalReturns(const elf::File& file) {
    constexpr size_t kBytes = elf::kSignalReturn.size() + 1;
    for (size_t index = 0; index < names_.size(); index++) {
      const std::optional<uint64_t> offset = file.AddressToOffset(addresses_.values[index], PF_X);
      if (!offset.has_value()) continue;
      const absl::StatusOr<std::string> code = file.Read(*offset, kBytes, kBytes, "code");
      if (code.ok() && absl::StrContains(*code, elf::kSignalReturn)) names_[index] = kSignalFrame;
    }
  }

  void WriteSymbols() {
    for (size_t index = 0; index < names_.size(); index++) WriteName(index, names_[index]);
    Finish(Stage::kSymbols);
  }

  void WriteDemangled() {
    for (size_t index = 0; index < names_.size(); index++) WriteName(index, Demangled(names_[index]));
    Finish(Stage::kDemangled);
  }

  // `file` is open at `fd`.
  void WriteDwarf(const elf::File& file, int fd, int shared_fd) {
    const DwarfReading reading =
        FindDwarfFrames(fd, shared_fd, addresses_.values, [&](size_t index, const std::vector<DwarfFrame>& frames) {
          std::vector<AnswerWriter::FrameNumbers> numbers;
          for (size_t at = 0; at < frames.size(); at++) {
            const bool is_inline = at + 1 < frames.size();
            numbers.push_back({.function = writer_.TextNumber(FunctionName(frames[at], is_inline, names_[index])),
                               .file = writer_.TextNumber(frames[at].file),
                               .line = frames[at].line,
                               .is_inline = is_inline});
          }
          writer_.WriteFrames(addresses_.indexes[index], numbers);
          Flush();
        });
    if (reading.is_split) writer_.WriteGap(Gap::kSplit);
    if (!reading.was_read && IsCompressedWithZstd(file)) writer_.WriteGap(Gap::kZstd);
    Finish(Stage::kDwarf);
  }

  // Called even for a stage that has nothing to look up.
  void Finish(Stage stage) {
    writer_.WriteStageDone(stage);
    write_(writer_.TakeBytes());
  }

 private:
  void WriteName(size_t index, const std::string& name) {
    if (name.empty()) return;
    const AnswerWriter::FrameNumbers frame = {
        .function = writer_.TextNumber(name), .file = 0, .line = 0, .is_inline = 0};
    writer_.WriteFrames(addresses_.indexes[index], {&frame, 1});
    Flush();
  }

  void Flush() {
    constexpr size_t kPieceBytes = 1 << 15;
    if (writer_.size() >= kPieceBytes) write_(writer_.TakeBytes());
  }

  // For a function that is local to its file, debug information has no linker's name, and so no parameters; the symbol
  // table has one. For other functions, the symbol table may have an alias or the name of a clone ("f.constprop.0"). A
  // function with C linkage has no scope for the linker.
  const std::string& FunctionName(const DwarfFrame& frame, bool is_inline, const std::string& symbol) {
    if (!frame.is_linkage_name && !is_inline) {
      const std::string& demangled = Demangled(symbol);
      const bool has_c_linkage = absl::EndsWith(frame.function, absl::StrCat("::", symbol));
      if (frame.function.empty() || demangled != symbol || has_c_linkage) return demangled;
    }
    return Demangled(frame.function);
  }

  // Names repeat, and demangling takes longer than a look-up.
  const std::string& Demangled(const std::string& name) {
    auto [at, inserted] = demangled_.try_emplace(name);
    if (inserted) at->second = Demangle(name);
    return at->second;
  }

  absl::FunctionRef<void(absl::string_view)> write_;
  Addresses addresses_;
  std::vector<std::string> names_;
  AnswerWriter writer_;
  absl::flat_hash_map<std::string, std::string> demangled_;
};

}  // namespace

absl::Status Resolve(const Question& question, absl::FunctionRef<void(absl::string_view)> write) {
  absl::StatusOr<elf::File> mapped = elf::File::Open(question.fd);
  if (!mapped.ok()) return absl::InvalidArgumentError(mapped.status().message());
  DebugLinks links = ReadDebugLinks(*mapped);
  int debug = -1;
  std::optional<elf::File> debug_file;
  for (const int fd : question.debug_files) {
    if (fd < 0 || debug_file.has_value() || !IsDebugFile(links, fd)) continue;
    absl::StatusOr<elf::File> file = elf::File::Open(fd);
    if (!file.ok()) continue;
    debug = fd;
    debug_file = *std::move(file);
  }
  int shared = -1;
  for (const int fd : question.shared_files) {
    if (shared < 0) shared = fd;
  }

  Resolver resolver(write, ToAddresses(*mapped, question.file_offsets));
  bool has_all = resolver.TrySymbols(*mapped, SymbolTable::kStatic);
  if (debug_file.has_value()) has_all |= resolver.TrySymbols(*debug_file, SymbolTable::kStatic);
  // Before mini debug information, which leaves out the dynamic symbols: a local symbol without a size would extend
  // over the exported functions that follow it.
  resolver.TrySymbols(*mapped, SymbolTable::kDynamic);
  if (!has_all) resolver.TryMiniDebugInfo(*mapped);
  resolver.NameSignalReturns(*mapped);
  resolver.WriteSymbols();
  if (question.last_stage < Stage::kDemangled) return absl::OkStatus();
  resolver.WriteDemangled();
  if (question.last_stage < Stage::kDwarf) return absl::OkStatus();
  // Debug information in the mapped file is certainly of the right version.
  if (links.has_debug_information) {
    resolver.WriteDwarf(*mapped, question.fd, shared);
  } else if (debug_file.has_value()) {
    resolver.WriteDwarf(*debug_file, debug, shared);
  } else {
    resolver.Finish(Stage::kDwarf);
  }
  return absl::OkStatus();
}

}  // namespace heaptap::symbolize
