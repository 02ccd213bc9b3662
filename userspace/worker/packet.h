// SPDX-License-Identifier: Apache-2.0
//
// Packets between the collector and its workers: bytes, and descriptors beside them, over a Unix socket of type
// SOCK_SEQPACKET. Thread-safe for different sockets.
#ifndef HEAPTAP_USERSPACE_WORKER_PACKET_H_
#define HEAPTAP_USERSPACE_WORKER_PACKET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::worker {

// Well below the default size of a socket's buffer (net.core.wmem_default), so that a packet to an idle worker never
// waits.
inline constexpr size_t kMaxPacketBytes = 64 << 10;
inline constexpr size_t kMaxPacketDescriptors = 16;

struct Packet {
  std::string bytes = {};
  std::vector<base::FileDescriptor> descriptors = {};
};

// Waits for room. Unavailable: the other end is gone. InvalidArgument: a packet beyond the bounds.
absl::Status SendPacket(int socket, absl::string_view bytes, absl::Span<const int> descriptors = {});

// Waits for the next packet. Unavailable: the other end is gone. InvalidArgument: a packet beyond the bounds.
absl::StatusOr<Packet> ReceivePacket(int socket);
// Like ReceivePacket, but without descriptors. The kernel drops the descriptors that the other end sends: closing the
// descriptor of a hostile file could take for ever.
absl::StatusOr<std::string> ReceiveBytes(int socket);

// Bytes of any size in a file without a name. The file is sealed: it never changes.
absl::StatusOr<base::FileDescriptor> PutInFile(absl::string_view bytes);
// Takes the bytes out of such a file. InvalidArgument: the file is not sealed like that, or has more than `most` bytes.
absl::StatusOr<std::string> TakeFromFile(int file, size_t most);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_PACKET_H_
