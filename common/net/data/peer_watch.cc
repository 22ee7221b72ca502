#include "common/net/data/peer_watch.h"

#include "common/net/frame/frame.h"

namespace capstan {

PeerWatch::Verdict PeerWatch::Look(Instant now, int64_t moved, bool waits) {
  if (moved > quiet_at_ || !waits) {
    quiet_at_ = moved;
    quiet_since_ = now;
    asked_.reset();
    return Verdict::kFine;
  }
  if (asked_.has_value()) return now - *asked_ < kPongWithin ? Verdict::kFine : Verdict::kGone;
  if (now - quiet_since_ < kPingAfter) return Verdict::kFine;
  asked_ = now;
  quiet_at_ = moved + static_cast<int64_t>(kFrameHeadBytes);
  return Verdict::kAsk;
}

}  // namespace capstan
