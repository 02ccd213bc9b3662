// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/area_gifts.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "userspace/bpf/areas.h"
#include "userspace/crews/hands.h"

namespace heaptap::recording {

absl::Status AreaGifts::Prepare() {
  return gives_ && books_.areas() != nullptr ? books_.areas()->Prepare() : absl::OkStatus();
}

void AreaGifts::Answer(const Target& target, const heaptap_dump_request& request) {
  // The other collector answers.
  if (target.control->is_foreign || !orders_.HasRoom(target.pid)) return;
  const absl::StatusOr<int> area =
      gives_ && books_.areas() != nullptr && request.argument <= HEAPTAP_AREAS
          ? books_.areas()->Give(target.pid, target.process_id, static_cast<uint32_t>(request.argument))
          : absl::UnavailableError("this recording gives no areas");
  orders_.Start(
      target.pid,
      [pid = target.pid, id = target.process_id, processes = &books_.processes(),
       socket = worker::AreaSocket{.cookie = request.sequence, .descriptor = request.file_fd},
       fd = area.ok() ? *area : -1](worker::Hands& hands, int) {
        hands.GiveArea(pid, socket, fd, [=] { return processes->IsCurrent(pid, id); }).IgnoreError();
      },
      [] {});
}

}  // namespace heaptap::recording
