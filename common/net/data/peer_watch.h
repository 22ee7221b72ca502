// When a peer from which answers are awaited counts as gone, though its connection stands.
#ifndef CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_
#define CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan {

// A peer that stands still, or behind a cut network, does not close its connections. While
// something is awaited of it and no byte moves either way for kPingAfter, it is asked for a sign of
// life; any byte that is not the question's own is one. Without one for kPongWithin it is gone.
class PeerWatch {
 public:
  // The times of gRPC's pings (common/net/grpc/channel.cc).
  static constexpr absl::Duration kPingAfter = absl::Seconds(10);
  static constexpr absl::Duration kPongWithin = absl::Seconds(5);

  enum class Verdict { kFine, kAsk, kGone };

  explicit PeerWatch(Instant now) : quiet_since_(now) {}

  // `moved`: bytes that have come and gone so far; `waits`: something is awaited of the peer. After
  // kAsk the caller asks, with a frame without a payload.
  Verdict Look(Instant now, int64_t moved, bool waits);
  // How long nothing has moved, when Look was called last.
  absl::Duration Quiet(Instant now) const { return now - quiet_since_; }

 private:
  Instant quiet_since_;
  int64_t quiet_at_ = 0;  // Bytes moved until then, with those of the question.
  std::optional<Instant> asked_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_
