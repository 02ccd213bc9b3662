// SPDX-License-Identifier: Apache-2.0
//
// The collector's unwind tables on the real kernel, and small files that this process maps.
#ifndef HEAPTAP_TESTS_UNIT_UNWIND_TABLES_FIXTURE_H_
#define HEAPTAP_TESTS_UNIT_UNWIND_TABLES_FIXTURE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/unwind_image.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/identify.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/process/maps.h"
#include "userspace/tables/unwind_tables.h"

namespace heaptap::recording {

using unwind::EhFrame;
using unwind::kCode;

inline constexpr uint64_t kNode = 4096;

// A file mapped by this process, of one page that lies at its code.
class MappedImage {
 public:
  explicit MappedImage(const std::string& bytes) : file_(elf::FileWith(elf::Padded(bytes, 0x3000))) {
    address_ = mmap(nullptr, kSize, PROT_READ | PROT_EXEC, MAP_PRIVATE, file_.get(), kOffset);
    EXPECT_NE(address_, MAP_FAILED);
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
    for (const elf::Mapping& one : *mappings) {
      if (one.start == reinterpret_cast<uint64_t>(address_)) mapping = one;
    }
  }
  ~MappedImage() { munmap(address_, kSize); }
  MappedImage(const MappedImage&) = delete;
  MappedImage& operator=(const MappedImage&) = delete;

  int fd() const { return file_.get(); }
  // Where a link-time address of the code lies in this process.
  uint64_t At(uint64_t address) const { return mapping.start + address - kCode; }

  elf::Mapping mapping;

 private:
  static constexpr uint64_t kOffset = 0x1000;
  static constexpr uint64_t kSize = 0x1000;

  base::FileDescriptor file_;
  void* address_;
};

// Functions of two bytes each, whose CFA is `words`, or one more, above RSP.
inline std::string Image(uint64_t functions, uint64_t words) {
  EhFrame frames;
  const uint64_t cie = frames.AddCie();
  for (uint64_t i = 0; i < functions; i++) {
    frames.AddFde(cie, kCode + 2 * i, 2, unwind::DefCfaOffset(8 * (words + i % 2)));
  }
  return unwind::ImageWith(frames).Bytes();
}

// One node.
inline std::string Small(uint64_t words) { return Image(1, words); }

inline uint32_t Words(int words) { return heaptap_unwind_rule(HEAPTAP_CFA_RSP, words, 0, 0, 0); }

class UnwindTablesTest : public ::testing::Test {
 protected:
  absl::Status Load(uint64_t nodes = 100, uint32_t files = 100) {
    bpf::MapSizes sizes;
    sizes.files = files;
    sizes.unwind_bytes = nodes * kNode;
    absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load(sizes);
    if (!books.ok()) return books.status();
    books_ = *std::move(books);
    looks_.emplace(identify(), base::SubordinateIds(), worker::HandsBounds{.patience = absl::Minutes(1)});
    tables_ = std::make_unique<UnwindTables>(Means(), sizes.unwind_bytes);
    return absl::OkStatus();
  }
  UnwindTables::Means Means() { return MeansWith(errands_); }
  UnwindTables::Means MeansWith(worker::Errands& errands) {
    return {.maps = maps(), .identify = identify(), .looks = *looks_, .orders = *looks_, .errands = errands};
  }
  int identify() const { return books_->program(bpf::Program::kIdentify); }
  void Settle() {
    WaitUntil(errands_, [this] { return !tables_->IsReading(); });
  }
  void WaitUntil(worker::Errands& errands, const std::function<bool()>& is_over) {
    const base::Instant end = base::Now() + absl::Minutes(1);
    // What a look has found is then read.
    EXPECT_TRUE(looks_->WaitUntil([this] { return looks_->IsIdle(); }, end));
    EXPECT_TRUE(errands.WaitUntil(is_over, end));
    while (tables_->kernel().IsLoading()) tables_->kernel().LoadSome();
  }

  bpf::UnwindMaps& maps() { return books_->unwind(); }

  heaptap_file_key KeyOf(const MappedImage& image) {
    const absl::StatusOr<heaptap_identify> found = bpf::Identify(identify(), image.fd());
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->file : heaptap_file_key{};
  }
  // The messages printed meanwhile.
  std::string Enter(const MappedImage& image) { return Enter(KeyOf(image), image); }
  std::string Enter(const heaptap_file_key& key, const MappedImage& image) {
    testing::internal::CaptureStderr();
    tables_->Enter(key, getpid(), image.mapping);
    Settle();
    return testing::internal::GetCapturedStderr();
  }
  // enum heaptap_file_state; -1 if the kernel does not know it.
  int StateOf(const MappedImage& image) {
    const std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    return file.has_value() ? static_cast<int>(file->state) : -1;
  }
  uint32_t TableOf(const MappedImage& image) {
    const std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    return file.has_value() ? file->table : 0;
  }
  // Another collector takes the maps over.
  void Restart(uint64_t nodes = 100) { tables_ = std::make_unique<UnwindTables>(Means(), nodes * kNode); }
  uint32_t FindRule(const MappedImage& image, uint64_t address) {
    return tables_->FindRule(image.mapping, image.At(address));
  }
  // Marks a table as used, as a program does that looks for a row: long ago, or from now on.
  void SetLastUsed(const MappedImage& image, bool is_recent) {
    std::optional<heaptap_file> file = maps().ReadFile(KeyOf(image));
    ASSERT_TRUE(file.has_value());
    file->last_used = is_recent ? (base::Now() + absl::Hours(1)).nanoseconds() : 1;
    EXPECT_TRUE(maps().SetFile(KeyOf(image), *file).ok());
  }

  std::unique_ptr<bpf::Books> books_;
  std::optional<worker::Looks> looks_;
  worker::Errands errands_{worker::Urgency::kForeground};
  std::unique_ptr<UnwindTables> tables_;
};

inline size_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace heaptap::recording

#endif  // HEAPTAP_TESTS_UNIT_UNWIND_TABLES_FIXTURE_H_
