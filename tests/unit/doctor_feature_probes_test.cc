// SPDX-License-Identifier: Apache-2.0
//
// Each probe must find what this kernel has, and must not find what no kernel has.
#include <bpf/btf.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/probes.h"
#include "userspace/doctor/feature_probes.h"

namespace heaptap::bpf {
namespace {

// The largest numbers that these enumerations may hold; no kernel has that many.
constexpr auto kNoMapType = static_cast<bpf_map_type>(63);
constexpr auto kNoHelper = static_cast<bpf_func_id>(255);

class FeatureProbes : public testing::Test {
 protected:
  void SetUp() override {
    QuietLibbpf();
    NEED_BPF(TryProgram());
  }
};

TEST_F(FeatureProbes, Maps) {
  EXPECT_EQ(TryMap(BPF_MAP_TYPE_RINGBUF), absl::OkStatus());
  EXPECT_EQ(TryMap(BPF_MAP_TYPE_LRU_HASH), absl::OkStatus());
  EXPECT_FALSE(TryMap(kNoMapType).ok());
}

TEST_F(FeatureProbes, Helpers) {
  EXPECT_EQ(TryHelper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_get_current_task_btf), absl::OkStatus()) << "loads";
  EXPECT_EQ(TryHelper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop), absl::OkStatus()) << "is refused for its arguments";
  EXPECT_EQ(TryHelper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_find_vma), absl::OkStatus());
  EXPECT_EQ(TryHelper(BPF_PROG_TYPE_SYSCALL, BPF_FUNC_for_each_map_elem), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(TryHelper(BPF_PROG_TYPE_KPROBE, kNoHelper)));
  EXPECT_TRUE(absl::IsFailedPrecondition(TryHelper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_skb_store_bytes)))
      << "is there for other types of programs";
}

TEST_F(FeatureProbes, RawTracepoints) {
  EXPECT_EQ(TryRawTracepoint("sched_process_exec"), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(TryRawTracepoint("heaptap_has_none")));
}

TEST_F(FeatureProbes, Programs) {
  EXPECT_EQ(TryAtomics(), absl::OkStatus());
  EXPECT_EQ(TryGrowingMap(), absl::OkStatus());
  EXPECT_EQ(TryBatches(), absl::OkStatus());
  EXPECT_EQ(TryRunByCall(), absl::OkStatus());
  EXPECT_EQ(TryPerfLink(), absl::OkStatus());
}

TEST_F(FeatureProbes, ManySites) {
  if (HasManySites()) {
    EXPECT_EQ(TryUprobeMulti(), absl::OkStatus());
  } else {
    EXPECT_TRUE(absl::IsFailedPrecondition(TryUprobeMulti()));
  }
}

// The kernel is still removing the first.
TEST_F(FeatureProbes, UprobeTwice) {
  EXPECT_EQ(TryUprobe(), absl::OkStatus());
  EXPECT_EQ(TryUprobe(), absl::OkStatus());
}

std::string Mounts() {
  std::ifstream file("/proc/self/mounts");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_F(FeatureProbes, PinsAreNowhereMounted) {
  const std::string before = Mounts();
  ASSERT_FALSE(before.empty());
  EXPECT_EQ(TryPins(), absl::OkStatus());
  EXPECT_EQ(Mounts(), before);
}

// struct outer { int first; union { int second; struct { int third; }; }; struct named { int fourth; } named; };
TEST(HasField, StructuresWithoutNames) {
  const std::unique_ptr<btf, decltype(&btf__free)> types(btf__new_empty(), btf__free);
  const int number = btf__add_int(types.get(), "int", 4, BTF_INT_SIGNED);
  const int innermost = btf__add_struct(types.get(), "", 4);
  btf__add_field(types.get(), "third", number, 0, 0);
  const int inner = btf__add_union(types.get(), "", 4);
  btf__add_field(types.get(), "second", number, 0, 0);
  btf__add_field(types.get(), "", innermost, 0, 0);
  const int named = btf__add_struct(types.get(), "named", 4);
  btf__add_field(types.get(), "fourth", number, 0, 0);
  const int outer = btf__add_struct(types.get(), "outer", 12);
  btf__add_field(types.get(), "first", number, 0, 0);
  btf__add_field(types.get(), "", inner, 32, 0);
  btf__add_field(types.get(), "named", named, 64, 0);
  btf__add_typedef(types.get(), "other_name", outer);
  for (const char* structure : {"outer", "other_name"}) {
    for (const char* field : {"first", "second", "third", "named"}) {
      EXPECT_TRUE(HasField(types.get(), structure, field)) << structure << "." << field;
    }
    for (const char* field : {"fourth", "", "int", "outer", "first "}) {
      EXPECT_FALSE(HasField(types.get(), structure, field)) << structure << "." << field;
    }
  }
  EXPECT_TRUE(HasField(types.get(), "named", "fourth"));
  EXPECT_FALSE(HasField(types.get(), "no_such_structure", "first"));
  EXPECT_FALSE(HasField(types.get(), "int", "first"));
}

}  // namespace
}  // namespace heaptap::bpf
