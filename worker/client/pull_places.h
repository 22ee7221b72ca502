// PullPlaces: receives the values of a pull's answer where they belong, in the arrays of its
// operation, so that large ones are not copied there.
//
// Thread safety: thread-compatible; of the thread that receives the answer.
#ifndef CAPSTAN_WORKER_CLIENT_PULL_PLACES_H_
#define CAPSTAN_WORKER_CLIENT_PULL_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/net/frame_reader.h"
#include "common/types/ids.h"
#include "worker/client/message_codec.h"

namespace capstan::worker {

class PullPlaces final : public BodyPlaces {
 public:
  // Smaller ones gain nothing.
  static constexpr int64_t kBytesMin = 16 << 10;

  // Where the values of a shard belong, and how many there must be. Empty: they are not received
  // there: they come in another format, or for rows here and there.
  struct Part {
    TableId table;
    Range elements;  // Of the table's array.
    bool half = false;
  };
  // By shard of the message. `halves` may be null: the operation's (PullArrays).
  static std::vector<Part> PartsOf(const SendMessage& message, const Formats& formats,
                                   const AllTableKeys& keys, const HalfArrays* halves);

  // `begin` is called once, before anything is written: the arrays, or none if nobody wants the
  // answer any more.
  PullPlaces(std::vector<Part> parts, std::function<PullArrays()> begin)
      : parts_(std::move(parts)), begin_(std::move(begin)) {}

  std::optional<Place> Next(absl::string_view come) override;

 private:
  bool HasPlace(size_t shard) const;

  const std::vector<Part> parts_;
  std::function<PullArrays()> begin_;  // Null once it has been called.
  PullArrays arrays_ = nullptr;
  std::vector<uint32_t> sizes_;  // The values in the body take so many bytes; empty: not known.
  size_t skip_ = 0;              // Bytes of the body from where it stands to values(next_).
  size_t next_ = 0;
};

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_CLIENT_PULL_PLACES_H_
