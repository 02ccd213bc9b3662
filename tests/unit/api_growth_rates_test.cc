// SPDX-License-Identifier: Apache-2.0
//
// Growth per minute from the history, with its error.
#include <algorithm>
#include <cmath>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/history_fixture.h"
#include "userspace/api/growth_rates.h"
#include "userspace/history/point_rows.h"

namespace heaptap::api {
namespace {

using ::testing::DoubleNear;
using ::testing::IsEmpty;

constexpr absl::Duration kStep = absl::Seconds(10);
constexpr uint64_t kMiB = 1 << 20;

class GrowthRatesTest : public history::HistoryTest {
 protected:
  GrowthRatesTest() : writer_(Open()) { EXPECT_TRUE(writer_->Begin().ok()); }

  int64_t Add(pid_t pid) { return *writer_->AddProcess(Process(pid)); }
  // The point number `step`, and nothing but this path.
  void Write(int64_t process, int step, uint64_t path, const history::Held& held, uint32_t lg_sample = 19) {
    history::Point point = Holding({{path, held}});
    point.lg_sample = lg_sample;
    ASSERT_TRUE(writer_->AddPoint(process, history::kBegin + step * kStep, point).ok());
    now_ = std::max(now_, history::kBegin + step * kStep);
  }
  GrowthRates Rates() {
    EXPECT_TRUE(writer_->Commit().ok());
    absl::StatusOr<GrowthRates> rates = ReadGrowthRates(path_, now_);
    EXPECT_TRUE(rates.ok()) << rates.status();
    return std::move(rates).value_or(GrowthRates());
  }

  std::unique_ptr<history::Writer> writer_;
  absl::Time now_ = history::kBegin;
};

TEST_F(GrowthRatesTest, ExactOverTheLastTenMinutes) {
  const int64_t process = Add(7);
  const uint64_t path = Path(*writer_, process, {0x10});
  // It grows fast at first, which is longer ago.
  for (int step = 0; step <= 90; step++) {
    const uint64_t blocks = step < 30 ? 100 * step : 3000 + step;
    Write(process, step, path, {1000 * blocks, blocks, blocks, blocks}, /*lg_sample=*/0);
  }
  const GrowthRates rates = Rates();
  ASSERT_EQ(rates.size(), 1);
  const GrowthRate& rate = rates.at(70);
  EXPECT_EQ(rate.period, GrowthRate::kPeriod);
  EXPECT_DOUBLE_EQ(rate.bytes_per_minute, 6000);
  EXPECT_EQ(rate.error, 0);
}

TEST_F(GrowthRatesTest, TheErrorIsThatOfTheSamplesThatCameAndWent) {
  const int64_t steady = Add(7);
  const int64_t cache = Add(8);
  const int64_t leak = Add(9);
  // 100 samples of blocks of 16 bytes each; what they stand for is their interval.
  const auto held = [](uint64_t samples, uint64_t allocated) {
    history::Held rows = {samples * kMiB / 2, samples * kMiB / 32, samples, allocated};
    rows.deviation = history::DeviationOfEqualSamples(rows);
    return rows;
  };
  for (const auto& [process, last] :
       {std::pair(steady, held(100, 100)), {cache, held(100, 1000)}, {leak, held(200, 200)}}) {
    const uint64_t path = Path(*writer_, process, {0x10});
    Write(process, 0, path, held(100, 100));
    Write(process, 6, path, last);
  }
  const GrowthRates rates = Rates();
  const double sample = static_cast<double>(kMiB) / 2;
  EXPECT_EQ(rates.at(70).bytes_per_minute, 0);
  EXPECT_EQ(rates.at(70).error, 0) << "all samples are the same ones";
  EXPECT_EQ(rates.at(80).bytes_per_minute, 0);
  EXPECT_THAT(rates.at(80).error, DoubleNear(sample * std::sqrt(200), sample / 10)) << "all were replaced";
  EXPECT_DOUBLE_EQ(rates.at(90).bytes_per_minute, 100 * sample);
  EXPECT_THAT(rates.at(90).error, DoubleNear(sample * std::sqrt(100), sample / 10));
}

TEST_F(GrowthRatesTest, UnknownOfTheYoungAndTheEnded) {
  const int64_t young = Add(7);
  const int64_t ended = Add(8);
  for (const int64_t process : {young, ended}) {
    const uint64_t path = Path(*writer_, process, {0x10});
    for (int step = 0; step <= (process == young ? 2 : 6); step++) Write(process, step, path, {1000, 1, 1, 1});
  }
  ASSERT_TRUE(writer_->EndProcess(ended, history::kBegin + 7 * kStep, "exit 0").ok());
  EXPECT_THAT(Rates(), IsEmpty());
}

TEST_F(GrowthRatesTest, WithoutAHistory) {
  EXPECT_TRUE(absl::IsNotFound(ReadGrowthRates(path_ + ".none", now_).status()));
}

}  // namespace
}  // namespace heaptap::api
