// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace heaptap {
namespace {

OptionResult Set(const char* name, const std::string& value, Configuration* configuration) {
  const Option* option = FindOption({name, strlen(name)}, kOptions, kOptionCount);
  EXPECT_NE(option, nullptr) << name;
  return option == nullptr ? OptionResult::kInvalid : SetOption(*option, {value.data(), value.size()}, configuration);
}

template <typename Value>
struct Outcome {
  OptionResult result;
  Value value;
};

template <typename Value>
Outcome<Value> Read(const char* name, const std::string& value, Value Configuration::*field) {
  Configuration configuration;
  OptionResult result = Set(name, value, &configuration);
  return {result, configuration.*field};
}

TEST(Options, EachNameOnceAndNoTwoFieldsInOnePlace) {
  std::set<std::string> names;
  std::set<size_t> offsets;
  for (size_t i = 0; i < kOptionCount; i++) {
    const Option& option = kOptions[i];
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_LE(option.offset + size_t{option.size}, sizeof(Configuration)) << option.name;
    // lg_tcache_max is another way to set tcache_max.
    if (!option.readable && option.type != OptionType::kBool) continue;
    EXPECT_TRUE(offsets.insert(option.offset).second) << option.name;
    EXPECT_NE(option.size, 0) << option.name;
  }
}

TEST(Options, EveryChoiceHasItsWords) {
  for (size_t i = 0; i < kOptionCount; i++) {
    EXPECT_EQ(kOptions[i].type == OptionType::kChoice, kOptions[i].choices.count != 0) << kOptions[i].name;
  }
}

TEST(Options, OneValueChangesOneField) {
  const Configuration untouched;
  for (size_t i = 0; i < kOptionCount; i++) {
    const Option& option = kOptions[i];
    Configuration configuration;
    for (const char* value : {"true", "7", "1.5", "J", "high", "never", "always", "primary", "percpu", "abort"}) {
      SetOption(option, {value, strlen(value)}, &configuration);
    }
    const char* changed = reinterpret_cast<const char*>(&configuration);
    const char* before = reinterpret_cast<const char*>(&untouched);
    EXPECT_EQ(memcmp(changed, before, option.offset), 0) << option.name;
    size_t end = option.offset + option.size;
    EXPECT_EQ(memcmp(changed + end, before + end, sizeof(Configuration) - end), 0) << option.name;
    // Booleans that begin as true are the next test's.
    if (option.type == OptionType::kBool) continue;
    EXPECT_EQ(memcmp(changed + option.offset, before + option.offset, option.size) == 0,
              option.type == OptionType::kIgnored)
        << option.name;
  }
}

TEST(Options, Booleans) {
  EXPECT_TRUE(Read("prof", "true", &Configuration::prof).value);
  EXPECT_FALSE(Read("prof_unbias", "false", &Configuration::prof_unbias).value);
  for (const char* value : {"", "True", "1", "yes", "truetrue", "tru", " true"}) {
    EXPECT_EQ(Read("prof", value, &Configuration::prof).result, OptionResult::kInvalid) << value;
  }
}

TEST(Options, BooleansOfTheTableAllRead) {
  for (size_t i = 0; i < kOptionCount; i++) {
    const Option& option = kOptions[i];
    if (option.type != OptionType::kBool) continue;
    Configuration configuration;
    for (bool truth : {true, false}) {
      EXPECT_EQ(Set(option.name, truth ? "true" : "false", &configuration), OptionResult::kSet);
      EXPECT_EQ(reinterpret_cast<const char*>(&configuration)[option.offset], truth) << option.name;
    }
  }
}

TEST(Options, NumbersAreReadAsStrtoumaxReadsThem) {
  auto rate = [](const char* text) { return Read("lg_prof_sample", text, &Configuration::lg_sample); };
  EXPECT_EQ(rate("0").value, 0u);
  EXPECT_EQ(rate("017").value, 15u);
  EXPECT_EQ(rate("0X1f").value, 31u);
  EXPECT_EQ(rate(" +7").value, 7u);
  EXPECT_EQ(rate("-1").value, 46u) << "the complement, clipped";
  EXPECT_EQ(rate("99").value, 46u) << "clipped";
  for (const char* text : {"", "1x", "0x", "08", "x", "-", " ", "1 ", "99999999999999999999"}) {
    EXPECT_EQ(rate(text).result, OptionResult::kInvalid) << text;
    EXPECT_EQ(rate(text).value, 19u) << text;
  }
}

TEST(Options, Ranges) {
  auto interval = [](const char* text) { return Read("lg_prof_interval", text, &Configuration::lg_prof_interval); };
  EXPECT_EQ(interval("-1").value, -1);
  EXPECT_EQ(interval("63").value, 63);
  EXPECT_EQ(interval("64").result, OptionResult::kOutOfRange);
  EXPECT_EQ(interval("-2").result, OptionResult::kOutOfRange);
  EXPECT_EQ(interval("18446744073709551615").value, -1);

  EXPECT_EQ(Read("prof_bt_max", "0", &Configuration::prof_bt_max).value, 1u);
  EXPECT_EQ(Read("prof_bt_max", "4294967296", &Configuration::prof_bt_max).value, UINT_MAX);
  EXPECT_EQ(Read("narenas", "0", &Configuration::narenas).result, OptionResult::kOutOfRange);
  EXPECT_EQ(Read("stats_interval", "9223372036854775807", &Configuration::stats_interval).value, INT64_MAX);
  EXPECT_EQ(Read("stats_interval", "-2", &Configuration::stats_interval).result, OptionResult::kOutOfRange);
  EXPECT_EQ(Read("dirty_decay_ms", "18446744072000", &Configuration::dirty_decay_ms).value, 18446744072000);
  EXPECT_EQ(Read("dirty_decay_ms", "18446744072001", &Configuration::dirty_decay_ms).result, OptionResult::kOutOfRange);
  EXPECT_EQ(Read("prof_recent_alloc_max", "-1", &Configuration::prof_recent_alloc_max).value, -1);
  EXPECT_EQ(Read("prof_recent_alloc_max", "-2", &Configuration::prof_recent_alloc_max).result,
            OptionResult::kOutOfRange);
}

TEST(Options, TheWordDefault) {
  Configuration configuration;
  configuration.narenas = 8;
  EXPECT_EQ(Set("narenas", "default", &configuration), OptionResult::kSet);
  EXPECT_EQ(configuration.narenas, 1u);
  EXPECT_EQ(Set("lg_prof_sample", "default", &configuration), OptionResult::kInvalid);
}

TEST(Options, Choices) {
  for (auto [word, bits] : {std::pair{"false", 0}, {"alloc", 1}, {"free", 2}, {"true", 3}}) {
    EXPECT_EQ(Read("junk", word, &Configuration::junk).value, bits);
  }
  EXPECT_EQ(Read("junk", "", &Configuration::junk).result, OptionResult::kInvalid);
  EXPECT_EQ(Read("junk", "tr", &Configuration::junk).result, OptionResult::kInvalid);
  EXPECT_EQ(Read("thp", "never", &Configuration::thp).value, Thp::kNever);
  EXPECT_EQ(Read("thp", "a", &Configuration::thp).value, Thp::kAlways) << "jemalloc reads it so";
  EXPECT_EQ(Read("thp", "alwaysx", &Configuration::thp).result, OptionResult::kInvalid);
  EXPECT_EQ(Read("prof_time_resolution", "high", &Configuration::prof_time_resolution).value, 1);
  EXPECT_EQ(Read("prof_time_resolution", "hi", &Configuration::prof_time_resolution).result, OptionResult::kInvalid);
}

TEST(Options, TextIsCutToFit) {
  Configuration configuration;
  EXPECT_EQ(Set("prof_prefix", "", &configuration), OptionResult::kSet);
  EXPECT_STREQ(configuration.prefix, "");
  EXPECT_EQ(Set("prof_prefix", std::string(2 * PATH_MAX, 'x'), &configuration), OptionResult::kSet);
  EXPECT_EQ(std::string(configuration.prefix), std::string(PATH_MAX - 1, 'x'));
}

TEST(Options, LettersAddUp) {
  Configuration configuration;
  EXPECT_EQ(Set("stats_print_opts", "JzqJa", &configuration), OptionResult::kSet);
  EXPECT_EQ(Set("stats_print_opts", "ab", &configuration), OptionResult::kSet);
  EXPECT_STREQ(configuration.stats_print_opts, "Jab");
  std::string all(kStatisticsLetters);
  EXPECT_EQ(Set("stats_interval_opts", all + std::string(3, '\0') + all, &configuration), OptionResult::kSet);
  EXPECT_EQ(configuration.stats_interval_opts, all);
}

TEST(Options, LogarithmsAndRatios) {
  EXPECT_EQ(Read("lg_tcache_max", "12", &Configuration::tcache_max).value, 4096u);
  EXPECT_EQ(Read("lg_tcache_max", "99", &Configuration::tcache_max).value, size_t{1} << 23);
  auto ratio = [](const char* text) { return Read("hpa_dirty_mult", text, &Configuration::hpa_dirty_mult); };
  EXPECT_EQ(ratio("0.25").value, 16384u);
  EXPECT_EQ(ratio("1").value, 65536u);
  EXPECT_EQ(ratio(".5").value, 32768u);
  EXPECT_EQ(ratio("-1").value, UINT32_MAX);
  for (const char* text : {"", "x", "1.2.3", "65536", "99999999999999999999", "-2"}) {
    EXPECT_EQ(ratio(text).result, OptionResult::kInvalid) << text;
  }
}

TEST(Options, NoNameIsFound) {
  for (const char* name : {"", "pro", "proff", "PROF"}) {
    EXPECT_EQ(FindOption({name, strlen(name)}, kOptions, kOptionCount), nullptr) << name;
  }
  EXPECT_EQ(FindOption({"prof", 4}, kCollectorOptions, kCollectorOptionCount), nullptr);
}

}  // namespace
}  // namespace heaptap
