// SPDX-License-Identifier: Apache-2.0
//
// Reads the fields of a protobuf message, which may be hostile.
//
//     absl::Status status = ReadFields<Field>(bytes, "an order", [&](auto& in) {
//       return in.Take(Field::kPid, order.pid) || in.Take(Field::kPath, order.path);
//     });
//
// Thread-compatible.
#ifndef HEAPTAP_USERSPACE_BASE_MESSAGE_FIELDS_H_
#define HEAPTAP_USERSPACE_BASE_MESSAGE_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <protozero/pbf_message.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heaptap::base {

// The field at which a message is read. `Field`: an enumeration of the numbers of fields.
template <typename Field>
class MessageField {
 public:
  explicit MessageField(protozero::pbf_message<Field>& in) : in_(in) {}

  // Each overload takes the value if this is `field` and has the overload's type. Throws if the message ends too early.
  bool Take(Field field, std::string& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::length_delimited);
    if (is_it) value = in_.get_bytes();
    return is_it;
  }
  // The view is a part of the message.
  bool Take(Field field, absl::string_view& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::length_delimited);
    if (is_it) {
      const protozero::data_view view = in_.get_view();
      value = absl::string_view(view.data(), view.size());
    }
    return is_it;
  }
  bool Take(Field field, uint64_t& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::varint);
    if (is_it) value = in_.get_uint64();
    return is_it;
  }
  bool Take(Field field, uint32_t& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::varint);
    if (is_it) value = in_.get_uint32();
    return is_it;
  }
  bool Take(Field field, int32_t& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::varint);
    if (is_it) value = in_.get_int32();
    return is_it;
  }
  bool Take(Field field, bool& value) {
    const bool is_it = Is(field, protozero::pbf_wire_type::varint);
    if (is_it) value = in_.get_uint32() != 0;  // get_bool would read beyond the end
    return is_it;
  }
  // Appends the values of a repeated field, packed or not. Throws if there are more than `most` in total.
  bool Take(Field field, std::vector<uint64_t>& values, size_t most) {
    const auto add = [&](uint64_t value) {
      if (values.size() == most) throw std::length_error(absl::StrCat("a list with more than ", most, " entries"));
      values.push_back(value);
    };
    if (Is(field, protozero::pbf_wire_type::varint)) {
      add(in_.get_uint64());
      return true;
    }
    if (!Is(field, protozero::pbf_wire_type::length_delimited)) return false;
    for (const uint64_t value : in_.get_packed_uint64()) add(value);
    return true;
  }

 private:
  bool Is(Field field, protozero::pbf_wire_type type) const {
    return in_.tag_and_type() == protozero::tag_and_type(field, type);
  }

  protozero::pbf_message<Field>& in_;
};

// Calls take(field) for each field, which returns whether it has taken the value. Unknown fields are left out, and so
// are known fields with another type. `what`: for the message of InvalidArgument, if the bytes are not a protobuf
// message.
template <typename Field, typename Take>
absl::Status ReadFields(absl::string_view bytes, absl::string_view what, Take take) {
  try {
    protozero::pbf_message<Field> in(bytes.data(), bytes.size());
    MessageField<Field> field(in);
    while (in.next()) {
      if (!take(field)) in.skip();
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not ", what, ": ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_MESSAGE_FIELDS_H_
