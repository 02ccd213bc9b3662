// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/stats/members.h"

#include <stddef.h>

namespace heaptap {

JoinedName::JoinedName(const char* begin, const char* end) {
  Append(begin);
  Append(end);
}

void JoinedName::Append(const char* part) {
  while (*part != '\0' && length_ + 1 < sizeof(text_)) text_[length_++] = *part++;
  text_[length_] = '\0';
}

void MemberPrinter::PrintList(const NodeList& list, size_t depth, const char* prefix, bool is_outermost) {
  for (size_t i = 0; i < list.count; i++) {
    const Node& node = list.nodes[i];
    if (node.key == nullptr || (is_wanted_ != nullptr && !is_wanted_(node.key, is_outermost, context_))) continue;
    mib_[depth] = i;
    if (node.handler != nullptr) {
      PrintLeaf(node, prefix);
    } else if (emitter_->is_json()) {
      PrintChildren(node, depth + 1);
    }
  }
}

void MemberPrinter::PrintLeaf(const Node& node, const char* prefix) {
  if (!emitter_->is_json() && node.title == nullptr && prefix == nullptr) return;
  StatisticsValue value;
  Request request = {};
  request.mib = mib_;
  request.report = &value;
  request.snapshot = snapshot_;
  if (node.handler(request) != 0 || !value.exists()) return;
  if (prefix == nullptr) {
    emitter_->Entry(node.key, node.title, value);
  } else {
    emitter_->Entry(node.key, JoinedName(prefix, node.key).text(), value);
  }
}

void MemberPrinter::PrintChildren(const Node& node, size_t depth) {
  const NodeList& list = *node.children;
  if (list.accepts == nullptr) {
    emitter_->BeginObject(node.key);
    PrintList(list, depth, nullptr, false);
    emitter_->EndObject();
    return;
  }
  emitter_->BeginArray(node.key);
  for (size_t index = 0; list.accepts(index); index++) {
    mib_[depth] = index;
    emitter_->BeginObject();
    PrintList(list, depth + 1, nullptr, false);
    emitter_->EndObject();
  }
  emitter_->EndArray();
}

}  // namespace heaptap
