// LengthTag: what stands in front of a protobuf field that has a length.
//
// Thread safety: a function without state.
#ifndef CAPSTAN_COMMON_WIRE_LENGTH_TAG_H_
#define CAPSTAN_COMMON_WIRE_LENGTH_TAG_H_

#include <google/protobuf/wire_format_lite.h>

#include <cstdint>

namespace capstan {

constexpr uint32_t LengthTag(int field) {
  using google::protobuf::internal::WireFormatLite;
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_LENGTH_TAG_H_
