// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --perfetto`: a trace with one heap profile, for ui.perfetto.dev and trace_processor.
//
// Format: protos/perfetto/trace of github.com/google/perfetto: TracePacket, InternedData, ProfilePacket. Names are part
// of the trace, so that nothing has to be symbolized; a frame's relative address is only its number.
#ifndef HEAPTAP_USERSPACE_VIEWS_PERFETTO_H_
#define HEAPTAP_USERSPACE_VIEWS_PERFETTO_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

// `pid`: 0 if it is unknown. Negative estimates of a difference count as 0. Thread-safe.
std::string Perfetto(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, uint64_t pid);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_PERFETTO_H_
