// SPDX-License-Identifier: Apache-2.0
//
// The functions that tell about the allocator or tune it: glibc's, from the figures of the control block.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>

#include "allocate.h"
#include "statistics.h"
#include "system.h"

#define HEAPTAP_EXPORT extern "C" __attribute__((visibility("default")))

using heaptap::ReadFigure;

namespace {

struct Totals {
  uint64_t mapped = ReadFigure(&heaptap_statistics::mapped);
  uint64_t active = ReadFigure(&heaptap_statistics::active);
  uint64_t dirty = ReadFigure(&heaptap_statistics::dirty);
  uint64_t large = ReadFigure(&heaptap_statistics::large);
};

int Clip(uint64_t number) { return number < INT_MAX ? static_cast<int>(number) : INT_MAX; }

}  // namespace

HEAPTAP_EXPORT int malloc_trim(size_t) noexcept { return heaptap::Trim(); }

// There is nothing to tune; saying so as an error would only frighten programs that set glibc's parameters.
HEAPTAP_EXPORT int mallopt(int, int) noexcept { return 1; }

HEAPTAP_EXPORT struct mallinfo2 mallinfo2() noexcept {
  Totals totals;
  struct mallinfo2 result {};
  result.arena = totals.mapped;
  result.hblkhd = totals.large;
  result.uordblks = totals.active;
  result.fordblks = totals.mapped > totals.active ? totals.mapped - totals.active : 0;  // read one after the other
  result.keepcost = totals.dirty;
  return result;
}

HEAPTAP_EXPORT struct mallinfo mallinfo() noexcept {
  struct mallinfo2 wide = mallinfo2();
  struct mallinfo result {};
  result.arena = Clip(wide.arena);
  result.hblkhd = Clip(wide.hblkhd);
  result.uordblks = Clip(wide.uordblks);
  result.fordblks = Clip(wide.fordblks);
  result.keepcost = Clip(wide.keepcost);
  return result;
}

HEAPTAP_EXPORT void malloc_stats() noexcept {
  Totals totals;
  heaptap::Message message;
  message << "heaptap: " << totals.mapped << " bytes mapped, " << totals.active << " in use, " << totals.dirty
          << " free but not returned to the system, " << totals.large << " in large blocks\n";
  message.Print();
}

HEAPTAP_EXPORT int malloc_info(int options, FILE* stream) noexcept {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  Totals totals;
  int written = fprintf(stream,
                        "<malloc version=\"heaptap-1\">\n"
                        "<system type=\"mapped\" size=\"%" PRIu64
                        "\"/>\n"
                        "<system type=\"active\" size=\"%" PRIu64
                        "\"/>\n"
                        "<system type=\"dirty\" size=\"%" PRIu64
                        "\"/>\n"
                        "<total type=\"large\" size=\"%" PRIu64
                        "\"/>\n"
                        "</malloc>\n",
                        totals.mapped, totals.active, totals.dirty, totals.large);
  return written < 0 ? -1 : 0;
}
