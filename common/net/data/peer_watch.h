// PeerWatch: decides when a silent peer counts as gone although its connection stands.
#ifndef CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_
#define CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan {

// A peer that is stopped, or behind a cut network, does not close its connections. If an answer is
// awaited and no byte moves either way for kPingAfter, the peer is asked for a sign of life. Every
// byte but those of the question counts as one. If none moves for kPongWithin, the peer is gone.
// Thread safety: thread-compatible.
class PeerWatch {
 public:
  // The times of gRPC's pings (common/net/grpc/channel.cc).
  static constexpr absl::Duration kPingAfter = absl::Seconds(10);
  static constexpr absl::Duration kPongWithin = absl::Seconds(5);

  enum class Verdict { kFine, kAsk, kGone };

  explicit PeerWatch(Instant now) : quiet_since_(now) {}

  // `moved`: bytes that have come and gone so far; `waits`: an answer of the peer is awaited. After
  // kAsk the caller asks, with a frame without a payload.
  Verdict Look(Instant now, int64_t moved, bool waits);
  // Returns for how long nothing has moved, as far as the last Look has seen.
  absl::Duration Quiet(Instant now) const { return now - quiet_since_; }

 private:
  Instant quiet_since_;
  int64_t quiet_at_ = 0;  // Bytes moved until then, with those of the question.
  std::optional<Instant> asked_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_DATA_PEER_WATCH_H_
