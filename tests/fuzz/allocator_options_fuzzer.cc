// SPDX-License-Identifier: Apache-2.0
//
// MALLOC_CONF and HEAPTAP_CONF of any text: it may be rejected, but what is kept is in its range, and each message is a
// whole line. Programs run with other people's environments.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "allocator/platform/system.h"
#include "allocator/process/read_options.h"
#include "tests/fuzz/check.h"

namespace {

void CheckMessage(void*, const char* text) {
  const size_t length = strlen(text);
  Check(length > 0 && text[length - 1] == '\n');
}

// Words that options are made of, now and then, so that values are reached.
std::string AnyText(FuzzedDataProvider& data) {
  constexpr const char* kWords[] = {"prof",
                                    "prof_leak",
                                    "lg_prof_sample",
                                    "lg_prof_interval",
                                    "prof_prefix",
                                    "stats_print_opts",
                                    "confirm_conf",
                                    "junk",
                                    "zero",
                                    "true",
                                    "false",
                                    "default",
                                    "0x7f",
                                    "-1",
                                    "narenas",
                                    "thp",
                                    ":",
                                    ",",
                                    "hpa_dirty_mult",
                                    "0.25",
                                    "18446744073709551615",
                                    "prof_seed",
                                    "collector",
                                    "dirty_decay_ms",
                                    "percpu_arena"};
  std::string text;
  while (data.remaining_bytes() > 0) {
    if (data.ConsumeBool()) {
      text += data.PickValueInArray(kWords);
    } else {
      text += data.ConsumeRandomLengthString(8);
    }
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  malloc_message = CheckMessage;
  const bool collectors = data.ConsumeBool();
  const size_t source = data.ConsumeIntegralInRange<size_t>(0, heaptap::kOptionSources - 1);
  const std::string text = AnyText(data);
  // It ends the process, which is its purpose.
  if (text.find("abort_conf") != std::string::npos) return 0;

  heaptap::Configuration configuration;
  if (collectors) {
    heaptap::ReadHeaptapConf(text.c_str(), &configuration);
  } else {
    heaptap::OptionTexts texts;
    texts.text[source] = text.c_str();
    heaptap::ReadMallocConf(texts, &configuration);
  }
  Check(configuration.lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
  Check(configuration.lg_prof_interval >= -1 && configuration.lg_prof_interval <= 63);
  Check(configuration.prof_recent_alloc_max >= -1);
  Check(configuration.dirty_decay_ms >= -1);
  Check(configuration.prof_bt_max >= 1);
  Check(strnlen(configuration.prefix, sizeof(configuration.prefix)) < sizeof(configuration.prefix));
  Check(strnlen(configuration.stats_print_opts, sizeof(configuration.stats_print_opts)) <
        sizeof(configuration.stats_print_opts));
  Check(!configuration.prof_leak || configuration.prof);
  return 0;
}
