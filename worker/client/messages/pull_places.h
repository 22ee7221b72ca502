// PullPlaces: lets the values of a pull's answer be received directly in the arrays of its
// operation, so that large values are not copied.
//
// Thread safety: thread-compatible; the thread that receives the answer uses it.
#ifndef CAPSTAN_WORKER_CLIENT_MESSAGES_PULL_PLACES_H_
#define CAPSTAN_WORKER_CLIENT_MESSAGES_PULL_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/net/frame/frame_reader.h"
#include "common/types/ids.h"
#include "worker/client/messages/message_codec.h"

namespace capstan::worker {

class PullPlaces final : public PayloadPlaces {
 public:
  // Values of fewer bytes are not received in place: they would gain nothing.
  static constexpr int64_t kBytesMin = 16 << 10;

  // The place of a shard's values, which also fixes their number. Empty `elements`: they are not
  // received in place, because they come in another format or for scattered rows.
  struct Part {
    TableId table;
    Range elements;  // Elements of the table's array.
    bool half = false;
  };
  // The parts by shard of the message. `halves`: the operation's (PullArrays); may be null.
  static std::vector<Part> PartsOf(const SendMessage& message, const Formats& formats,
                                   const AllTableKeys& keys, const HalfArrays* halves);

  // `begin` is called at most once, before anything is written. It returns the arrays, or none if
  // the answer is not wanted any more.
  PullPlaces(std::vector<Part> parts, std::function<PullArrays()> begin)
      : parts_(std::move(parts)), begin_(std::move(begin)) {}

  std::optional<Place> Next(absl::string_view come) override;

 private:
  bool HasPlace(size_t shard) const;

  const std::vector<Part> parts_;
  std::function<PullArrays()> begin_;  // Null once it has been called.
  PullArrays arrays_ = nullptr;
  std::vector<uint32_t> sizes_;  // The bytes of each shard's values; empty: not known yet.
  size_t skip_ = 0;              // Bytes of the payload from the current position to shard next_.
  size_t next_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_MESSAGES_PULL_PLACES_H_
