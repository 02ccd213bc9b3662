// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "allocator/platform/system.h"
#include "allocator/process/read_options.h"

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

Result Read(const OptionTexts& texts) {
  Result result;
  result.messages = Stderr([&] { ReadMallocConf(texts, &result.configuration); });
  return result;
}

Result Read(const char* text) {
  OptionTexts texts;
  texts.text[kEnvironmentVariable] = text;
  return Read(texts);
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
  for (const char* text : {"prof_leak:true,prof_final:false", "prof_final:false,prof_leak:true"}) {
    EXPECT_FALSE(Read(text).configuration.prof_final) << text;
  }
}

TEST(Configuration, LeakAloneTakesNoDumpsOnTheWay) {
  Result result = Read("prof_leak:true,prof_gdump:true,lg_prof_interval:20");
  EXPECT_FALSE(result.configuration.prof_gdump);
  EXPECT_EQ(result.configuration.prof_interval, 0u);
  EXPECT_EQ(result.configuration.lg_prof_interval, 20);
  result = Read("prof_leak:true,prof_gdump:true,lg_prof_interval:20,prof:true");
  EXPECT_TRUE(result.configuration.prof_gdump);
  EXPECT_EQ(result.configuration.prof_interval, 1u << 20);
  EXPECT_EQ(Read("prof:true").configuration.prof_interval, 0u);
}

TEST(Configuration, LeakErrorImpliesLeak) {
  Result result = Read("prof_leak_error:true");
  EXPECT_EQ(result.messages, "");
  EXPECT_TRUE(result.configuration.prof_leak);
  EXPECT_TRUE(result.configuration.prof);
  EXPECT_TRUE(result.configuration.prof_final);
  EXPECT_EQ(Read("prof_leak_error:true,prof_final:false").messages,
            "<jemalloc>: prof_leak_error is set w/o prof_final.\n");
}

TEST(Configuration, Messages) {
  EXPECT_EQ(Read("foo:bar").messages, "<jemalloc>: Invalid conf pair: foo:bar\n");
  EXPECT_EQ(Read("prof:yes").messages, "<jemalloc>: Invalid conf value: prof:yes\n");
  EXPECT_EQ(Read("lg_prof_interval:99").messages, "<jemalloc>: Out-of-range conf value: lg_prof_interval:99\n");
  EXPECT_EQ(Read("prof").messages, "<jemalloc>: Conf string ends with key -- prof\n");
  EXPECT_EQ(Read("zero:true,prof").messages, "<jemalloc>: Conf string ends with key -- prof\n");
  EXPECT_EQ(Read("prof:true,").messages, "<jemalloc>: Conf string ends with comma -- prof:true,\n");
  EXPECT_EQ(Read("prof-x:true").messages, "<jemalloc>: Malformed conf string -- prof-\n");
  EXPECT_EQ(Read("prof:true, prof_final:true").messages, "<jemalloc>: Malformed conf string --  \n");
  EXPECT_EQ(Read(std::string(100, 'x').c_str()).messages,
            "<jemalloc>: Conf string ends with key -- " + std::string(64, 'x') + "\n");
}

TEST(Configuration, AMalformedEndDoesNotUndoTheBeginning) {
  EXPECT_TRUE(Read("prof:true,").configuration.prof);
  EXPECT_TRUE(Read("prof:true,foo:bar,prof_final:true").configuration.prof_final);
  EXPECT_FALSE(Read("prof:true,?,prof_final:true").configuration.prof_final);
}

TEST(Configuration, LaterSourcesWinOptionByOption) {
  OptionTexts texts;
  texts.text[kProgram] = "prof:true,lg_prof_sample:1,narenas:2,zero:true";
  texts.text[kSymbolicLink] = "lg_prof_sample:2,narenas:3";
  texts.text[kEnvironmentVariable] = "narenas:4,lg_prof_sample:3,?";
  texts.text[kProgramHarder] = "narenas:5";
  Result result = Read(texts);
  EXPECT_EQ(result.messages, "<jemalloc>: Malformed conf string -- ?\n");
  EXPECT_TRUE(result.configuration.prof);
  EXPECT_TRUE(result.configuration.zero);
  EXPECT_EQ(result.configuration.lg_sample, 3u);
  EXPECT_EQ(result.configuration.narenas, 5u);
}

TEST(Configuration, ConfirmConfTellsEverythingEvenIfItStandsLast) {
  OptionTexts texts;
  texts.text[kProgram] = "zero:true";
  texts.text[kProgramHarder] = "hpa:true,lg_chunk:3,confirm_conf:true";
  EXPECT_EQ(Read(texts).messages,
            "<jemalloc>: malloc_conf #1 (string specified via --with-malloc-conf): \"\"\n"
            "<jemalloc>: malloc_conf #2 (string pointed to by the global variable malloc_conf): \"zero:true\"\n"
            "<jemalloc>: -- Set conf value: zero:true\n"
            "<jemalloc>: malloc_conf #3 (\"name\" of the file referenced by the symbolic link named "
            "/etc/malloc.conf): \"\"\n"
            "<jemalloc>: malloc_conf #4 (value of the environment variable MALLOC_CONF): \"\"\n"
            "<jemalloc>: malloc_conf #5 (string pointed to by the global variable malloc_conf_2_conf_harder): "
            "\"hpa:true,lg_chunk:3,confirm_conf:true\"\n"
            "<jemalloc>: -- No effect in heaptap: hpa:true\n"
            "<jemalloc>: -- No effect in heaptap: lg_chunk:3\n"
            "<jemalloc>: -- Set conf value: confirm_conf:true\n");
}

constexpr char kAbort[] = "<jemalloc>: Abort \\(abort_conf:true\\) on invalid conf value \\(see above\\)\\.\n$";

TEST(ConfigurationDeathTest, AbortConf) {
  OptionTexts texts;
  Configuration configuration;
  for (const char* text :
       {"abort_conf:true,foo:x", "foo:x,abort_conf:true", "abort_conf:true,zero:maybe", "abort_conf:true,narenas:0",
        "abort_conf:true,", "abort_conf:true,prof", "abort_conf:true,prof_leak_error:true,prof_final:false"}) {
    texts.text[kEnvironmentVariable] = text;
    EXPECT_EXIT(ReadMallocConf(texts, &configuration), ::testing::KilledBySignal(SIGABRT), kAbort) << text;
  }
}

TEST(ConfigurationDeathTest, AbortConfLooksAfterEachSource) {
  OptionTexts texts;
  Configuration configuration;
  texts.text[kProgram] = "first:x,abort_conf:true";
  texts.text[kEnvironmentVariable] = "second:x";
  EXPECT_EXIT(ReadMallocConf(texts, &configuration), ::testing::KilledBySignal(SIGABRT),
              "^<jemalloc>: Invalid conf pair: first:x\n<jemalloc>: Abort");
}

TEST(Configuration, AbortConfForgivesWhatIsExperimental) {
  Result result = Read("abort_conf:true,experimental_foo:1,prof:true");
  EXPECT_EQ(result.messages, "<jemalloc>: Invalid conf pair: experimental_foo:1\n");
  EXPECT_TRUE(result.configuration.prof);
}

TEST(Configuration, OtherOptionsOfJemallocAreAcceptedInSilence) {
  EXPECT_EQ(Read("narenas:default,background_thread:true,thp:never,tcache:false,lg_chunk:21,slab_sizes:1-4096:17,"
                 "stats_print:true,percpu_arena:percpu,bin_shards:1-160:16,hpa_dirty_mult:0.5,utrace:true")
                .messages,
            "");
}

TEST(Configuration, LongTexts) {
  constexpr size_t kLength = 65536;
  std::string pairs;
  while (pairs.size() < kLength) pairs += "zero:false,";
  Result result = Read((pairs + "prof:true").c_str());
  EXPECT_EQ(result.messages, "");
  EXPECT_TRUE(result.configuration.prof);
  // A message that is too long is cut, and stays a line.
  result = Read(("prof:" + std::string(kLength, 'x') + ",prof_final:true").c_str());
  EXPECT_TRUE(result.messages.starts_with("<jemalloc>: Invalid conf value: prof:xxx"));
  EXPECT_TRUE(result.messages.ends_with("x\n"));
  EXPECT_LE(result.messages.size(), 1024u);
  EXPECT_TRUE(result.configuration.prof_final);
}

std::string hooked;

TEST(Configuration, MessagesGoToTheProgramsFunction) {
  hooked.clear();
  malloc_message = [](void* opaque, const char* text) {
    EXPECT_EQ(opaque, nullptr);
    hooked += text;
    errno = EDOM;
  };
  errno = 0;
  EXPECT_EQ(Read("foo:bar,zero:1").messages, "");
  EXPECT_EQ(errno, 0);
  malloc_message = nullptr;
  EXPECT_EQ(hooked, "<jemalloc>: Invalid conf pair: foo:bar\n<jemalloc>: Invalid conf value: zero:1\n");
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
  EXPECT_TRUE(configuration.drop_deepbind);
  EXPECT_EQ(Stderr([&] { ReadHeaptapConf("drop_deepbind:false", &configuration); }), "");
  EXPECT_FALSE(configuration.drop_deepbind);
  EXPECT_EQ(configuration.collector_lg_sample, 12u);
  EXPECT_EQ(configuration.collector_pid, 42u);
  EXPECT_EQ(configuration.lg_sample, 19u);
  EXPECT_TRUE(configuration.has_seed);
  EXPECT_EQ(configuration.seed, 7u);
  EXPECT_FALSE(configuration.prof);
}

}  // namespace
}  // namespace heaptap
