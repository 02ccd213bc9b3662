// SPDX-License-Identifier: Apache-2.0
//
// Tests that BCC's reader finds our probes in build/libheaptap.so as documented: names, arguments and their registers,
// sites, semaphores. A separate program, since libbcc contains a compiler.
#include <bcc/bcc_usdt.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heaptap/contract.h"

namespace {

constexpr char kLibrary[] = HEAPTAP_LIBRARY;

struct Probe {
  std::string file;
  uint64_t semaphore;
  uint64_t semaphore_offset;
  int sites;
  int arguments;
};

using Probes = std::map<std::string, Probe>;

// The results of bcc_usdt_foreach, whose callback has no context argument.
Probes* found;

void Find(bcc_usdt* probe) {
  (*found)[std::string(probe->provider) + ":" + probe->name] = {
      probe->bin_path, probe->semaphore, probe->semaphore_offset, probe->num_locations, probe->num_arguments};
}

std::string ReadFile(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class ProbeNotes : public testing::Test {
 protected:
  void SetUp() override {
    context_ = bcc_usdt_new_frompath(kLibrary);
    ASSERT_NE(context_, nullptr) << kLibrary;
    found = &probes_;
    bcc_usdt_foreach(context_, Find);
  }
  void TearDown() override {
    if (context_ != nullptr) bcc_usdt_close(context_);
  }

  // The registers that hold the arguments, each of which is 8 bytes and unsigned and nothing but a register.
  std::vector<std::string> Registers(const char* provider, const char* name, int arguments) {
    std::vector<std::string> registers;
    for (int i = 0; i < arguments; i++) {
      bcc_usdt_argument argument{};
      EXPECT_EQ(bcc_usdt_get_argument(context_, provider, name, 0, i, &argument), 0)
          << provider << ":" << name << " " << i;
      EXPECT_EQ(argument.size, 8);
      EXPECT_EQ(argument.valid, BCC_USDT_ARGUMENT_BASE_REGISTER_NAME);
      EXPECT_STREQ(bcc_usdt_get_fully_specified_probe_argctype(context_, provider, name, i), "uint64_t");
      if (argument.valid == BCC_USDT_ARGUMENT_BASE_REGISTER_NAME) registers.emplace_back(argument.base_register_name);
    }
    bcc_usdt_argument none{};
    EXPECT_NE(bcc_usdt_get_argument(context_, provider, name, 0, arguments, &none), 0) << "one argument too many";
    return registers;
  }

  void* context_ = nullptr;
  Probes probes_;
};

// What a breakpoint replaces, and what Linux 6.18 replaces by a call (allocator/sampling/probe_sites.h).
constexpr std::string_view kNop = "\x90";
constexpr std::string_view kLongNop("\x0f\x1f\x44\0\0", 5);

struct Expected {
  const char* provider;
  const char* name;
  std::vector<std::string> registers;  // as BCC calls them
  std::vector<std::string_view> sites = {kNop};
};

const Expected kExpected[] = {
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_ALLOC, {"di", "si", "dx"}, {kNop, kLongNop}},
    {HEAPTAP_PROVIDER_OTEL, HEAPTAP_PROBE_FREE, {"di"}},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_FREES, {"di", "si"}},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_START, {"di"}},
    {HEAPTAP_PROVIDER, HEAPTAP_PROBE_DUMP, {"di"}},
};

TEST_F(ProbeNotes, NamesAndArguments) {
  for (const Expected& expected : kExpected) {
    auto probe = probes_.find(std::string(expected.provider) + ":" + expected.name);
    ASSERT_NE(probe, probes_.end()) << expected.name;
    EXPECT_EQ(probe->second.file, kLibrary);
    EXPECT_EQ(probe->second.arguments, static_cast<int>(expected.registers.size()));
    EXPECT_EQ(Registers(expected.provider, expected.name, probe->second.arguments), expected.registers);
  }
}

TEST_F(ProbeNotes, Sites) {
  std::string image = ReadFile(kLibrary);
  for (const Expected& expected : kExpected) {
    EXPECT_EQ(probes_[std::string(expected.provider) + ":" + expected.name].sites, expected.sites.size());
    for (size_t i = 0; i < expected.sites.size(); i++) {
      bcc_usdt_location site{};
      ASSERT_EQ(bcc_usdt_get_location(context_, expected.provider, expected.name, static_cast<int>(i), &site), 0)
          << expected.name;
      EXPECT_STREQ(site.bin_path, kLibrary);
      ASSERT_LT(site.address, image.size());
      // Sections of code have the same addresses as offsets in our library: its linker says so in LinkedAsItLies.
      EXPECT_EQ(image.substr(site.address, expected.sites[i].size()), expected.sites[i]) << expected.name;
    }
  }
}

// Each probe has a semaphore of its own, two bytes of the data that are zero in the file.
TEST_F(ProbeNotes, Semaphores) {
  std::string image = ReadFile(kLibrary);
  std::map<uint64_t, std::string> by_address;
  for (const auto& [name, probe] : probes_) {
    EXPECT_NE(probe.semaphore, 0) << name;
    EXPECT_TRUE(by_address.emplace(probe.semaphore, name).second) << name << " and " << by_address[probe.semaphore];
    ASSERT_LE(probe.semaphore_offset + sizeof(uint16_t), image.size()) << name;
    uint16_t value;
    memcpy(&value, image.data() + probe.semaphore_offset, sizeof value);
    EXPECT_EQ(value, 0) << name;
  }
}

// Sites relies on this: the code segment's addresses are its offsets in the file.
TEST(ProbeLibrary, LinkedAsItLies) {
  std::string image = ReadFile(kLibrary);
  Elf64_Ehdr header;
  ASSERT_GE(image.size(), sizeof header);
  memcpy(&header, image.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, image.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
      EXPECT_EQ(segment.p_vaddr, segment.p_offset);
    }
  }
}

}  // namespace
