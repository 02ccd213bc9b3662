// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/read_options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/platform/system.h"
#include "allocator/process/options.h"

namespace heaptap {
namespace {

struct Pair {
  Text key;
  Text value;
};

constexpr char kJemalloc[] = "<jemalloc>: ";
constexpr char kHeaptap[] = "<heaptap>: ";

constexpr const char* kSourceDescriptions[kOptionSources] = {
    "string specified via --with-malloc-conf",
    "string pointed to by the global variable malloc_conf",
    "\"name\" of the file referenced by the symbolic link named /etc/malloc.conf",
    "value of the environment variable MALLOC_CONF",
    "string pointed to by the global variable malloc_conf_2_conf_harder",
};

bool IsKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Splits a string into pairs, and reports errors.
class Reader {
 public:
  // `prefix`: begins each message; nullptr: prints no messages.
  Reader(const char* text, const char* prefix) : position_(text), prefix_(prefix) {}

  // False at the end, and where the text is not a pair.
  bool Next(Pair* pair);

  void Report(const char* what, const Pair& pair);

  // Whether there was an error that counts for abort_conf.
  bool failed() const { return failed_; }

 private:
  // Reports that the text from `begin` to `end` is not a pair.
  void ReportFormat(const char* what, const char* begin, const char* end);

  const char* position_;
  const char* prefix_;
  bool failed_ = false;
};

bool Reader::Next(Pair* pair) {
  const char* begin = position_;
  if (*begin == '\0') return false;
  const char* position = begin;
  while (IsKeyCharacter(*position)) position++;
  pair->key = {begin, static_cast<size_t>(position - begin)};
  if (*position == '\0') {
    ReportFormat("Conf string ends with key", begin, position);
    return false;
  }
  if (*position != ':') {
    ReportFormat("Malformed conf string", begin, position + 1);
    return false;
  }
  pair->value.begin = ++position;
  while (*position != '\0' && *position != ',') position++;
  pair->value.length = static_cast<size_t>(position - pair->value.begin);
  if (*position == ',' && *++position == '\0') ReportFormat("Conf string ends with comma", begin, position);
  position_ = position;
  return true;
}

void Reader::ReportFormat(const char* what, const char* begin, const char* end) {
  constexpr size_t kShown = 64;  // as many characters as jemalloc shows
  failed_ = true;
  if (prefix_ == nullptr) return;
  size_t length = static_cast<size_t>(end - begin);
  Message message;
  message << prefix_ << what << " -- ";
  message.Append(begin, length < kShown ? length : kShown) << "\n";
  message.Print();
}

bool BeginsWith(Text text, const char* prefix) {
  size_t length = strlen(prefix);
  return text.length >= length && memcmp(text.begin, prefix, length) == 0;
}

void PrintPair(const char* prefix, const char* what, const Pair& pair) {
  Message message;
  message << prefix << what << ": ";
  message.Append(pair.key.begin, pair.key.length) << ":";
  message.Append(pair.value.begin, pair.value.length) << "\n";
  message.Print();
}

void Reader::Report(const char* what, const Pair& pair) {
  // Experimental options may come and go, so they do not count for abort_conf.
  if (!BeginsWith(pair.key, "experimental_")) failed_ = true;
  if (prefix_ != nullptr) PrintPair(prefix_, what, pair);
}

bool ApplyPair(const Option* option, const Pair& pair, Configuration* configuration, Reader* reader) {
  if (option == nullptr) {
    reader->Report("Invalid conf pair", pair);
    return false;
  }
  switch (SetOption(*option, pair.value, configuration)) {
    case OptionResult::kSet:
      return true;
    case OptionResult::kInvalid:
      reader->Report("Invalid conf value", pair);
      return false;
    case OptionResult::kOutOfRange:
      reader->Report("Out-of-range conf value", pair);
      return false;
  }
  return false;
}

[[noreturn]] void AbortForConfiguration() {
  Message message;
  message << kJemalloc << "Abort (abort_conf:true) on invalid conf value (see above).\n";
  message.Print();
  ::abort();
}

// Reads confirm_conf only. It must be known before the other options are read, since it logs them.
void ReadConfirmation(const char* text, Configuration* configuration) {
  Reader reader(text, nullptr);
  Pair pair;
  while (reader.Next(&pair)) {
    if (!(pair.key == "confirm_conf")) continue;
    ApplyPair(FindOption(pair.key, kOptions, kOptionCount), pair, configuration, &reader);
  }
}

void ReadSource(const char* text, Configuration* configuration) {
  Reader reader(text, kJemalloc);
  Pair pair;
  while (reader.Next(&pair)) {
    const Option* option = FindOption(pair.key, kOptions, kOptionCount);
    if (!ApplyPair(option, pair, configuration, &reader)) continue;
    if (pair.key == "prof_final") configuration->prof_final_given = true;
    if (configuration->confirm_conf) {
      PrintPair(kJemalloc, option->effective ? "-- Set conf value" : "-- No effect in heaptap", pair);
    }
  }
  if (configuration->abort_conf && reader.failed()) AbortForConfiguration();
}

void DrawConclusions(Configuration* configuration) {
  Configuration& result = *configuration;
  result.junk_alloc = (result.junk & 1) != 0;
  result.junk_free = (result.junk & 2) != 0;

  result.prof_leak |= result.prof_leak_error;
  if (result.prof_leak && !result.prof_final_given) result.prof_final = true;
  if (result.prof_leak && !result.prof) {
    // The user wants only the leaks, without other dumps.
    result.prof = true;
    result.prof_gdump = false;
  } else if (result.prof && result.lg_prof_interval >= 0) {
    result.prof_interval = uint64_t{1} << result.lg_prof_interval;
  }

  if (!result.prof_leak_error || result.prof_final) return;
  Message message;
  message << kJemalloc << "prof_leak_error is set w/o prof_final.\n";
  message.Print();
  if (result.abort_conf) AbortForConfiguration();
}

}  // namespace

void ReadMallocConf(const OptionTexts& texts, Configuration* configuration) {
  for (const char* text : texts.text) {
    if (text != nullptr) ReadConfirmation(text, configuration);
  }
  for (unsigned source = 0; source < kOptionSources; source++) {
    const char* text = texts.text[source];
    if (configuration->confirm_conf) {
      Message message;
      message << kJemalloc << "malloc_conf #" << uint64_t{source + 1} << " (" << kSourceDescriptions[source] << "): \""
              << (text == nullptr ? "" : text) << "\"\n";
      message.Print();
    }
    if (text != nullptr) ReadSource(text, configuration);
  }
  DrawConclusions(configuration);
}

void ReadSharedMallocConf(const OptionTexts& texts, Configuration* configuration) {
  for (const char* text : texts.text) {
    if (text == nullptr) continue;
    Reader reader(text, nullptr);
    Pair pair;
    while (reader.Next(&pair)) {
      if (!(pair.key == "lg_prof_sample" || pair.key == "prof_bt_max")) continue;
      ApplyPair(FindOption(pair.key, kOptions, kOptionCount), pair, configuration, &reader);
    }
  }
}

void ReadHeaptapConf(const char* text, Configuration* configuration) {
  Reader reader(text, kHeaptap);
  Pair pair;
  while (reader.Next(&pair)) {
    const Option* option = FindOption(pair.key, kCollectorOptions, kCollectorOptionCount);
    bool set = ApplyPair(option, pair, configuration, &reader);
    configuration->has_seed |= set && pair.key == "prof_seed";
  }
}

}  // namespace heaptap
