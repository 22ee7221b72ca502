#include "common/wire/parsed_size.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>

namespace capstan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kDepthMax = 100;         // The parser's own limit.
constexpr int kCountedFieldsMax = 32;  // Numbers of the fields whose entries are counted.

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

class Counter {
 public:
  explicit Counter(google::protobuf::io::ZeroCopyInputStream* bytes) : in_(bytes) {}

  // Counts a message to its end. False: it is not valid.
  bool CountMessage(const Descriptor& type, int depth) {
    ++size_.objects;
    while (const uint32_t tag = in_.ReadTag()) {
      const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (depth == 0 && field != nullptr && field->is_repeated()) CountEntry(*field);
      if (!CountField(field, tag, depth)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

  const ParsedSize& size() const { return size_; }

 private:
  void CountEntry(const FieldDescriptor& field) {
    if (field.number() >= kCountedFieldsMax) return;
    const int64_t entries = ++entries_[static_cast<size_t>(field.number())];
    if (entries <= size_.entries) return;
    size_.entries = entries;
    size_.longest = &field;
  }

  // `field` is null if it is unknown.
  bool CountField(const FieldDescriptor* field, uint32_t tag, int depth) {
    const WireFormatLite::WireType wire = WireFormatLite::GetTagWireType(tag);
    if (wire == WireFormatLite::WIRETYPE_START_GROUP) return false;
    const bool has_length = wire == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (field != nullptr && has_length && IsMessage(*field)) {
      return CountEmbedded(*field->message_type(), depth + 1);
    }
    if (field != nullptr && has_length && field->is_packable()) return CountPacked();
    const bool known =
        field != nullptr &&
        wire == WireFormatLite::WireTypeForFieldType(
                    static_cast<WireFormatLite::FieldType>(static_cast<int>(field->type())));
    if (!known) {
      ++size_.objects;
    } else if (field->is_repeated()) {
      ++(field->is_packable() ? size_.numbers : size_.objects);
    }
    return WireFormatLite::SkipField(&in_, tag);
  }

  bool CountEmbedded(const Descriptor& type, int depth) {
    int length = 0;
    if (depth > kDepthMax || !in_.ReadVarintSizeAsInt(&length)) return false;
    const auto limit = in_.PushLimit(length);
    if (!CountMessage(type, depth)) return false;
    in_.PopLimit(limit);
    return true;
  }

  // A number takes a byte or more.
  bool CountPacked() {
    int length = 0;
    if (!in_.ReadVarintSizeAsInt(&length)) return false;
    size_.numbers += length;
    return in_.Skip(length);
  }

  google::protobuf::io::CodedInputStream in_;
  ParsedSize size_;
  std::array<int64_t, kCountedFieldsMax> entries_ = {};
};

}  // namespace

std::optional<ParsedSize> CountParsed(const Descriptor& type,
                                      google::protobuf::io::ZeroCopyInputStream* bytes) {
  Counter counter(bytes);
  if (!counter.CountMessage(type, 0)) return std::nullopt;
  return counter.size();
}

}  // namespace capstan
