// SPDX-License-Identifier: Apache-2.0
#include "configuration.h"

#include <string.h>

#include "system.h"

namespace heaptap {
namespace {

struct Text {
  const char* begin;
  size_t length;

  bool operator==(const char* other) const { return strlen(other) == length && memcmp(begin, other, length) == 0; }
};

struct Pair {
  Text key;
  Text value;
};

void Report(const char* what) {
  Message message;
  message << "<heaptap>: " << what << "\n";
  message.Print();
}

void Report(const char* what, const Pair& pair) {
  Message message;
  message << "<heaptap>: " << what << ": ";
  message.Append(pair.key.begin, pair.key.length) << ":";
  message.Append(pair.value.begin, pair.value.length) << "\n";
  message.Print();
}

bool IsKeyCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Takes the next pair off `*text`. False at the end and where the text is no pair; the latter is reported.
bool NextPair(const char** text, Pair* pair) {
  const char* position = *text;
  if (*position == '\0') return false;
  pair->key.begin = position;
  while (IsKeyCharacter(*position)) position++;
  pair->key.length = static_cast<size_t>(position - pair->key.begin);
  if (*position != ':') {
    Report(*position == '\0' ? "Conf string ends with key" : "Malformed conf string");
    return false;
  }
  pair->value.begin = ++position;
  while (*position != '\0' && *position != ',') position++;
  pair->value.length = static_cast<size_t>(position - pair->value.begin);
  if (*position == ',' && *++position == '\0') Report("Conf string ends with comma");
  *text = position;
  return true;
}

bool ReadBoolean(const Pair& pair, bool* result) {
  if (pair.value == "true") {
    *result = true;
  } else if (pair.value == "false") {
    *result = false;
  } else {
    Report("Invalid conf value", pair);
    return false;
  }
  return true;
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Numbers that are too large become the largest, as strtoumax makes them.
bool ReadNumber(const Pair& pair, uint64_t* result) {
  const char* position = pair.value.begin;
  const char* end = position + pair.value.length;
  unsigned base = 10;
  if (end - position > 2 && position[0] == '0' && (position[1] == 'x' || position[1] == 'X')) {
    base = 16;
    position += 2;
  } else if (end - position > 1 && position[0] == '0') {
    base = 8;
    position += 1;
  }
  bool valid = position != end;
  uint64_t number = 0;
  bool overflow = false;
  for (; position != end; position++) {
    unsigned digit = static_cast<unsigned>(DigitValue(*position));
    if (digit >= base) valid = false;
    overflow |= __builtin_mul_overflow(number, base, &number) || __builtin_add_overflow(number, digit, &number);
  }
  if (!valid) {
    Report("Invalid conf value", pair);
    return false;
  }
  *result = overflow ? UINT64_MAX : number;
  return true;
}

void ReadRate(const Pair& pair, uint32_t* rate) {
  uint64_t number;
  if (!ReadNumber(pair, &number)) return;
  *rate = number < HEAPTAP_MAX_LG_SAMPLE ? static_cast<uint32_t>(number) : HEAPTAP_MAX_LG_SAMPLE;
}

// jemalloc's other options: a configuration that was written for jemalloc is not wrong here.
constexpr const char* kAccepted[] = {
    "abort",
    "abort_conf",
    "background_thread",
    "cache_oblivious",
    "confirm_conf",
    "dirty_decay_ms",
    "dss",
    "disable_large_size_classes",
    "hpa",
    "hpa_dirty_mult",
    "hpa_hugification_threshold",
    "hpa_hugification_threshold_ratio",
    "hpa_hugify_delay_ms",
    "hpa_min_purge_interval_ms",
    "hpa_min_purge_delay_ms",
    "hpa_hugify_style",
    "hpa_sec_batch_fill_extra",
    "hpa_sec_bytes_after_flush",
    "hpa_sec_max_alloc",
    "hpa_sec_max_bytes",
    "hpa_sec_nshards",
    "hpa_slab_max_alloc",
    "hpa_strict_min_purge_interval",
    "experimental_hpa_max_purge_nhp",
    "experimental_hpa_start_huge_if_thp_always",
    "experimental_infallible_new",
    "junk",
    "lg_chunk",
    "lg_dirty_mult",
    "lg_extent_max_active_fit",
    "lg_prof_interval",
    "lg_tcache_flush_large_div",
    "lg_tcache_flush_small_div",
    "lg_tcache_gc_sweep",
    "lg_tcache_max",
    "lg_tcache_nslots_mul",
    "tcache_nslots_small_min",
    "tcache_nslots_small_max",
    "tcache_nslots_large",
    "tcache_gc_incr_bytes",
    "tcache_gc_delay_bytes",
    "experimental_tcache_gc",
    "max_background_threads",
    "metadata_thp",
    "muzzy_decay_ms",
    "mutex_max_spin",
    "narenas",
    "oversize_threshold",
    "percpu_arena",
    "prof_accum",
    "prof_bt_max",
    "prof_gdump",
    "prof_leak_error",
    "prof_log",
    "prof_pid_namespace",
    "prof_recent_alloc_max",
    "prof_stats",
    "prof_sys_thread_name",
    "prof_thread_active_init",
    "prof_time_resolution",
    "prof_unbias",
    "process_madvise_max_batch",
    "purge",
    "quarantine",
    "redzone",
    "remote_free_max",
    "remote_free_max_batch",
    "retain",
    "san_guard_large",
    "san_guard_small",
    "slab_sizes",
    "stats_interval",
    "stats_interval_opts",
    "stats_print",
    "stats_print_opts",
    "tcache",
    "tcache_max",
    "thp",
    "trust_madvise",
    "utrace",
    "xmalloc",
    "zero",
    "zero_realloc",
    "lg_san_uaf_align",
    "debug_double_free_max_scan",
    "calloc_madvise_threshold",
    "huge_arena_pac_thp",
    "abort_on_error",
};

bool IsAccepted(const Text& key) {
  for (const char* name : kAccepted) {
    if (key == name) return true;
  }
  return false;
}

void ReadLeak(const Pair& pair, Configuration* configuration) {
  if (!ReadBoolean(pair, &configuration->prof_leak) || !configuration->prof_leak) return;
  configuration->prof_final = true;
}

void ReadPrefix(const Pair& pair, Configuration* configuration) {
  size_t length = pair.value.length < PATH_MAX ? pair.value.length : PATH_MAX - 1;
  memcpy(configuration->prefix, pair.value.begin, length);
  configuration->prefix[length] = '\0';
}

}  // namespace

void ReadMallocConf(const char* text, Configuration* configuration) {
  Pair pair;
  while (NextPair(&text, &pair)) {
    if (pair.key == "prof") {
      ReadBoolean(pair, &configuration->prof);
    } else if (pair.key == "prof_active") {
      ReadBoolean(pair, &configuration->prof_active);
    } else if (pair.key == "prof_leak") {
      ReadLeak(pair, configuration);
    } else if (pair.key == "prof_final") {
      ReadBoolean(pair, &configuration->prof_final);
    } else if (pair.key == "prof_prefix") {
      ReadPrefix(pair, configuration);
    } else if (pair.key == "lg_prof_sample") {
      ReadRate(pair, &configuration->lg_sample);
    } else if (!IsAccepted(pair.key)) {
      Report("Invalid conf pair", pair);
    }
  }
  if (configuration->prof_leak) configuration->prof = true;
}

void ReadHeaptapConf(const char* text, Configuration* configuration) {
  Pair pair;
  while (NextPair(&text, &pair)) {
    if (pair.key == "lg_prof_sample") {
      ReadRate(pair, &configuration->collector_lg_sample);
    } else if (pair.key == "collector") {
      uint64_t pid = 0;
      if (ReadNumber(pair, &pid)) configuration->collector_pid = static_cast<uint32_t>(pid);
    } else if (pair.key == "prof_seed") {
      configuration->has_seed |= ReadNumber(pair, &configuration->seed);
    } else {
      Report("Invalid conf pair", pair);
    }
  }
}

}  // namespace heaptap
