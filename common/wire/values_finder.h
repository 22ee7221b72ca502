// ValuesFinder: where the values lie in a v1::PullResponse of which only the beginning has come, so
// that the rest of them can be received where it belongs.
//
// It stands at a byte of the message, at first at its beginning, and is shown what has come from
// there on; with each find it goes to the byte behind the values found. What the message says is
// checked when it is whole (DecodePullAnswer): wrong bytes are found in wrong messages only.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_WIRE_VALUES_FINDER_H_
#define CAPSTAN_COMMON_WIRE_VALUES_FINDER_H_

#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace capstan {

class ValuesFinder {
 public:
  enum class Outcome {
    kFound,
    kMore,  // These bytes do not say.
    kLost,  // The message is not as ours are; ask no more.
  };
  struct Values {
    size_t shard = 0;  // Index in the message.
    size_t begin = 0;  // Bytes of `come` in front of them.
    size_t size = 0;   // In bytes.
  };
  Outcome Next(absl::string_view come, Values* values);

 private:
  // Of the shard's message that it stands in, the values of which are behind; none: in no shard.
  std::optional<size_t> left_;  // Its bytes that follow.
  size_t shards_ = 0;           // Whose messages have begun.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_VALUES_FINDER_H_
