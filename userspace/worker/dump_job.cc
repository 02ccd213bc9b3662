// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/dump_job.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <protozero/pbf_builder.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/base/message_fields.h"
#include "userspace/elf/mappings.h"
#include "userspace/worker/mapping_message.h"

namespace heaptap::worker {
namespace {

using formats::Dump;
using profile::BlockShare;
using profile::Context;
using profile::Estimate;
using profile::SourceFrame;
using profile::ThreadShare;

enum class DumpField : protozero::pbf_tag_type {
  kPid = 1,
  kPeriod = 2,
  kRaw = 3,
  kContext = 4,
  kMapping = 5,
  kThread = 6,
  kStackEnds = 7,  // packed; the last one is the number without a stack
  kWarning = 8,
  kSymbol = 9,
  kTime = 10,  // nanoseconds since 1970
  kSeveralPeriods = 11,
};
// Lists of 64-bit numbers as they are in memory, which takes half the time of packed ones.
enum class ContextField : protozero::pbf_tag_type { kFrames = 1, kTruncated = 2, kShares = 3, kBlocks = 4 };
enum class ThreadField : protozero::pbf_tag_type { kTid = 1, kName = 2 };
enum class SymbolField : protozero::pbf_tag_type { kAddress = 1, kFrame = 2 };
enum class FrameField : protozero::pbf_tag_type { kFunction = 1, kLinkageName = 2, kFile = 3, kLine = 4 };

constexpr char kWhat[] = "a profile";
constexpr size_t kEstimateNumbers = 5;
// Numbers of a thread's share: the thread, and two estimates.
constexpr size_t kShareNumbers = 1 + 2 * kEstimateNumbers;
// Numbers of a block share: the thread, the size, the age, and an estimate.
constexpr size_t kBlockNumbers = 3 + kEstimateNumbers;

absl::Status Wrong(absl::string_view why) { return absl::InvalidArgumentError(absl::StrCat("not a profile: ", why)); }

// Encodes an embedded message.
template <typename Field, typename Fill>
std::string Message(Fill fill) {
  std::string bytes;
  protozero::pbf_builder<Field> out(bytes);
  fill(out);
  return bytes;
}

absl::string_view BytesOfAll(absl::Span<const uint64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(uint64_t)};
}

// False: the bytes are not whole numbers, or there are too many.
bool ToNumbers(absl::string_view bytes, size_t most, std::vector<uint64_t>& numbers) {
  if (bytes.size() % sizeof(uint64_t) != 0 || bytes.size() / sizeof(uint64_t) > most) return false;
  numbers.resize(bytes.size() / sizeof(uint64_t));
  if (!bytes.empty()) memcpy(numbers.data(), bytes.data(), bytes.size());
  return true;
}

void Append(const Estimate& estimate, std::vector<uint64_t>& numbers) {
  numbers.insert(numbers.end(), {estimate.samples, estimate.sampled_bytes, std::bit_cast<uint64_t>(estimate.objects),
                                 std::bit_cast<uint64_t>(estimate.bytes), std::bit_cast<uint64_t>(estimate.variance)});
}

// Reads the first kEstimateNumbers numbers. False: they are not an estimate.
bool ToEstimate(absl::Span<const uint64_t> numbers, Estimate& estimate) {
  estimate = {.samples = numbers[0],
              .sampled_bytes = numbers[1],
              .objects = std::bit_cast<double>(numbers[2]),
              .bytes = std::bit_cast<double>(numbers[3]),
              .variance = std::bit_cast<double>(numbers[4])};
  return std::isfinite(estimate.objects) && std::isfinite(estimate.bytes) && std::isfinite(estimate.variance);
}

class Decoder {
 public:
  absl::StatusOr<Dump> Decode(absl::string_view bytes) && {
    profile::Profile& profile = dump_.profile;
    std::vector<uint64_t> ends;
    uint64_t time = 0;
    std::string text;
    absl::string_view part;
    absl::Status inner;
    const absl::Status outer = base::ReadFields<DumpField>(bytes, kWhat, [&](auto& in) {
      if (in.Take(DumpField::kContext, part)) {
        inner.Update(AddContext(part));
      } else if (in.Take(DumpField::kSymbol, part)) {
        inner.Update(AddSymbol(part));
      } else if (in.Take(DumpField::kMapping, part)) {
        inner.Update(AddMapping(part));
      } else if (in.Take(DumpField::kThread, part)) {
        inner.Update(AddThread(part));
      } else if (in.Take(DumpField::kWarning, text)) {
        if (profile.warnings.size() == kMaxDumpWarnings) inner.Update(Wrong("too many warnings"));
        if (inner.ok()) profile.warnings.push_back(text);
      } else if (in.Take(DumpField::kTime, time)) {
        profile.time = absl::FromUnixNanos(static_cast<int64_t>(time));
      } else {
        return in.Take(DumpField::kPid, profile.pid) || in.Take(DumpField::kPeriod, profile.period) ||
               in.Take(DumpField::kRaw, profile.raw) || in.Take(DumpField::kSeveralPeriods, profile.several_periods) ||
               in.Take(DumpField::kStackEnds, ends, profile.stack_ends.samples.size() + 1);
      }
      // The rest is not worth the time.
      if (!inner.ok()) throw std::invalid_argument(std::string(inner.message()));
      return true;
    });
    if (!inner.ok()) return inner;
    if (!outer.ok()) return outer;
    if (!ends.empty()) {
      if (ends.size() != profile.stack_ends.samples.size() + 1) return Wrong("the ends of its stacks");
      profile.stack_ends.without_stack = ends.back();
      std::copy(ends.begin(), ends.end() - 1, profile.stack_ends.samples.begin());
    }
    profile.mappings.assign(mappings_.begin(), mappings_.end());
    absl::flat_hash_set<absl::Span<const uint64_t>> paths;
    paths.reserve(profile.contexts.size());
    for (const Context& context : profile.contexts) {
      if (!paths.insert(context.frames).second) return Wrong("a call path twice");
    }
    return std::move(dump_);
  }

 private:
  absl::Status AddContext(absl::string_view bytes) {
    if (dump_.profile.contexts.size() == formats::kMaxReadContexts) return Wrong("too many call paths");
    Context& context = dump_.profile.contexts.emplace_back();
    absl::string_view frames;
    absl::string_view shares;
    absl::string_view blocks;
    absl::Status status = base::ReadFields<ContextField>(bytes, kWhat, [&](auto& in) {
      return in.Take(ContextField::kFrames, frames) || in.Take(ContextField::kShares, shares) ||
             in.Take(ContextField::kBlocks, blocks) || in.Take(ContextField::kTruncated, context.truncated);
    });
    if (!status.ok()) return status;
    if (!ToNumbers(frames, formats::kMaxReadFrames, context.frames)) return Wrong("the frames of a call path");
    status.Update(AddShares(shares, context));
    status.Update(AddBlocks(blocks, context));
    return status;
  }

  absl::Status AddShares(absl::string_view shares, Context& context) {
    if (!ToNumbers(shares, formats::kMaxReadThreads * kShareNumbers, numbers_) ||
        numbers_.size() % kShareNumbers != 0) {
      return Wrong("the shares of threads");
    }
    context.threads.reserve(numbers_.size() / kShareNumbers);
    for (absl::Span<const uint64_t> rest = numbers_; !rest.empty(); rest.remove_prefix(kShareNumbers)) {
      ThreadShare share = {.tid = static_cast<uint32_t>(rest[0])};
      const bool is_next = context.threads.empty() || share.tid > context.threads.back().tid;
      if (!is_next || !ToEstimate(rest.subspan(1), share.live) ||
          !ToEstimate(rest.subspan(1 + kEstimateNumbers), share.allocated)) {
        return Wrong("the share of a thread");
      }
      context.threads.push_back(share);
    }
    return absl::OkStatus();
  }

  absl::Status AddBlocks(absl::string_view blocks, Context& context) {
    if (!ToNumbers(blocks, blocks.size(), numbers_) || numbers_.size() % kBlockNumbers != 0) {
      return Wrong("the blocks of a call path");
    }
    context.blocks.reserve(numbers_.size() / kBlockNumbers);
    for (absl::Span<const uint64_t> rest = numbers_; !rest.empty(); rest.remove_prefix(kBlockNumbers)) {
      BlockShare share = {
          .tid = static_cast<uint32_t>(rest[0]), .size = rest[1], .age = static_cast<uint32_t>(rest[2])};
      const bool is_next = context.blocks.empty() || Order(context.blocks.back()) < Order(share);
      const bool is_age = share.age == profile::kUnknownAge || share.age == profile::AgeOf(share.age);
      if (!is_next || !is_age || !ToEstimate(rest.subspan(3), share.live)) return Wrong("a share of blocks");
      context.blocks.push_back(share);
    }
    return absl::OkStatus();
  }

  static std::tuple<uint32_t, uint64_t, uint32_t> Order(const BlockShare& share) {
    return {share.tid, share.size, share.age};
  }

  absl::Status AddSymbol(absl::string_view bytes) {
    uint64_t address = 0;
    absl::string_view part;
    std::vector<SourceFrame> frames;
    absl::Status inner;
    absl::Status outer = base::ReadFields<SymbolField>(bytes, kWhat, [&](auto& in) {
      if (!in.Take(SymbolField::kFrame, part)) return in.Take(SymbolField::kAddress, address);
      if (++symbol_frames_ > kMaxDumpSymbols) throw std::length_error("too many names");
      SourceFrame& frame = frames.emplace_back();
      inner.Update(base::ReadFields<FrameField>(part, kWhat, [&](auto& field) {
        return field.Take(FrameField::kFunction, frame.function) ||
               field.Take(FrameField::kLinkageName, frame.linkage_name) || field.Take(FrameField::kFile, frame.file) ||
               field.Take(FrameField::kLine, frame.line);
      }));
      return true;
    });
    if (!outer.ok()) return outer;
    if (!inner.ok()) return inner;
    if (dump_.symbols.size() == kMaxDumpSymbols) return Wrong("too many names");
    dump_.symbols.insert_or_assign(address, std::move(frames));
    return absl::OkStatus();
  }

  absl::Status AddMapping(absl::string_view bytes) {
    absl::StatusOr<elf::Mapping> mapping = DecodeMapping(bytes);
    if (!mapping.ok()) return mapping.status();
    return mappings_.Add(*std::move(mapping)) ? absl::OkStatus() : Wrong("a mapping");
  }

  absl::Status AddThread(absl::string_view bytes) {
    uint32_t tid = 0;
    std::string name;
    absl::Status status = base::ReadFields<ThreadField>(
        bytes, kWhat, [&](auto& in) { return in.Take(ThreadField::kTid, tid) || in.Take(ThreadField::kName, name); });
    if (!status.ok()) return status;
    if (dump_.profile.thread_names.size() == formats::kMaxReadThreads) return Wrong("too many threads");
    dump_.profile.thread_names[tid] = std::move(name);
    return absl::OkStatus();
  }

  Dump dump_;
  elf::Mappings mappings_;
  size_t symbol_frames_ = 0;
  std::vector<uint64_t> numbers_;  // of one context
};

}  // namespace

std::string DumpQuestion(absl::string_view name, formats::ReadThreads threads) {
  const char head = static_cast<char>(threads);
  return absl::StrCat(absl::string_view(&head, 1), name);
}

absl::Status ReadDumpFile(const ReaderInput& input, WritePart write) {
  if (input.question.empty()) return absl::InvalidArgumentError("no question");
  struct stat status;
  if (fstat(input.file, &status) != 0) return absl::ErrnoToStatus(errno, "a dump");
  const auto size = static_cast<size_t>(status.st_size);
  if (size > formats::kMaxDumpBytes) return absl::InvalidArgumentError("the dump is too large");
  absl::string_view bytes;
  if (size > 0) {
    // If the file is truncated meanwhile, this process dies.
    void* const mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, input.file, 0);
    if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, "a dump");
    bytes = absl::string_view(static_cast<const char*>(mapped), size);
  }
  const absl::Cleanup unmap = [bytes] {
    if (!bytes.empty()) munmap(const_cast<char*>(bytes.data()), bytes.size());
  };
  const absl::StatusOr<Dump> dump =
      formats::ReadDump(bytes, input.question.substr(1), static_cast<formats::ReadThreads>(input.question[0]));
  if (!dump.ok()) return dump.status();
  EncodeDump(*dump, write);
  return absl::OkStatus();
}

void EncodeDump(const Dump& dump, WritePart write) {
  constexpr size_t kPieceBytes = 60 << 10;  // below that of a packet
  const profile::Profile& profile = dump.profile;
  std::string bytes;
  protozero::pbf_builder<DumpField> out(bytes);
  const auto flush = [&](size_t most) {
    if (bytes.size() <= most) return;
    write(bytes);
    bytes.clear();
  };
  out.add_int32(DumpField::kPid, profile.pid);
  out.add_uint64(DumpField::kPeriod, profile.period);
  out.add_bool(DumpField::kRaw, profile.raw);
  out.add_bool(DumpField::kSeveralPeriods, profile.several_periods);
  if (profile.time.has_value())
    out.add_uint64(DumpField::kTime, static_cast<uint64_t>(absl::ToUnixNanos(*profile.time)));
  std::vector<uint64_t> numbers(profile.stack_ends.samples.begin(), profile.stack_ends.samples.end());
  numbers.push_back(profile.stack_ends.without_stack);
  out.add_packed_uint64(DumpField::kStackEnds, numbers.begin(), numbers.end());
  for (const std::string& warning : profile.warnings) out.add_bytes(DumpField::kWarning, warning);
  for (const elf::Mapping& mapping : profile.mappings) out.add_bytes(DumpField::kMapping, Encode(mapping));
  for (const auto& [tid, name] : profile.thread_names) {
    out.add_bytes(DumpField::kThread, Message<ThreadField>([&, tid = tid, &name = name](auto& to) {
                    to.add_uint32(ThreadField::kTid, tid);
                    to.add_bytes(ThreadField::kName, name);
                  }));
    flush(kPieceBytes);
  }
  std::string message;
  for (const Context& context : profile.contexts) {
    message.clear();
    protozero::pbf_builder<ContextField> to(message);
    to.add_bytes(ContextField::kFrames, BytesOfAll(context.frames).data(), BytesOfAll(context.frames).size());
    to.add_bool(ContextField::kTruncated, context.truncated);
    numbers.clear();
    for (const ThreadShare& share : context.threads) {
      numbers.push_back(share.tid);
      Append(share.live, numbers);
      Append(share.allocated, numbers);
    }
    to.add_bytes(ContextField::kShares, BytesOfAll(numbers).data(), BytesOfAll(numbers).size());
    numbers.clear();
    for (const BlockShare& share : context.blocks) {
      numbers.insert(numbers.end(), {share.tid, share.size, share.age});
      Append(share.live, numbers);
    }
    if (!numbers.empty()) {
      to.add_bytes(ContextField::kBlocks, BytesOfAll(numbers).data(), BytesOfAll(numbers).size());
    }
    out.add_bytes(DumpField::kContext, message);
    flush(kPieceBytes);
  }
  for (const auto& [address, frames] : dump.symbols) {
    message.clear();
    protozero::pbf_builder<SymbolField> to(message);
    to.add_uint64(SymbolField::kAddress, address);
    for (const SourceFrame& frame : frames) {
      to.add_bytes(SymbolField::kFrame, Message<FrameField>([&](auto& field) {
                     field.add_bytes(FrameField::kFunction, frame.function);
                     field.add_bytes(FrameField::kLinkageName, frame.linkage_name);
                     field.add_bytes(FrameField::kFile, frame.file);
                     field.add_uint32(FrameField::kLine, frame.line);
                   }));
    }
    out.add_bytes(DumpField::kSymbol, message);
    flush(kPieceBytes);
  }
  flush(0);
}

absl::StatusOr<Dump> DecodeDump(absl::string_view bytes) { return Decoder().Decode(bytes); }

}  // namespace heaptap::worker
