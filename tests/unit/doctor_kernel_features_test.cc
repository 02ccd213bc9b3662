// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/doctor/feature_probes.h"
#include "userspace/doctor/kernel_features.h"
#include "userspace/process/handle.h"
#include "userspace/process/short_file.h"

namespace heaptap::daemon {
namespace {

TEST(KernelFeatures, TableIsFitToPrint) {
  std::set<std::string> names;
  for (const KernelFeature& feature : KernelFeatures()) {
    EXPECT_TRUE(names.insert(feature.name).second) << feature.name << " is there twice";
    EXPECT_THAT(feature.since, testing::MatchesRegex("[0-9]+\\.[0-9]+")) << feature.name;
    EXPECT_THAT(feature.lost, testing::MatchesRegex("[^\n.]+")) << feature.name << ": one line, no full stop";
  }
}

TEST(KernelFeatures, WhatOthersTakeIsTriedFirst) {
  const absl::Span<const KernelFeature> features = KernelFeatures();
  ASSERT_GT(features.size(), 2);
  EXPECT_STREQ(features[0].name, "bpf(2)");
  EXPECT_STREQ(features[1].name, "kernel types (BTF)");
  for (const KernelFeature& feature : features.first(2)) {
    EXPECT_EQ(feature.takes, KernelFeature::kNothing) << feature.name;
    EXPECT_EQ(feature.need, KernelFeature::kRequired) << feature.name;
  }
}

TEST(KernelFeatures, AllThatAreRequiredAreHere) {
  bpf::QuietLibbpf();
  NEED_BPF(bpf::TryProgram());
  const std::vector<FeatureFinding> findings = CheckKernelFeatures();
  EXPECT_EQ(findings.size(), KernelFeatures().size());
  for (const FeatureFinding& finding : findings) {
    EXPECT_TRUE(finding.tried) << finding.name;
    EXPECT_TRUE(finding.status.ok() || !finding.required) << finding.name << ": " << finding.status;
  }
}

TEST(KernelFeatures, MemoryIsTriedWithAChildThatIsGoneAfterwards) {
  const auto features = KernelFeatures();
  const auto memory = std::ranges::find(features, std::string_view("memory of other processes"), &KernelFeature::name);
  ASSERT_NE(memory, features.end());
  // Other tests have left children.
  const std::string children = process::ReadShortFile("/proc/thread-self/children");
  EXPECT_EQ(memory->attempt(nullptr), process::CheckPtraceScope());
  EXPECT_EQ(process::ReadShortFile("/proc/thread-self/children"), children);
}

TEST(KernelFeatures, FindingsSayWhatTheTableSays) {
  constexpr KernelFeature kTable[] = {
      {"here", "1.2", KernelFeature::kRequired, "this", KernelFeature::kNothing,
       [](const btf*) { return absl::OkStatus(); }},
      {"not here", "3.4", KernelFeature::kOptional, "that", KernelFeature::kNothing,
       [](const btf*) { return absl::FailedPreconditionError("gone"); }},
  };
  const std::vector<FeatureFinding> findings = CheckKernelFeatures(kTable);
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[0].name, "here");
  EXPECT_EQ(findings[0].since, "1.2");
  EXPECT_EQ(findings[0].lost, "this");
  EXPECT_TRUE(findings[0].required);
  EXPECT_TRUE(findings[0].tried);
  EXPECT_EQ(findings[0].status, absl::OkStatus());
  EXPECT_EQ(findings[1].name, "not here");
  EXPECT_EQ(findings[1].lost, "that");
  EXPECT_FALSE(findings[1].required);
  EXPECT_TRUE(findings[1].tried);
  EXPECT_EQ(findings[1].status, absl::FailedPreconditionError("gone"));
}

}  // namespace
}  // namespace heaptap::daemon
