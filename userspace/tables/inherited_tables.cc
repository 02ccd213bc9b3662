// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/inherited_tables.h"

#include <iterator>
#include <optional>

namespace heaptap::recording {

InheritedTables::InheritedTables(bpf::UnwindMaps& maps) : maps_(maps) {
  for (const auto& [number, nodes] : maps_.CountNodes()) {
    tables_[number].nodes = nodes;
    nodes_ += nodes;
  }
  for (const heaptap_file_key& key : maps_.FileKeys()) {
    const std::optional<heaptap_file> file = maps_.ReadFile(key);
    if (!file.has_value()) continue;
    if (file->state == HEAPTAP_FILE_WANTED) {
      maps_.RemoveFile(key);
      continue;
    }
    const uint32_t number = file->state == HEAPTAP_FILE_LOADED ? file->table : 0;
    files_[key] = number;
    if (number != 0) tables_[number].files++;
  }
  // Tables that no file uses: the collector died while it loaded or unloaded them.
  for (auto table = tables_.begin(); table != tables_.end();) {
    const auto next = std::next(table);
    if (table->second.files == 0) Remove(table);
    table = next;
  }
}

void InheritedTables::Remove(std::map<uint32_t, Table>::iterator table) {
  maps_.RemoveTable(table->first, table->second.nodes);
  nodes_ -= table->second.nodes;
  tables_.erase(table);
}

void InheritedTables::Leave(const heaptap_file_key& key) {
  const auto file = files_.find(key);
  if (file == files_.end()) return;
  const auto table = tables_.find(file->second);
  files_.erase(file);
  if (table != tables_.end() && --table->second.files == 0) Remove(table);
}

void InheritedTables::RemoveAll() {
  // Files first, so that no program looks for rows that are being deleted.
  for (const auto& [key, number] : files_) maps_.RemoveFile(key);
  files_.clear();
  while (!tables_.empty()) Remove(tables_.begin());
}

}  // namespace heaptap::recording
