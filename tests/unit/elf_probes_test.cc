// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/probes.h"

// One real probe, with a semaphore, as an assembler and a linker make it.
extern "C" {
__attribute__((section(".probes"), used)) volatile uint16_t heaptap_probes_test_semaphore = 0;
}
__attribute__((noinline, used)) static void RealProbe(const void* pointer) {
  asm volatile(
      "990: nop\n"
      ".pushsection .note.stapsdt,\"?\",\"note\"\n"
      ".balign 4\n"
      ".4byte 992f-991f, 994f-993f, 3\n"
      "991: .asciz \"stapsdt\"\n"
      "992: .balign 4\n"
      "993: .8byte 990b, _.stapsdt.base, heaptap_probes_test_semaphore\n"
      ".asciz \"probes_test\"\n"
      ".asciz \"real\"\n"
      ".asciz \"8@%%rdi\"\n"
      "994: .balign 4\n"
      ".popsection\n"
      ".ifndef _.stapsdt.base\n"
      ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
      ".weak _.stapsdt.base\n"
      ".hidden _.stapsdt.base\n"
      "_.stapsdt.base: .space 1\n"
      ".size _.stapsdt.base, 1\n"
      ".popsection\n"
      ".endif\n" ::"D"(pointer));
}

namespace heaptap::elf {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kText = 0x401000;  // link-time address of the code, at file offset 0x1000
constexpr uint64_t kData = 0x502000;  // and of the data, at 0x2000

// A file with code and data, but no notes.
ElfImage Program() {
  ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x800, kText);
  image.AddSegment(PT_LOAD, PF_R | PF_W, 0x2000, 0x100, kData);
  return image;
}

ElfImage ProgramWithNotes(const std::string& notes) {
  ElfImage image = Program();
  image.AddSection(".note.stapsdt", SHT_NOTE, notes);
  return image;
}

absl::StatusOr<std::vector<ProbeSite>> Read(const std::string& bytes) {
  base::FileDescriptor file = FileWith(bytes);
  EXPECT_TRUE(file.valid());
  return ReadProbes(file.get(), {"otel_memory", "heaptap"});
}

std::vector<ProbeSite> MustRead(const ElfImage& image) {
  auto sites = Read(image.Bytes());
  EXPECT_TRUE(sites.ok()) << sites.status();
  return sites.ok() ? *sites : std::vector<ProbeSite>();
}

TEST(ReadProbes, OneProbe) {
  auto sites = MustRead(
      ProgramWithNotes(ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", kText + 0x123, kData + 0x42)));
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].provider, "otel_memory");
  EXPECT_EQ(sites[0].name, "alloc");
  EXPECT_EQ(sites[0].arguments, "8@%rdi 8@%rsi 8@%rdx");
  EXPECT_EQ(sites[0].address, kText + 0x123);
  EXPECT_EQ(sites[0].file_offset, 0x1123u);
  EXPECT_EQ(sites[0].semaphore_file_offset, 0x2042u);
}

TEST(ReadProbes, ManyNotesOfManyOwners) {
  auto sites = MustRead(ProgramWithNotes(
      Note("GNU\0", 3, "12345678901") + ProbeNote("otel_memory", "free", "8@%rdi", kText) +
      ProbeNote("libc", "setjmp", "8@%rdi", kText + 1) + Note(std::string("stapsdt\0", 8), 4, "another type") +
      ProbeNote("otel_memoryX", "alloc", "", kText + 2) + ProbeNote("heaptap", "start", "", kText + 3)));
  ASSERT_THAT(sites, SizeIs(2));
  EXPECT_EQ(sites[0].name, "free");
  EXPECT_EQ(sites[0].semaphore_file_offset, 0u);
  EXPECT_EQ(sites[1].name, "start");
  EXPECT_EQ(sites[1].arguments, "");
}

TEST(ReadProbes, AnySectionOfNotes) {
  ElfImage image = Program();
  image.AddSection(".notes_by_another_linker", SHT_NOTE, ProbeNote("heaptap", "start", "8@%rdi", kText));
  image.AddSection(".note.stapsdt", SHT_PROGBITS, ProbeNote("heaptap", "dump", "8@%rdi", kText + 8));
  EXPECT_THAT(MustRead(image), SizeIs(2));
}

TEST(ReadProbes, SegmentWithoutSection) {
  ElfImage image = Program();
  std::string notes = ProbeNote("heaptap", "start", "8@%rdi", kText);
  image.AddSegment(PT_NOTE, PF_R, image.AddBytes(notes), notes.size(), 0x400000);
  EXPECT_THAT(MustRead(image), SizeIs(1));
}

TEST(ReadProbes, SegmentAndSectionNameTheSameNotesOnce) {
  ElfImage image = Program();
  std::string notes = ProbeNote("heaptap", "start", "8@%rdi", kText) + ProbeNote("heaptap", "start", "8@%rdi", kText);
  Elf64_Shdr section = image.AddSection(".note.stapsdt", SHT_NOTE, notes);
  image.AddSegment(PT_NOTE, PF_R, section.sh_offset, section.sh_size, 0x400000);
  EXPECT_THAT(MustRead(image), SizeIs(2));
}

TEST(ReadProbes, MovedByPrelink) {
  ElfImage image = ProgramWithNotes(
      ProbeNote("heaptap", "start", "", kText + 0x10 - 0x300000, kData + 4 - 0x300000, 0x3ff000 - 0x300000));
  image.AddSection(".stapsdt.base", SHT_PROGBITS, "b", 0x3ff000);
  auto sites = MustRead(image);
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].address, kText + 0x10);
  EXPECT_EQ(sites[0].file_offset, 0x1010u);
  EXPECT_EQ(sites[0].semaphore_file_offset, 0x2004u);
}

TEST(ReadProbes, CodeThatTheLinkerThrewAway) {
  auto sites = MustRead(ProgramWithNotes(
      ProbeNote("heaptap", "start", "", 0) + ProbeNote("heaptap", "start", "", kData + 1) +
      ProbeNote("heaptap", "dump", "", kText + 0x7ff) + ProbeNote("heaptap", "dump", "", kText + 0x800)));
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].file_offset, 0x17ffu);
}

TEST(ReadProbes, SemaphoreThatCannotCount) {
  for (uint64_t semaphore : {kText + 1, kData + 0x100, uint64_t{1}, ~uint64_t{0}}) {
    auto sites = Read(ProgramWithNotes(ProbeNote("heaptap", "start", "", kText, semaphore)).Bytes());
    EXPECT_TRUE(absl::IsInvalidArgument(sites.status())) << sites.status();
  }
}

TEST(ReadProbes, NotAnElfFileForThisMachine) {
  EXPECT_THAT(*Read(""), IsEmpty());
  EXPECT_THAT(*Read("#!/bin/sh\nexec cat\n"), IsEmpty());
  EXPECT_THAT(*Read(std::string(4096, '\0')), IsEmpty());
  ElfImage image = ProgramWithNotes(ProbeNote("heaptap", "start", "", kText));
  image.header.e_machine = EM_AARCH64;
  EXPECT_THAT(MustRead(image), IsEmpty());
  image.header.e_machine = EM_X86_64;
  image.header.e_type = ET_REL;
  EXPECT_THAT(MustRead(image), IsEmpty());
  image.header.e_type = ET_EXEC;
  EXPECT_THAT(MustRead(image), SizeIs(1));
  image.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(MustRead(image), IsEmpty());
}

TEST(ReadProbes, EveryTruncation) {
  std::string bytes = ProgramWithNotes(ProbeNote("heaptap", "start", "8@%rdi", kText, kData)).Bytes();
  for (size_t size = sizeof(Elf64_Ehdr); size < bytes.size(); ++size) {
    auto sites = Read(bytes.substr(0, size));
    ASSERT_TRUE(absl::IsInvalidArgument(sites.status())) << size;
    ASSERT_THAT(sites.status().message(), HasSubstr("beyond the end of the file"));
  }
}

TEST(ReadProbes, EveryTruncationOfANote) {
  std::string note = ProbeNote("heaptap", "start", "8@%rdi", kText, kData);
  for (size_t size = sizeof(Elf64_Nhdr); size < note.size(); ++size) {
    auto sites = Read(ProgramWithNotes(note.substr(0, size)).Bytes());
    // Only the padding may be missing.
    bool whole = size >= sizeof(Elf64_Nhdr) + 8 + 24 + sizeof("heaptap") + sizeof("start") + sizeof("8@%rdi");
    EXPECT_EQ(sites.status().code(), whole ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(ReadProbes, NoteWithoutEndOfStrings) {
  std::string description = BytesOf(kText) + BytesOf(uint64_t{0}) + BytesOf(uint64_t{0});
  for (const std::string& strings : {std::string(), std::string("heaptap"), std::string("heaptap\0start", 13)}) {
    auto sites = Read(ProgramWithNotes(Note(std::string("stapsdt\0", 8), 3, description + strings)).Bytes());
    EXPECT_TRUE(absl::IsInvalidArgument(sites.status())) << strings;
  }
}

TEST(ReadProbes, SizesThatWouldTakeAllMemory) {
  for (uint64_t size : {kMaxNoteBytes + 1, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    ElfImage image = Program();
    image.AddSection(".note.stapsdt", SHT_NOTE, "").sh_size = size;
    auto sites = Read(image.Bytes());
    ASSERT_TRUE(absl::IsInvalidArgument(sites.status()));
    EXPECT_THAT(sites.status().message(), HasSubstr("more than the limit"));
  }
  ElfImage image = Program();
  image.AddSection(".note.stapsdt", SHT_NOTE, "1234").sh_offset = ~uint64_t{0};
  EXPECT_TRUE(absl::IsInvalidArgument(Read(image.Bytes()).status()));
}

TEST(ReadProbes, ManySectionsOnTheSameNotes) {
  ElfImage image = Program();
  uint64_t offset = image.AddBytes(std::string(1 << 20, '\0'));
  for (int i = 0; i < 1000; ++i) {
    Elf64_Shdr& section = image.AddSection("n", SHT_NOTE, "");
    section.sh_offset = offset;
    section.sh_size = 1 << 20;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Read(image.Bytes()).status()));
}

TEST(ReadProbes, TooManySites) {
  std::string notes;
  for (uint64_t i = 0; i < kMaxProbeSites; ++i) notes += ProbeNote("heaptap", "start", "", kText);
  EXPECT_THAT(MustRead(ProgramWithNotes(notes)), SizeIs(kMaxProbeSites));
  notes += ProbeNote("heaptap", "start", "", kText);
  EXPECT_TRUE(absl::IsInvalidArgument(Read(ProgramWithNotes(notes).Bytes()).status()));
}

TEST(ReadProbes, ReadingFails) {
  EXPECT_FALSE(ReadProbes(-1, {"heaptap"}).ok());
  base::FileDescriptor directory(open("/", O_RDONLY | O_DIRECTORY));
  EXPECT_FALSE(ReadProbes(directory.get(), {"heaptap"}).ok());
}

TEST(ReadProbes, WhatALinkerMakes) {
  RealProbe(nullptr);
  base::FileDescriptor file(open("/proc/self/exe", O_RDONLY));
  auto sites = ReadProbes(file.get(), {"probes_test"});
  ASSERT_TRUE(sites.ok()) << sites.status();
  ASSERT_THAT(*sites, SizeIs(1));
  EXPECT_EQ((*sites)[0].name, "real");
  EXPECT_TRUE(ArgumentsInRegisters((*sites)[0].arguments, 1));
  unsigned char instruction = 0;
  ASSERT_EQ(pread(file.get(), &instruction, 1, static_cast<off_t>((*sites)[0].file_offset)), 1);
  EXPECT_EQ(instruction, 0x90);
  EXPECT_NE((*sites)[0].semaphore_file_offset, 0u);
}

TEST(ArgumentsInRegisters, InOrder) {
  EXPECT_TRUE(ArgumentsInRegisters("8@%rdi 8@%rsi 8@%rdx", 3));
  EXPECT_TRUE(ArgumentsInRegisters("-8@%rdi 8@%rsi -8@%rdx", 3));
  EXPECT_TRUE(ArgumentsInRegisters("8@%rdi 8@%rsi 8@%rdx 8@%rcx -8@%r8 8@%r9 4@8(%rsp)", 6));
  EXPECT_TRUE(ArgumentsInRegisters("8@%rdi 4@%eax", 1));
  EXPECT_TRUE(ArgumentsInRegisters("", 0));
}

TEST(ArgumentsInRegisters, Otherwise) {
  EXPECT_FALSE(ArgumentsInRegisters("8@%rdi 8@%rdx 8@%rsi", 3));
  EXPECT_FALSE(ArgumentsInRegisters("8@%rdi 8@%rsi", 3));
  EXPECT_FALSE(ArgumentsInRegisters("4@%edi", 1));
  EXPECT_FALSE(ArgumentsInRegisters("4@%rdi", 1));
  EXPECT_FALSE(ArgumentsInRegisters("8@(%rdi)", 1));
  EXPECT_FALSE(ArgumentsInRegisters("--8@%rdi", 1));
  EXPECT_FALSE(ArgumentsInRegisters("8@%rdi ", 2));
  EXPECT_FALSE(ArgumentsInRegisters("", 1));
  EXPECT_FALSE(ArgumentsInRegisters("8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8 8@%r9 8@%r10", 7));
  EXPECT_FALSE(ArgumentsInRegisters("8@%rdi", -1));
}

}  // namespace
}  // namespace heaptap::elf
