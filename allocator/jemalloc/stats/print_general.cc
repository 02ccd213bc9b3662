// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"
#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/jemalloc/stats/print.h"

namespace heaptap {
namespace {

// kRatio: a fraction in 1/65536 as uint32_t, UINT32_MAX for -1; shown as a text.
enum class Type : uint8_t { kBool, kUnsigned, kSize, kSigned, kUnsigned64, kSigned64, kRatio, kText };

// Something that mallctl knows under `path` + `key`.
struct Setting {
  const char* key;
  Type type;
  const char* current = nullptr;  // mallctl's name of what the option was only the beginning of
  const char* title = nullptr;    // if it is not the name
};

constexpr Setting kConfig[] = {
    {"cache_oblivious", Type::kBool},
    {"debug", Type::kBool},
    {"fill", Type::kBool},
    {"lazy_lock", Type::kBool},
    {"malloc_conf", Type::kText},
    {"opt_safety_checks", Type::kBool},
    {"prof", Type::kBool},
    {"prof_libgcc", Type::kBool},
    {"prof_libunwind", Type::kBool},
    {"prof_frameptr", Type::kBool},
    {"stats", Type::kBool},
    {"utrace", Type::kBool},
    {"xmalloc", Type::kBool},
};

constexpr Setting kOptions[] = {
    {"abort", Type::kBool},
    {"abort_conf", Type::kBool},
    {"cache_oblivious", Type::kBool},
    {"confirm_conf", Type::kBool},
    {"retain", Type::kBool},
    {"dss", Type::kText},
    {"narenas", Type::kUnsigned},
    {"percpu_arena", Type::kText},
    {"oversize_threshold", Type::kSize},
    {"hpa", Type::kBool},
    {"hpa_slab_max_alloc", Type::kSize},
    {"hpa_hugification_threshold", Type::kSize},
    {"hpa_hugify_delay_ms", Type::kUnsigned64},
    {"hpa_min_purge_interval_ms", Type::kUnsigned64},
    {"hpa_dirty_mult", Type::kRatio},
    {"hpa_sec_nshards", Type::kSize},
    {"hpa_sec_max_alloc", Type::kSize},
    {"hpa_sec_max_bytes", Type::kSize},
    {"hpa_sec_bytes_after_flush", Type::kSize},
    {"hpa_sec_batch_fill_extra", Type::kSize},
    {"metadata_thp", Type::kText},
    {"mutex_max_spin", Type::kSigned64},
    {"background_thread", Type::kBool, "background_thread"},
    {"dirty_decay_ms", Type::kSigned, "arenas.dirty_decay_ms"},
    {"muzzy_decay_ms", Type::kSigned, "arenas.muzzy_decay_ms"},
    {"lg_extent_max_active_fit", Type::kSize},
    {"junk", Type::kText},
    {"zero", Type::kBool},
    {"xmalloc", Type::kBool},
    {"experimental_infallible_new", Type::kBool},
    {"tcache", Type::kBool},
    {"tcache_max", Type::kSize},
    {"tcache_nslots_small_min", Type::kUnsigned},
    {"tcache_nslots_small_max", Type::kUnsigned},
    {"tcache_nslots_large", Type::kUnsigned},
    {"lg_tcache_nslots_mul", Type::kSigned},
    {"tcache_gc_incr_bytes", Type::kSize},
    {"tcache_gc_delay_bytes", Type::kSize},
    {"lg_tcache_flush_small_div", Type::kUnsigned},
    {"lg_tcache_flush_large_div", Type::kUnsigned},
    {"thp", Type::kText},
    {"prof", Type::kBool},
    {"prof_prefix", Type::kText},
    {"prof_active", Type::kBool, "prof.active"},
    {"prof_thread_active_init", Type::kBool, "prof.thread_active_init"},
    {"lg_prof_sample", Type::kSize, "prof.lg_sample"},
    {"prof_accum", Type::kBool},
    {"lg_prof_interval", Type::kSigned},
    {"prof_bt_max", Type::kUnsigned},
    {"prof_gdump", Type::kBool},
    {"prof_final", Type::kBool},
    {"prof_leak", Type::kBool},
    {"prof_leak_error", Type::kBool},
    {"prof_stats", Type::kBool},
    {"prof_sys_thread_name", Type::kBool},
    {"prof_time_resolution", Type::kText},
    {"prof_pid_namespace", Type::kBool},
    {"stats_print", Type::kBool},
    {"stats_print_opts", Type::kText},
    {"stats_interval", Type::kSigned64},
    {"stats_interval_opts", Type::kText},
    {"zero_realloc", Type::kText},
};

constexpr Setting kProfiling[] = {
    {"thread_active_init", Type::kBool}, {"active", Type::kBool},    {"gdump", Type::kBool},
    {"interval", Type::kUnsigned64},     {"lg_sample", Type::kSize},
};

constexpr Setting kArenas[] = {
    {"narenas", Type::kUnsigned, nullptr, "Arenas"},
    {"dirty_decay_ms", Type::kSigned, nullptr, ""},  // not for text: a note of the option there
    {"muzzy_decay_ms", Type::kSigned, nullptr, ""},
    {"quantum", Type::kSize, nullptr, "Quantum size"},
    {"page", Type::kSize, nullptr, "Page size"},
    {"tcache_max", Type::kSize, nullptr, "Maximum thread-cached size class"},
    {"nbins", Type::kUnsigned, nullptr, "Number of bin size classes"},
    {"nhbins", Type::kUnsigned, nullptr, "Number of thread-cache bin size classes"},
    {"nlextents", Type::kUnsigned, nullptr, "Number of large size classes"},
};

template <typename Word>
bool ReadWord(const char* name, Word* word) {
  size_t length = sizeof(*word);
  return Mallctl(name, word, &length, nullptr, 0) == 0;
}

template <typename Word>
bool ReadAs(const char* name, StatisticsValue* value) {
  Word word;
  if (!ReadWord(name, &word)) return false;
  *value = word;
  return true;
}

// A ratio in decimal digits, as few as there are.
class Decimal {
 public:
  bool Read(const char* name) {
    uint32_t ratio;
    if (!ReadWord(name, &ratio)) return false;
    if (ratio == UINT32_MAX) {
      Append('-');
      Append('1');
      return true;
    }
    for (uint32_t unit = 10000; unit != 0; unit /= 10) {
      uint32_t digit = (ratio >> kFractionBits) / unit % 10;
      if (digit != 0 || length_ != 0 || unit == 1) Append(static_cast<char>('0' + digit));
    }
    Append('.');
    uint32_t rest = ratio & kFractionMask;
    do {
      rest *= 10;
      Append(static_cast<char>('0' + (rest >> kFractionBits)));
      rest &= kFractionMask;
    } while (rest != 0);
    return true;
  }
  const char* text() const { return text_; }

 private:
  static constexpr uint32_t kFractionBits = 16;
  static constexpr uint32_t kFractionMask = (uint32_t{1} << kFractionBits) - 1;

  void Append(char character) {
    text_[length_++] = character;
    text_[length_] = '\0';
  }

  char text_[5 + 1 + kFractionBits + 1];  // a binary fraction has as many decimal digits
  size_t length_ = 0;
};

bool Read(const char* name, Type type, StatisticsValue* value, Decimal* decimal) {
  switch (type) {
    case Type::kBool:
      return ReadAs<bool>(name, value);
    case Type::kUnsigned:
      return ReadAs<unsigned>(name, value);
    case Type::kSize:
    case Type::kUnsigned64:
      return ReadAs<uint64_t>(name, value);
    case Type::kSigned:
    case Type::kSigned64:
      return ReadAs<int64_t>(name, value);
    case Type::kRatio:
      if (!decimal->Read(name)) return false;
      *value = decimal->text();
      return true;
    case Type::kText: {
      const char* text;
      if (!ReadWord(name, &text) || text == nullptr) return false;
      *value = text;
      return true;
    }
  }
  return false;
}

class Name {
 public:
  Name(const char* path, const char* key) {
    Append(path);
    Append(key);
  }
  const char* text() const { return text_; }

 private:
  void Append(const char* part) {
    while (*part != '\0') text_[length_++] = *part++;
    text_[length_] = '\0';
  }

  char text_[64];  // more than the tables above have
  size_t length_ = 0;
};

// What mallctl does not know is left out.
void PrintSetting(StatisticsEmitter* emitter, const char* path, const Setting& setting) {
  Name name(path, setting.key);
  StatisticsValue value;
  StatisticsValue current;
  Decimal decimal;
  if (!Read(name.text(), setting.type, &value, &decimal)) return;
  const char* title = setting.title != nullptr ? setting.title : name.text();
  if (setting.current != nullptr && Read(setting.current, setting.type, &current, &decimal)) {
    emitter->Entry(setting.key, title, value, setting.current, current);
  } else if (*title == '\0') {
    emitter->Member(setting.key, value);
  } else {
    emitter->Entry(setting.key, title, value);
  }
}

template <size_t count>
void PrintSettings(StatisticsEmitter* emitter, const char* path, const Setting (&settings)[count]) {
  for (const Setting& setting : settings) PrintSetting(emitter, path, setting);
}

void PrintClasses(StatisticsEmitter* emitter) {
  emitter->BeginArray("bin");
  for (unsigned c = 0; c < kSmallClasses; c++) {
    emitter->BeginObject();
    emitter->Member("size", kClassSize[c]);
    emitter->Member("nregs", kSlabCapacity[c]);
    emitter->Member("slab_size", size_t{1} << ShiftOf(c));
    emitter->Member("nshards", 1);
    emitter->EndObject();
  }
  emitter->EndArray();
  emitter->BeginArray("lextent");
  for (size_t size = RoundUpToClass(kSmallMaximum + 1); size <= kMaximumRequest; size = RoundUpToClass(size + 1)) {
    emitter->BeginObject();
    emitter->Member("size", size);
    emitter->EndObject();
  }
  emitter->EndArray();
}

}  // namespace

void PrintGeneral(StatisticsEmitter* emitter) {
  const char* version;
  if (ReadWord("version", &version)) emitter->Entry("version", "Version", version);
  emitter->BeginSection("config", "Build-time option settings");
  PrintSettings(emitter, "config.", kConfig);
  emitter->EndSection();
  emitter->BeginSection("opt", "Run-time option settings");
  PrintSettings(emitter, "opt.", kOptions);
  emitter->EndSection();
  emitter->BeginSection("prof", "Profiling settings");
  PrintSettings(emitter, "prof.", kProfiling);
  emitter->EndSection();
  emitter->BeginObject("arenas");
  PrintSettings(emitter, "arenas.", kArenas);
  PrintClasses(emitter);
  emitter->EndObject();
}

void PrintTotals(StatisticsEmitter* emitter, const Snapshot& snapshot, bool mutexes) {
  uint64_t zero_reallocs = 0;
  ReadWord("stats.zero_reallocs", &zero_reallocs);
  emitter->BeginObject("stats");
  emitter->Member("allocated", snapshot.allocated);
  emitter->Member("active", snapshot.active);
  emitter->Member("metadata", snapshot.metadata);
  emitter->Member("metadata_thp", 0);
  emitter->Member("resident", snapshot.resident);
  emitter->Member("mapped", snapshot.mapped);
  emitter->Member("retained", snapshot.retained);
  emitter->Member("zero_reallocs", zero_reallocs);
  emitter->Text("Allocated: ").Text(snapshot.allocated).Text(", active: ").Text(snapshot.active);
  emitter->Text(", metadata: ").Text(snapshot.metadata).Text(" (n_thp 0), resident: ").Text(snapshot.resident);
  emitter->Text(", mapped: ").Text(snapshot.mapped).Text(", retained: ").Text(snapshot.retained).Text("\n");
  emitter->Text("Count of realloc(non-null-ptr, 0) calls: ").Text(zero_reallocs).Text("\n");
  emitter->BeginObject("background_thread");
  for (const char* member : {"num_threads", "num_runs", "run_interval"}) emitter->Member(member, 0);
  emitter->EndObject();
  emitter->Text("Background threads: 0, num_runs: 0, run_interval: 0 ns\n");
  if (mutexes) PrintGlobalMutexes(emitter);
  emitter->EndObject();
}

}  // namespace heaptap
