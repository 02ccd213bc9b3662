// SPDX-License-Identifier: Apache-2.0
//
// Tries each feature of the kernel's eBPF and tracing that heaptap uses, by using it: makes maps, loads programs,
// attaches and hits probes. Nothing is left behind. Thread-safe.
//
// A function returns OK, PermissionDenied if this process lacks the right, or an error that says what the kernel lacks.
#ifndef HEAPTAP_USERSPACE_DOCTOR_FEATURE_PROBES_H_
#define HEAPTAP_USERSPACE_DOCTOR_FEATURE_PROBES_H_

#include <linux/bpf.h>

#include "absl/status/status.h"

struct btf;

namespace heaptap::bpf {

// Loads a program for probes that does nothing.
absl::Status TryProgram();

// Makes a map.
absl::Status TryMap(bpf_map_type type);

// Looks for a helper by loading a program that calls it wrongly: the verifier either objects to the arguments or says
// that programs of this type have no such helper.
absl::Status TryHelper(bpf_prog_type type, bpf_func_id helper);

// A program that writes into the memory of the process that it runs in.
absl::Status TryWriteToProcess();

// Atomic operations that return the old value.
absl::Status TryAtomics();

// A hash map that takes memory as it fills, in a program that can interrupt anything.
absl::Status TryGrowingMap();

// Reads many entries of a map at once.
absl::Status TryBatches();

// Runs a program by bpf(2).
absl::Status TryRunByCall();

// Attaches to a tracepoint of that name.
absl::Status TryRawTracepoint(const char* name);

// Attaches a program to a perf event by a link.
absl::Status TryPerfLink();

// Attaches to a function of this program, with a semaphore, and calls it.
absl::Status TryUprobe();

// Like TryUprobe, by a link to many sites of a file.
absl::Status TryUprobeMulti();

// Pins a map in a BPF file system that is mounted nowhere.
absl::Status TryPins();

// Whether a structure, or the structure that a typedef names, has a field of that name in these types. Fields of
// unnamed structures and unions inside it count.
bool HasField(const btf* types, const char* structure, const char* field);

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_DOCTOR_FEATURE_PROBES_H_
