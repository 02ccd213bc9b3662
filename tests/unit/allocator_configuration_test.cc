// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "configuration.h"

namespace heaptap {
namespace {

// What `function` writes to stderr.
template <typename Function>
std::string Stderr(Function function) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  int saved = dup(2);
  dup2(ends[1], 2);
  function();
  dup2(saved, 2);
  close(saved);
  close(ends[1]);
  std::string text(65536, '\0');
  ssize_t length = read(ends[0], text.data(), text.size());
  close(ends[0]);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

struct Result {
  Configuration configuration;
  std::string messages;
};

Result Read(const char* text) {
  Result result;
  result.messages = Stderr([&] { ReadMallocConf(text, &result.configuration); });
  return result;
}

TEST(Configuration, Defaults) {
  Result result = Read("");
  EXPECT_EQ(result.messages, "");
  EXPECT_FALSE(result.configuration.prof);
  EXPECT_TRUE(result.configuration.prof_active);
  EXPECT_FALSE(result.configuration.prof_final);
  EXPECT_EQ(result.configuration.lg_sample, 19u);
  EXPECT_EQ(result.configuration.collector_lg_sample, HEAPTAP_NO_RATE);
  EXPECT_STREQ(result.configuration.prefix, "jeprof");
}

TEST(Configuration, Options) {
  Result result = Read("prof:true,prof_active:false,lg_prof_sample:0x10,prof_prefix:/tmp/a b,prof_final:true");
  EXPECT_EQ(result.messages, "");
  EXPECT_TRUE(result.configuration.prof);
  EXPECT_FALSE(result.configuration.prof_active);
  EXPECT_TRUE(result.configuration.prof_final);
  EXPECT_FALSE(result.configuration.prof_leak);
  EXPECT_EQ(result.configuration.lg_sample, 16u);
  EXPECT_STREQ(result.configuration.prefix, "/tmp/a b");
}

TEST(Configuration, LaterWins) {
  EXPECT_EQ(Read("lg_prof_sample:1,lg_prof_sample:2").configuration.lg_sample, 2u);
  EXPECT_FALSE(Read("prof:true,prof:false").configuration.prof);
}

TEST(Configuration, LeakImpliesProfAndFinal) {
  Result result = Read("prof_leak:true");
  EXPECT_TRUE(result.configuration.prof);
  EXPECT_TRUE(result.configuration.prof_final);
  EXPECT_TRUE(result.configuration.prof_leak);
}

TEST(Configuration, Numbers) {
  EXPECT_EQ(Read("lg_prof_sample:0").configuration.lg_sample, 0u);
  EXPECT_EQ(Read("lg_prof_sample:017").configuration.lg_sample, 15u);
  EXPECT_EQ(Read("lg_prof_sample:0X1f").configuration.lg_sample, 31u);
  for (const char* text : {"lg_prof_sample:99", "lg_prof_sample:99999999999999999999999"}) {
    Result result = Read(text);
    EXPECT_EQ(result.messages, "") << "clipped in silence";
    EXPECT_EQ(result.configuration.lg_sample, 63u);
  }
  for (const char* text : {"lg_prof_sample:", "lg_prof_sample:1x", "lg_prof_sample:0x", "lg_prof_sample:08"}) {
    Result result = Read(text);
    EXPECT_EQ(result.messages, std::string("<heaptap>: Invalid conf value: ") + text + "\n");
    EXPECT_EQ(result.configuration.lg_sample, 19u);
  }
}

TEST(Configuration, Messages) {
  EXPECT_EQ(Read("foo:bar").messages, "<heaptap>: Invalid conf pair: foo:bar\n");
  EXPECT_EQ(Read("prof:yes").messages, "<heaptap>: Invalid conf value: prof:yes\n");
  EXPECT_EQ(Read("prof").messages, "<heaptap>: Conf string ends with key\n");
  EXPECT_EQ(Read("prof:true,").messages, "<heaptap>: Conf string ends with comma\n");
  EXPECT_EQ(Read("prof-x:true").messages, "<heaptap>: Malformed conf string\n");
  EXPECT_EQ(Read("prof:true, prof_final:true").messages, "<heaptap>: Malformed conf string\n");
}

TEST(Configuration, AMalformedEndDoesNotUndoTheBeginning) {
  EXPECT_TRUE(Read("prof:true,").configuration.prof);
  EXPECT_TRUE(Read("prof:true,foo:bar,prof_final:true").configuration.prof_final);
  EXPECT_FALSE(Read("prof:true,?,prof_final:true").configuration.prof_final);
}

TEST(Configuration, OtherOptionsOfJemallocAreAcceptedInSilence) {
  EXPECT_EQ(Read("narenas:1,dirty_decay_ms:5000,background_thread:true,thp:never,abort_conf:true,tcache:false,"
                 "confirm_conf:true,stats_print:true,percpu_arena:percpu,prof_accum:true,lg_prof_interval:20")
                .messages,
            "");
}

TEST(Configuration, LongPrefixIsCut) {
  std::string text = "prof_prefix:" + std::string(2 * PATH_MAX, 'x');
  EXPECT_EQ(std::string(Read(text.c_str()).configuration.prefix), std::string(PATH_MAX - 1, 'x'));
}

TEST(Configuration, TheCollectorsVariable) {
  Configuration configuration;
  std::string messages =
      Stderr([&] { ReadHeaptapConf("lg_prof_sample:12,prof_seed:7,collector:42,prof:true", &configuration); });
  EXPECT_EQ(messages, "<heaptap>: Invalid conf pair: prof:true\n");
  EXPECT_EQ(configuration.collector_lg_sample, 12u);
  EXPECT_EQ(configuration.collector_pid, 42u);
  EXPECT_EQ(configuration.lg_sample, 19u);
  EXPECT_TRUE(configuration.has_seed);
  EXPECT_EQ(configuration.seed, 7u);
  EXPECT_FALSE(configuration.prof);
}

}  // namespace
}  // namespace heaptap
