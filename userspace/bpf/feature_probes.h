// SPDX-License-Identifier: Apache-2.0
//
// Tries what heaptap uses of the kernel's eBPF and tracing, one feature at a time, by using it: maps are made, programs
// loaded, probes attached and hit. Each leaves nothing behind. Thread safe.
//
// Each returns OK, PermissionDenied if this process may not, or an error that says what the kernel lacks.
#ifndef HEAPTAP_USERSPACE_BPF_FEATURE_PROBES_H_
#define HEAPTAP_USERSPACE_BPF_FEATURE_PROBES_H_

#include <linux/bpf.h>

#include "absl/status/status.h"

struct btf;

namespace heaptap::bpf {

// Loads a program for probes that does nothing.
absl::Status TryProgram();

// Makes a map.
absl::Status TryMap(bpf_map_type type);

// Calls a helper in a program that is not meant to pass: the verifier either objects to the arguments or says that
// programs of this type have no such helper.
absl::Status TryHelper(bpf_prog_type type, bpf_func_id helper);

// Writes into the memory of the process that a program runs in.
absl::Status TryWriteToProcess();

// Atomic additions and exchanges that return the old value.
absl::Status TryAtomics();

// Uses a hash map that takes memory as it fills, in a program that can interrupt anything.
absl::Status TryGrowingMap();

// Reads many entries of a map at once.
absl::Status TryBatches();

// Runs a program by bpf(2) itself.
absl::Status TryRunByCall();

// Attaches to a tracepoint of that name.
absl::Status TryRawTracepoint(const char* name);

// Attaches a program to a perf event by a link.
absl::Status TryPerfLink();

// Attaches to a function of this program, with a semaphore, and calls it.
absl::Status TryUprobe();

// The same by a link to many sites of a file.
absl::Status TryUprobeMulti();

// Keeps a map under a name in a BPF file system that is nowhere mounted.
absl::Status TryPins();

// Whether a structure, or what a typedef stands for, has a field of that name in these types, also in a structure or
// union without a name inside it.
bool HasField(const btf* types, const char* structure, const char* field);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_FEATURE_PROBES_H_
