// SPDX-License-Identifier: Apache-2.0
//
// What workers and their collector send each other. Each side may have been taken over by a file or a process. The
// first byte of an input chooses the message.
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/fuzz/check.h"
#include "userspace/process/facts.h"
#include "userspace/process/script_name.h"
#include "userspace/process/start_facts.h"
#include "userspace/worker/dump_job.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/request.h"

namespace {

namespace worker = heaptap::worker;

void DecodeOrderTwice(absl::string_view bytes) {
  const absl::StatusOr<worker::Order> order = worker::DecodeOrder(bytes);
  if (!order.ok()) return;
  const absl::StatusOr<worker::Order> again = worker::DecodeOrder(worker::Encode(*order));
  Check(again.ok() && again->request.question == order->request.question &&
        again->request.paths == order->request.paths && again->request.file.mapping == order->request.file.mapping &&
        again->request.file.version == order->request.file.version && again->memory_bytes == order->memory_bytes);
}

void DecodeTable(absl::string_view bytes) {
  const absl::StatusOr<worker::TableOfFile> read = worker::DecodeTable(bytes);
  if (!read.ok()) return;
  for (size_t i = 1; i < read->table.rows.size(); i++) Check(read->table.rows[i - 1].pc < read->table.rows[i].pc);
}

void DecodeAllocator(absl::string_view bytes) {
  const absl::StatusOr<worker::AllocatorOfFile> read = worker::DecodeAllocator(bytes);
  if (!read.ok()) return;
  Check(read->probes.sites.size() <= heaptap::elf::kMaxProbeSites);
  if (!read->control.has_value()) return;
  heaptap::process::ControlAddress(*read->control, {.start = 4096, .end = 1 << 20}).status().IgnoreError();
}

void DecodeDumpTwice(absl::string_view bytes) {
  const absl::StatusOr<heaptap::formats::Dump> dump = worker::DecodeDump(bytes);
  if (!dump.ok()) return;
  std::string encoded;
  worker::EncodeDump(*dump, [&](absl::string_view part) { encoded.append(part.data(), part.size()); });
  const absl::StatusOr<heaptap::formats::Dump> again = worker::DecodeDump(encoded);
  Check(again.ok() && again->profile.contexts.size() == dump->profile.contexts.size() &&
        again->profile.mappings == dump->profile.mappings &&
        again->profile.thread_names == dump->profile.thread_names &&
        again->profile.warnings == dump->profile.warnings && again->symbols.size() == dump->symbols.size());
  for (size_t i = 0; i < dump->profile.contexts.size(); i++) {
    const heaptap::profile::Context& context = dump->profile.contexts[i];
    const heaptap::profile::Context& same = again->profile.contexts[i];
    Check(same.frames == context.frames && same.threads == context.threads && same.blocks == context.blocks);
    Check(std::isfinite(context.Live().bytes) || context.threads.size() > 1);
  }
}

void DecodeStart(absl::string_view bytes) {
  const absl::StatusOr<heaptap::process::StartFacts> facts = heaptap::process::DecodeStartFacts(bytes);
  if (!facts.ok()) return;
  for (const char* executable : {"python3", "node", "java", "php"}) {
    heaptap::process::ScriptName(executable, executable, facts->arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'o':
      DecodeOrderTwice(bytes);
      break;
    case 'a':
      worker::DecodeAnswer(bytes).status().IgnoreError();
      break;
    case 'l':
      worker::DecodeFacts(bytes).status().IgnoreError();
      break;
    case 't':
      DecodeTable(bytes);
      break;
    case 'p':
      DecodeAllocator(bytes);
      break;
    case 'f':
      heaptap::process::DecodeFacts(bytes).status().IgnoreError();
      break;
    case 's':
      DecodeStart(bytes);
      break;
    case 'd':
      DecodeDumpTwice(bytes);
      break;
    default:
      break;
  }
  return 0;
}
