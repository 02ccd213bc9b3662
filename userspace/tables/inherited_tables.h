// SPDX-License-Identifier: Apache-2.0
//
// The unwind tables that an earlier collector left in the kernel. Programs go on using them until this collector has
// read the files itself: otherwise every stack would be a raw stack until then.
//
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TABLES_INHERITED_TABLES_H_
#define HEAPTAP_USERSPACE_TABLES_INHERITED_TABLES_H_

#include <cstdint>
#include <map>

#include "bpf/unwind.h"
#include "userspace/bpf/file_key.h"
#include "userspace/bpf/unwind_maps.h"

namespace heaptap::recording {

class InheritedTables {
 public:
  // Removes the files whose tables the earlier collector was asked for and did not load; programs ask for them again.
  // `maps` must outlive this object.
  explicit InheritedTables(bpf::UnwindMaps& maps);

  bool empty() const { return files_.empty(); }
  bool Has(const heaptap_file_key& key) const { return files_.contains(key); }
  // To be called when the file has a new entry in the kernel, or none.
  void Leave(const heaptap_file_key& key);
  // Removes what is left; programs ask for the tables again.
  void RemoveAll();

  // Nodes that the tables take in the kernel.
  uint64_t nodes() const { return nodes_; }

 private:
  struct Table {
    uint32_t nodes = 0;
    uint32_t files = 0;  // that use it
  };
  void Remove(std::map<uint32_t, Table>::iterator table);

  bpf::UnwindMaps& maps_;
  std::map<heaptap_file_key, uint32_t, bpf::FileKeyLess> files_;  // -> number of the table; 0: none
  std::map<uint32_t, Table> tables_;                              // by number
  uint64_t nodes_ = 0;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_INHERITED_TABLES_H_
