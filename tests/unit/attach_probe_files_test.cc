// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/elf_image.h"
#include "tests/unit/need_bpf.h"
#include "userspace/attach/probe_files.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/probes.h"
#include "userspace/process/allocator_probes.h"

namespace heaptap::recording {
namespace {

using elf::ElfImage;
using elf::ProbeNote;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kText = 0x401000;
constexpr uint64_t kTextOffset = 0x1000;
constexpr uint64_t kTextBytes = 0x800;
constexpr uint64_t kData = 0x402000;
constexpr uint64_t kDataBytes = 0x100;

// A file whose code consists of nops, and its notes.
base::FileDescriptor FileWithNotes(const std::string& notes, uint64_t data_offset = kTextOffset) {
  ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, kTextOffset, kTextBytes, kText);
  image.AddSegment(PT_LOAD, PF_R | PF_W, data_offset, kDataBytes, kData);
  image.AddSection(".note.stapsdt", SHT_NOTE, notes);
  std::string bytes = image.Bytes();
  EXPECT_LT(bytes.size(), kTextOffset);
  bytes.resize(kTextOffset);
  bytes += std::string(kTextBytes, '\x90');
  return elf::FileWith(bytes);
}

const std::string kAlloc = ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", kText + 0x10);
const std::string kFree = ProbeNote("otel_memory", "free", "8@%rdi", kText + 0x20);
const std::string kStart = ProbeNote("heaptap", "start", "8@%rdi", kText + 0x30);
const std::string kDump = ProbeNote("heaptap", "dump", "8@%rdi", kText + 0x40);

TEST(ReadAllocatorProbes, WholeContract) {
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree + kStart + kDump);
  absl::StatusOr<process::AllocatorProbes> probes = process::ReadAllocatorProbes(file.get());
  ASSERT_TRUE(probes.ok()) << probes.status();
  EXPECT_TRUE(probes->HasSamples());
  EXPECT_THAT(probes->sites, SizeIs(4));
}

TEST(ReadAllocatorProbes, SamplesNeedBothEnds) {
  EXPECT_TRUE(process::ReadAllocatorProbes(FileWithNotes(kAlloc + kFree).get())->HasSamples());
  EXPECT_FALSE(process::ReadAllocatorProbes(FileWithNotes(kAlloc).get())->HasSamples());
  EXPECT_FALSE(process::ReadAllocatorProbes(FileWithNotes(kFree + kStart).get())->HasSamples());
  EXPECT_FALSE(process::ReadAllocatorProbes(FileWithNotes("").get())->HasSamples());
}

TEST(ReadAllocatorProbes, OtherProvidersAreNotLookedAt) {
  const std::string other =
      ProbeNote("libc", "alloc", "8@16(%rsp)", kText + 0x10) + ProbeNote("libc", "free", "8@%rdi", kText + 0x20);
  absl::StatusOr<process::AllocatorProbes> probes = process::ReadAllocatorProbes(FileWithNotes(other).get());
  ASSERT_TRUE(probes.ok()) << probes.status();
  EXPECT_FALSE(probes->HasSamples());
}

TEST(ReadAllocatorProbes, ArgumentsMustLieInTheirRegisters) {
  for (const char* arguments : {"8@%rsi 8@%rdi 8@%rdx", "8@%rdi 8@%rsi", "", "8@%rdi 4@%esi 8@%rdx", "8@8(%rsp)"}) {
    const std::string alloc = ProbeNote("otel_memory", "alloc", arguments, kText + 0x10);
    const absl::Status status = process::ReadAllocatorProbes(FileWithNotes(alloc + kFree).get()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << arguments;
    EXPECT_THAT(status.message(), HasSubstr("otel_memory:alloc"));
  }
}

TEST(ReadAllocatorProbes, SemaphoresBeyondFourGibibytes) {
  // The segment of data is moved in the file, not in memory.
  constexpr uint64_t kFar = uint64_t{1} << 32;
  const std::string alloc = ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", kText + 0x10, kData + 0x10);
  EXPECT_TRUE(process::ReadAllocatorProbes(FileWithNotes(alloc + kFree).get()).ok());
  const absl::Status status = process::ReadAllocatorProbes(FileWithNotes(alloc + kFree, kFar).get()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("beyond 4 GiB"));
}

std::string AsManySites(int count) {
  std::string notes = kAlloc;
  for (int i = 1; i < count; i++) notes += ProbeNote("otel_memory", "free", "8@%rdi", kText + 0x30 + i);
  return notes;
}

TEST(ReadAllocatorProbes, NotElf) {
  absl::StatusOr<process::AllocatorProbes> probes = process::ReadAllocatorProbes(elf::FileWith("#!/bin/sh\n").get());
  ASSERT_TRUE(probes.ok()) << probes.status();
  EXPECT_FALSE(probes->HasSamples());
}

class ProbeFilesTest : public ::testing::Test {
 protected:
  absl::Status Load() {
    absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load({});
    if (!books.ok()) return books.status();
    books_ = *std::move(books);
    files_ = std::make_unique<ProbeFiles>(*books_, errands_);
    return absl::OkStatus();
  }
  SeenFile See(const base::FileDescriptor& file) {
    absl::StatusOr<SeenFile> seen = OpenOwn(*books_, absl::StrCat("/proc/self/fd/", file.get()));
    EXPECT_TRUE(seen.ok()) << seen.status();
    seen->name = "the file";
    return *std::move(seen);
  }
  absl::StatusOr<bool> Attach(const base::FileDescriptor& file, pid_t pid = ProbeFiles::kEveryProcess) {
    return AttachAllocator(See(file), errands_, allocator_files_, *files_, pid);
  }
  static SeenFile OfAProcessThatIsGone(SeenFile seen) {
    seen.open = nullptr;
    seen.file = {.pid = 0x3ffffffe, .mapping = {.start = 4096, .end = 8192, .inode = 1}};
    return seen;
  }
  bool IsAttached(const base::FileDescriptor& file) { return files_->IsAttached(See(file).identity.inode_address); }
  std::unique_ptr<bpf::Books> books_;
  worker::Errands errands_{worker::Urgency::kForeground};
  AllocatorFiles allocator_files_{errands_};
  std::unique_ptr<ProbeFiles> files_;
};

TEST_F(ProbeFilesTest, AttachesOnce) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  absl::StatusOr<bool> attached = Attach(file);
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_TRUE(*attached);
  EXPECT_TRUE(IsAttached(file));
  attached = Attach(file);
  ASSERT_TRUE(attached.ok());
  EXPECT_TRUE(*attached);
  files_->Detach();
  EXPECT_FALSE(IsAttached(file));
}

TEST_F(ProbeFilesTest, WhoWaitsIsToldOnceThatAllProbesWereRemoved) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  std::vector<absl::Status> told;
  files_->Attach(See(file), *process::ReadAllocatorProbes(file.get()), ProbeFiles::kEveryProcess,
                 [&](const absl::Status& status) { told.push_back(status); });
  ASSERT_THAT(told, IsEmpty());
  files_->Detach();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_TRUE(absl::IsNotFound(told[0])) << told[0];
  // Its worker answers before that of the next file.
  ASSERT_TRUE(*Attach(FileWithNotes(kFree + kAlloc)));
  EXPECT_THAT(told, SizeIs(1));
  EXPECT_FALSE(IsAttached(file));
}

// The high bits of such an offset would be lost, and another place in the file would be counted up.
TEST(AttachedProbe, SemaphoresBeyondFourGibibytesAreRefused) {
  const absl::Status status =
      bpf::AttachedProbe::Attach(-1, {.path = "/proc/self/exe", .offset = 1, .semaphore_offset = uint64_t{1} << 32}, -1)
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("beyond 4 GiB"));
}

// In these files data and code are the same bytes. The sites of heaptap:rate lie behind its semaphores.
constexpr uint64_t kRateSemaphores = 0x60;
const std::string kRate = ProbeNote("heaptap", "rate", "", kText + 0x100, kData + kRateSemaphores);

base::FileDescriptor FileWithRate(const std::string& notes) {
  base::FileDescriptor file = FileWithNotes(notes);
  const std::string zeros(sizeof(uint16_t) * HEAPTAP_RATE_SITES, '\0');
  EXPECT_EQ(pwrite(file.get(), zeros.data(), zeros.size(), kTextOffset + kRateSemaphores),
            static_cast<ssize_t>(zeros.size()));
  return file;
}

class ToldRateTest : public ProbeFilesTest {
 protected:
  // Maps the file as a process would. Returns the least rate that its semaphores tell.
  static std::optional<uint32_t> ToldBy(const base::FileDescriptor& file) {
    const auto map = [&](size_t bytes, int protection, uint64_t offset) {
      return mmap(nullptr, bytes, protection, MAP_PRIVATE, file.get(), static_cast<off_t>(offset));
    };
    void* const text = map(kTextBytes, PROT_READ | PROT_EXEC, kTextOffset);
    void* const data = map(kTextBytes, PROT_READ | PROT_WRITE, kTextOffset);
    EXPECT_NE(text, MAP_FAILED);
    EXPECT_NE(data, MAP_FAILED);
    const auto* const semaphores = reinterpret_cast<const uint16_t*>(static_cast<const char*>(data) + kRateSemaphores);
    std::optional<uint32_t> told;
    for (uint32_t lg = 0; lg <= HEAPTAP_MAX_LG_SAMPLE && !told.has_value(); lg++) {
      if (semaphores[HEAPTAP_RATE_SITE(lg)] != 0) told = lg;
    }
    munmap(text, kTextBytes);
    munmap(data, kTextBytes);
    return told;
  }
};

TEST_F(ToldRateTest, ProcessesOfAFileAreTold) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithRate(kAlloc + kFree + kRate);
  const ProbeFiles::File inode = See(file).identity.inode_address;
  ASSERT_TRUE(*Attach(file));
  EXPECT_TRUE(files_->IsWhole(inode));
  EXPECT_EQ(ToldBy(file), std::nullopt);

  files_->TellRate(7);
  EXPECT_FALSE(files_->IsWhole(inode));
  EXPECT_TRUE(IsAttached(file));
  ASSERT_TRUE(*Attach(file));
  EXPECT_TRUE(files_->IsWhole(inode));
  EXPECT_EQ(ToldBy(file), 7u);

  files_->TellRate(3);
  EXPECT_FALSE(files_->IsWhole(inode));
  ASSERT_TRUE(*Attach(file));
  files_->TellRate(3);
  EXPECT_TRUE(files_->IsWhole(inode));
  EXPECT_EQ(ToldBy(file), 3u);

  while (files_->IsReleasing()) usleep(1000);
  files_->Release({inode});
  while (files_->IsReleasing()) usleep(1000);
  EXPECT_EQ(ToldBy(file), std::nullopt);
}

TEST_F(ToldRateTest, OneProcessIsNotTold) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithRate(kAlloc + kFree + kRate);
  files_->TellRate(7);
  ASSERT_TRUE(*Attach(file, getpid()));
  EXPECT_EQ(ToldBy(file), std::nullopt);
}

TEST_F(ToldRateTest, AFileWithoutTheProbeIsWhole) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  files_->TellRate(7);
  ASSERT_TRUE(*Attach(file));
  EXPECT_TRUE(files_->IsWhole(See(file).identity.inode_address));
}

// A row that begins in the file and ends behind it: the kernel refuses the site, and the samples are recorded all the
// same.
TEST_F(ToldRateTest, ARefusedRateIsSaidOnce) {
  NEED_BPF(Load());
  const std::string rate = ProbeNote("heaptap", "rate", "", kText + kTextBytes - 1, kData + kRateSemaphores);
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree + rate);
  files_->TellRate(7);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(*Attach(file));
  ASSERT_TRUE(*Attach(file));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the file: cannot tell its processes their rate before they start: "));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1);
  EXPECT_TRUE(IsAttached(file));
  EXPECT_TRUE(files_->IsWhole(See(file).identity.inode_address));
}

TEST_F(ToldRateTest, AFileThatIsRefusedTellsNothing) {
  NEED_BPF(Load());
  // Attached after the rate.
  const std::string alloc = ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", kText + kTextBytes - 1);
  const base::FileDescriptor file = FileWithRate(alloc + kFree + kRate);
  ASSERT_EQ(ftruncate(file.get(), kTextOffset + 0x200), 0);
  files_->TellRate(7);
  EXPECT_FALSE(Attach(file).ok());
  while (files_->IsReleasing()) usleep(1000);
  EXPECT_EQ(ToldBy(file), std::nullopt);
}

TEST_F(ProbeFilesTest, WhatHasNoSamplesIsLeftAlone) {
  NEED_BPF(Load());
  for (const std::string& notes : {std::string(), kAlloc, kStart + kDump}) {
    const base::FileDescriptor file = FileWithNotes(notes);
    absl::StatusOr<bool> attached = Attach(file);
    ASSERT_TRUE(attached.ok()) << attached.status();
    EXPECT_FALSE(*attached);
    EXPECT_FALSE(IsAttached(file));
  }
}

TEST_F(ProbeFilesTest, AReleasedFileIsAnyFileAgain) {
  NEED_BPF(Load());
  const base::FileDescriptor kept = FileWithNotes(kAlloc + kFree);
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  ASSERT_TRUE(*Attach(kept));
  ASSERT_TRUE(*Attach(file));
  ASSERT_THAT(files_->files(), SizeIs(2));
  files_->Release({See(file).identity.inode_address});
  EXPECT_FALSE(IsAttached(file));
  EXPECT_TRUE(IsAttached(kept));
  absl::StatusOr<bool> attached = Attach(file);
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_TRUE(*attached);
  EXPECT_TRUE(IsAttached(file));
}

TEST_F(ProbeFilesTest, AFileThatChangedIsLookedAtAgain) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes("");
  ASSERT_FALSE(*Attach(file));
  const base::FileDescriptor other = FileWithNotes(kAlloc + kFree);
  char bytes[kTextOffset + kTextBytes];
  ASSERT_EQ(pread(other.get(), bytes, sizeof(bytes), 0), sizeof(bytes));
  ASSERT_EQ(pwrite(file.get(), bytes, sizeof(bytes), 0), sizeof(bytes));
  absl::StatusOr<bool> attached = Attach(file);
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_TRUE(*attached);
}

TEST_F(ProbeFilesTest, AllOrNothing) {
  NEED_BPF(Load());
  // The last site that is attached lies beyond the end of the file.
  const std::string alloc = ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", kText + kTextBytes - 1);
  const base::FileDescriptor file = FileWithNotes(alloc + kFree + kDump);
  ASSERT_EQ(ftruncate(file.get(), kTextOffset + 0x100), 0);
  const absl::StatusOr<bool> attached = Attach(file);
  EXPECT_TRUE(absl::IsFailedPrecondition(attached.status())) << attached.status();
  EXPECT_FALSE(IsAttached(file));
}

TEST_F(ProbeFilesTest, BadNotesAreSaidWithTheFilesName) {
  NEED_BPF(Load());
  const absl::Status status =
      Attach(FileWithNotes(ProbeNote("otel_memory", "alloc", "8@8(%rsp)", kText) + kFree)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("the file: "));
}

TEST_F(ProbeFilesTest, AFileHasABoundOfSites) {
  NEED_BPF(Load());
  const base::FileDescriptor many = FileWithNotes(AsManySites(33));
  EXPECT_TRUE(absl::IsInvalidArgument(Attach(many).status()));
  EXPECT_FALSE(IsAttached(many));
}

// The kernel takes a tenth of a second to remove each.
TEST_F(ProbeFilesTest, AUserHasABoundOfFiles) {
  NEED_BPF(Load());
  constexpr uid_t kUser = 65534;
  constexpr int kMaxFiles = 32;
  std::vector<base::FileDescriptor> users;
  for (int i = 0; i <= kMaxFiles; i++) {
    users.push_back(FileWithNotes(kAlloc + kFree));
    ASSERT_EQ(fchown(users.back().get(), kUser, kUser), 0);
    const absl::Status status = Attach(users.back()).status();
    ASSERT_EQ(status.code(), i < kMaxFiles ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted) << status;
  }
  const base::FileDescriptor others = FileWithNotes(kAlloc + kFree);
  ASSERT_EQ(fchown(others.get(), kUser - 1, kUser - 1), 0);
  EXPECT_TRUE(Attach(others).ok());
  EXPECT_TRUE(Attach(FileWithNotes(kAlloc + kFree)).ok()) << "root's";
}

// A user maps a file, removes it, and ends. The kernel gives its address to a new file, which another user maps.
TEST_F(ProbeFilesTest, AFileAtTheAddressOfOneThatIsGone) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  const process::AllocatorProbes probes = *process::ReadAllocatorProbes(file.get());
  const SeenFile seen = See(file);
  std::vector<absl::Status> done;
  for (const SeenFile& one : {OfAProcessThatIsGone(seen), seen}) {
    files_->Attach(one, probes, ProbeFiles::kEveryProcess,
                   [&done](const absl::Status& status) { done.push_back(status); });
  }
  ASSERT_TRUE(errands_.WaitUntil([&done] { return done.size() == 2; }, base::Now() + absl::Minutes(1)));
  EXPECT_TRUE(absl::IsNotFound(done[0])) << done[0];
  EXPECT_TRUE(done[1].ok()) << done[1];
  EXPECT_TRUE(IsAttached(file));
}

// The same, and the kernel refuses the probes of the first one, which says nothing about the second.
TEST_F(ProbeFilesTest, AFileAtTheAddressOfOneThatIsRefused) {
  NEED_BPF(Load());
  const base::FileDescriptor refused = FileWithNotes(kAlloc + kFree);
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  const process::AllocatorProbes probes = *process::ReadAllocatorProbes(file.get());
  process::AllocatorProbes nowhere = probes;
  for (elf::ProbeSite& site : nowhere.sites) site.file_offset = uint64_t{1} << 40;
  SeenFile seen = See(file);
  const SeenFile before = See(refused);
  seen.identity.inode_address = before.identity.inode_address;
  std::vector<absl::Status> done;
  const auto note = [&done](const absl::Status& status) { done.push_back(status); };
  files_->Attach(before, nowhere, ProbeFiles::kEveryProcess, note);
  files_->Attach(seen, probes, ProbeFiles::kEveryProcess, note);
  ASSERT_TRUE(errands_.WaitUntil([&done] { return done.size() == 2; }, base::Now() + absl::Minutes(1)));
  EXPECT_FALSE(done[0].ok() || absl::IsNotFound(done[0])) << done[0];
  EXPECT_TRUE(absl::IsNotFound(done[1])) << done[1] << ": it was tried, but has another address";
}

// The first process that maps a library ends, while others have mapped it too.
TEST_F(ProbeFilesTest, AFileThatTheFirstProcessNoLongerMapsIsRead) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  const SeenFile seen = See(file);
  std::vector<absl::Status> read;
  for (const SeenFile& one : {OfAProcessThatIsGone(seen), seen}) {
    allocator_files_.Read(one, [&read](const AllocatorFiles::Allocator& found) { read.push_back(found.status()); });
  }
  ASSERT_TRUE(errands_.WaitUntil([&read] { return read.size() == 2; }, base::Now() + absl::Minutes(1)));
  EXPECT_TRUE(absl::IsNotFound(read[0])) << read[0];
  EXPECT_TRUE(read[1].ok()) << read[1];
}

TEST_F(ProbeFilesTest, AProcessThatIsGone) {
  NEED_BPF(Load());
  const base::FileDescriptor file = FileWithNotes(kAlloc + kFree);
  const absl::Status status = Attach(file, 0x3ffffffe).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

}  // namespace
}  // namespace heaptap::recording
