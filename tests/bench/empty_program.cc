// SPDX-License-Identifier: Apache-2.0
//
// Listens to samples with an eBPF program that does nothing: empty_program OBJECT LIBRARY. Prints a line when the
// probes of LIBRARY are attached, and detaches them when standard input ends.
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <stdlib.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/probes.h"
#include "userspace/elf/probes.h"

namespace {

using heaptap::bpf::AttachedProbe;

[[noreturn]] void Fail(absl::string_view what) {
  std::cerr << "empty_program: " << what << "\n";
  exit(1);
}

template <typename Value>
Value Check(absl::StatusOr<Value> value) {
  if (!value.ok()) Fail(value.status().message());
  return *std::move(value);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) Fail("usage: empty_program OBJECT LIBRARY");
  bpf_object* object = bpf_object__open_file(argv[1], nullptr);
  if (object == nullptr || bpf_object__load(object) != 0) Fail("cannot load the program");
  const int program = bpf_program__fd(bpf_object__find_program_by_name(object, "nothing"));
  const std::string library = argv[2];
  const heaptap::base::FileDescriptor file(open(library.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) Fail("cannot open the library");
  std::vector<AttachedProbe> attached;
  for (const auto& site : Check(heaptap::elf::ReadProbes(file.get(), {HEAPTAP_PROVIDER_OTEL}))) {
    if (site.name != HEAPTAP_PROBE_ALLOC) continue;
    attached.push_back(
        Check(AttachedProbe::Attach(program, {library, site.file_offset, site.semaphore_file_offset}, -1)));
  }
  std::cout << "attached to " << attached.size() << " sites" << std::endl;
  for (std::string line; std::getline(std::cin, line);) continue;
  return 0;
}
