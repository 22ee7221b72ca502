#include "common/wire/values_finder.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>

#include "common/wire/length_tag.h"
#include "proto/parameter_server.pb.h"

namespace capstan {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t kShards = LengthTag(v1::PullResponse::kShardsFieldNumber);
constexpr uint32_t kValues = LengthTag(v1::ShardValues::kValuesFieldNumber);

}  // namespace

ValuesFinder::Outcome ValuesFinder::Next(absl::string_view come, Values* values) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(come.data()), static_cast<int>(come.size()));
  const auto position = [&in] { return static_cast<size_t>(in.CurrentPosition()); };
  bool inside = left_.has_value();
  bool had_values = inside;
  size_t end = left_.value_or(0);  // Of the shard's message.
  size_t shards = shards_;
  for (;;) {
    if (inside && position() > end) return Outcome::kLost;
    if (inside && position() == end) inside = false;
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return Outcome::kMore;
    if (tag != (inside ? kValues : kShards)) {
      if (!WireFormatLite::SkipField(&in, tag)) return Outcome::kMore;
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return Outcome::kMore;
    if (!inside) {
      inside = true;
      had_values = false;
      end = position() + length;
      ++shards;
      continue;
    }
    if (had_values || position() > end || length > end - position()) return Outcome::kLost;
    *values = {.shard = shards - 1, .begin = position(), .size = length};
    left_ = end - position() - length;
    shards_ = shards;
    return Outcome::kFound;
  }
}

}  // namespace capstan
