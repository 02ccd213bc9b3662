// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <type_traits>

#include "allocator/process/options.h"

namespace heaptap {
namespace {

constexpr bool kClips = true;
constexpr int64_t kMaximumShift = 63;
constexpr size_t kMaximumCacheLog2 = 23;
constexpr int64_t kHugePage = 2 * 1024 * 1024;

constexpr const char* kJunkWords[] = {"false", "alloc", "free", "true"};
constexpr const char* kTimeResolutionWords[] = {"default", "high"};
constexpr const char* kThpWords[] = {"default", "always", "never"};
constexpr const char* kMetadataThpWords[] = {"disabled", "auto", "always"};
constexpr const char* kDssWords[] = {"disabled", "primary", "secondary"};
constexpr const char* kProcessorArenaWords[] = {"disabled", "percpu", "phycpu"};
constexpr const char* kZeroReallocWords[] = {"alloc", "free", "abort"};

static_assert(sizeof(Configuration) <= UINT16_MAX, "an offset in it fits Option::offset");

template <size_t kCount>
constexpr Choices Words(const char* const (&words)[kCount]) {
  return {words, kCount, false};
}

template <size_t kCount>
constexpr Choices Abbreviated(const char* const (&words)[kCount]) {
  return {words, kCount, true};
}

template <typename Field>
consteval OptionType TypeOf() {
  if (std::is_same_v<Field, bool>) return OptionType::kBool;
  if (std::is_same_v<Field, unsigned>) return OptionType::kUnsigned;
  if (std::is_same_v<Field, size_t>) return OptionType::kSize;
  if (std::is_same_v<Field, ssize_t>) return OptionType::kSigned;
  if (std::is_array_v<Field>) return OptionType::kText;
  return OptionType::kChoice;
}

// An option and its field.
#define FIELD(name, field) \
  Entry(name, TypeOf<decltype(Configuration::field)>(), offsetof(Configuration, field), sizeof(Configuration::field))
// An option with the name of its field.
#define OPTION(name) FIELD(#name, name)

struct Entry : Option {
  constexpr Entry(const char* option_name, OptionType option_type, size_t field_offset, size_t field_size)
      : Option{option_name,
               option_type,
               static_cast<uint16_t>(field_offset),
               static_cast<uint16_t>(field_size),
               true,
               true,
               true,
               false,
               nullptr,
               Range{},
               Choices{}} {}

  constexpr Entry In(Range values) const {
    Entry entry = *this;
    entry.range = values;
    return entry;
  }
  constexpr Entry OneOf(Choices words) const {
    Entry entry = *this;
    entry.choices = words;
    return entry;
  }
  constexpr Entry As(OptionType special) const {
    Entry entry = *this;
    entry.type = special;
    return entry;
  }
  constexpr Entry Unreadable() const {
    Entry entry = *this;
    entry.readable = false;
    return entry;
  }
  constexpr Entry Unprinted() const {
    Entry entry = *this;
    entry.printed = false;
    return entry;
  }
  constexpr Entry Now(const char* name_of_current) const {
    Entry entry = *this;
    entry.current = name_of_current;
    return entry;
  }
  constexpr Entry EffectiveIf(bool is_effective) const {
    Entry entry = *this;
    entry.effective = is_effective;
    return entry;
  }
  constexpr Entry WithoutEffect() const { return EffectiveIf(false); }
  constexpr Entry OrDefault() const {
    Entry entry = *this;
    entry.defaults = true;
    return entry;
  }
};

// An option of some version of jemalloc that is accepted and ignored.
constexpr Entry Ignored(const char* name) {
  return Entry(name, OptionType::kIgnored, 0, 0).Unreadable().WithoutEffect();
}

}  // namespace

constexpr Option kOptions[] = {
    // In the order in which reports print them.
    OPTION(abort).WithoutEffect(),
    OPTION(abort_conf),
    OPTION(cache_oblivious).WithoutEffect(),
    OPTION(confirm_conf),
    OPTION(retain).WithoutEffect(),
    OPTION(dss).OneOf(Abbreviated(kDssWords)).WithoutEffect(),
    OPTION(narenas).In({1, UINT_MAX}).OrDefault().WithoutEffect(),
    OPTION(percpu_arena).OneOf(Abbreviated(kProcessorArenaWords)).WithoutEffect(),
    OPTION(oversize_threshold).WithoutEffect(),
    OPTION(hpa).WithoutEffect(),
    OPTION(hpa_slab_max_alloc).In({4096, kHugePage, kClips}).WithoutEffect(),
    OPTION(hpa_hugification_threshold).In({4096, kHugePage, kClips}).WithoutEffect(),
    OPTION(hpa_hugify_delay_ms).WithoutEffect(),
    OPTION(hpa_min_purge_interval_ms).WithoutEffect(),
    OPTION(hpa_dirty_mult).As(OptionType::kRatio).WithoutEffect(),
    OPTION(hpa_sec_nshards).WithoutEffect(),
    OPTION(hpa_sec_max_alloc).WithoutEffect(),
    OPTION(hpa_sec_max_bytes).WithoutEffect(),
    OPTION(hpa_sec_bytes_after_flush).WithoutEffect(),
    OPTION(hpa_sec_batch_fill_extra).WithoutEffect(),
    OPTION(metadata_thp).OneOf(Abbreviated(kMetadataThpWords)).WithoutEffect(),
    OPTION(mutex_max_spin).In({-1, INT64_MAX}).WithoutEffect(),
    OPTION(background_thread).Now("background_thread"),
    OPTION(dirty_decay_ms).In({-1, kMaxDecayMilliseconds}).Now("arenas.dirty_decay_ms"),
    OPTION(muzzy_decay_ms).In({-1, kMaxDecayMilliseconds}).WithoutEffect().Now("arenas.muzzy_decay_ms"),
    OPTION(lg_extent_max_active_fit).In({0, 64}).WithoutEffect(),
    OPTION(junk).OneOf(Words(kJunkWords)),
    OPTION(zero),
    OPTION(xmalloc),
    OPTION(experimental_infallible_new).WithoutEffect(),
    OPTION(tcache).WithoutEffect(),
    OPTION(tcache_max).In({0, size_t{1} << kMaximumCacheLog2, kClips}).WithoutEffect(),
    OPTION(tcache_nslots_small_min).In({1, 2048, kClips}).WithoutEffect(),
    OPTION(tcache_nslots_small_max).In({1, 2048, kClips}).WithoutEffect(),
    OPTION(tcache_nslots_large).In({1, 2048, kClips}).WithoutEffect(),
    OPTION(lg_tcache_nslots_mul).In({-16, 16}).WithoutEffect(),
    OPTION(tcache_gc_incr_bytes).In({1024, SIZE_MAX, kClips}).WithoutEffect(),
    OPTION(tcache_gc_delay_bytes).WithoutEffect(),
    OPTION(lg_tcache_flush_small_div).In({1, 16, kClips}).WithoutEffect(),
    OPTION(lg_tcache_flush_large_div).In({1, 16, kClips}).WithoutEffect(),
    OPTION(thp).OneOf(Abbreviated(kThpWords)),
    OPTION(prof),
    FIELD("prof_prefix", prefix),
    OPTION(prof_active).Now("prof.active"),
    OPTION(prof_thread_active_init).Now("prof.thread_active_init"),
    FIELD("lg_prof_sample", lg_sample).In({0, HEAPTAP_MAX_LG_SAMPLE, kClips}).Now("prof.lg_sample"),
    OPTION(prof_accum),
    OPTION(lg_prof_interval).In({-1, kMaximumShift}),
    OPTION(prof_bt_max).In({1, UINT_MAX, kClips}),
    OPTION(prof_gdump),
    OPTION(prof_final),
    OPTION(prof_leak),
    OPTION(prof_leak_error),
    OPTION(prof_stats),
    OPTION(prof_sys_thread_name),
    OPTION(prof_time_resolution).OneOf(Words(kTimeResolutionWords)),
    OPTION(prof_pid_namespace),
    OPTION(stats_print),
    OPTION(stats_print_opts).As(OptionType::kLetters),
    OPTION(stats_interval).In({-1, INT64_MAX}),
    OPTION(stats_interval_opts).As(OptionType::kLetters),
    OPTION(zero_realloc).OneOf(Words(kZeroReallocWords)).WithoutEffect(),

    // jemalloc's reports leave these out.
    OPTION(prof_log).Unreadable(),
    OPTION(prof_recent_alloc_max).In({-1, SSIZE_MAX}).Unprinted(),
    OPTION(prof_unbias).Unreadable(),
    OPTION(abort_invalid_free).Unreadable(),
    OPTION(debug_check).Unreadable().EffectiveIf(kDebugBuild),
    OPTION(trust_madvise).WithoutEffect().Unprinted(),
    OPTION(experimental_tcache_gc).WithoutEffect().Unprinted(),
    OPTION(huge_arena_pac_thp).WithoutEffect().Unprinted(),
    OPTION(disable_large_size_classes).WithoutEffect().Unprinted(),
    OPTION(max_background_threads).In({1, 4096, kClips}).WithoutEffect().Unprinted(),
    OPTION(process_madvise_max_batch).WithoutEffect().Unprinted(),
    OPTION(debug_double_free_max_scan).In({0, UINT_MAX, kClips}).WithoutEffect().Unprinted(),
    FIELD("lg_tcache_max", tcache_max)
        .As(OptionType::kLogarithm)
        .In({0, kMaximumCacheLog2, kClips})
        .Unreadable()
        .WithoutEffect(),

    Ignored("abort_on_error"),
    Ignored("bin_shards"),
    Ignored("calloc_madvise_threshold"),
    Ignored("decay_time"),
    Ignored("experimental_hpa_enforce_hugify"),
    Ignored("experimental_hpa_max_purge_nhp"),
    Ignored("experimental_hpa_start_huge_if_thp_always"),
    Ignored("hpa_hugification_threshold_ratio"),
    Ignored("hpa_hugify_style"),
    Ignored("hpa_hugify_sync"),
    Ignored("hpa_min_purge_delay_ms"),
    Ignored("hpa_purge_threshold"),
    Ignored("hpa_purge_threshold_ratio"),
    Ignored("hpa_strict_min_purge_interval"),
    Ignored("lg_chunk"),
    Ignored("lg_dirty_mult"),
    Ignored("lg_san_uaf_align"),
    Ignored("lg_tcache_gc_sweep"),
    Ignored("narenas_ratio"),
    Ignored("purge"),
    Ignored("quarantine"),
    Ignored("redzone"),
    Ignored("remote_free_max"),
    Ignored("remote_free_max_batch"),
    Ignored("san_guard_large"),
    Ignored("san_guard_small"),
    Ignored("slab_sizes"),
    Ignored("tcache_ncached_max"),
    Ignored("utrace"),
};
constexpr size_t kOptionCount = sizeof(kOptions) / sizeof(kOptions[0]);

constexpr Option kCollectorOptions[] = {
    FIELD("lg_prof_sample", collector_lg_sample).In({0, HEAPTAP_MAX_LG_SAMPLE, kClips}),
    FIELD("collector", collector_pid).In({0, UINT32_MAX}),
    FIELD("areas", collector_gives_areas),
    OPTION(verify_counts),
    FIELD("prof_seed", seed),
    OPTION(drop_deepbind),
};
constexpr size_t kCollectorOptionCount = sizeof(kCollectorOptions) / sizeof(kCollectorOptions[0]);

#undef OPTION
#undef FIELD

}  // namespace heaptap
