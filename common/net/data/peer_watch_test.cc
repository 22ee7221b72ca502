#include "common/net/data/peer_watch.h"

#include <catch2/catch.hpp>
#include <cstdint>

#include "common/net/frame/frame.h"

namespace capstan::peer_watch_test {
namespace {

using Verdict = PeerWatch::Verdict;

constexpr auto kHead = static_cast<int64_t>(kFrameHeadBytes);

Instant At(double seconds) { return Instant::FromOrigin(absl::Seconds(seconds)); }

TEST_CASE("Peer watch: who is silent is asked once, then gone", "[net][data]") {
  PeerWatch watch(At(0));
  CHECK(watch.Look(At(1), 100, true) == Verdict::kFine);
  CHECK(watch.Look(At(10.9), 100, true) == Verdict::kFine);
  CHECK(watch.Look(At(11), 100, true) == Verdict::kAsk);
  // The question is not sent yet.
  CHECK(watch.Look(At(12), 100, true) == Verdict::kFine);
  CHECK(watch.Look(At(15.9), 100 + kHead, true) == Verdict::kFine);  // Only the question is sent.
  CHECK(watch.Look(At(16), 100 + kHead, true) == Verdict::kGone);
  CHECK(watch.Quiet(At(16)) == absl::Seconds(15));
}

TEST_CASE("Peer watch: a sign of life starts anew", "[net][data]") {
  PeerWatch watch(At(0));
  REQUIRE(watch.Look(At(10), 0, true) == Verdict::kAsk);
  SECTION("seen together with the question that was sent") {
    CHECK(watch.Look(At(10.001), 2 * kHead, true) == Verdict::kFine);
  }
  SECTION("seen later") {
    CHECK(watch.Look(At(11), kHead, true) == Verdict::kFine);
    CHECK(watch.Look(At(14), 2 * kHead, true) == Verdict::kFine);
  }
  CHECK(watch.Look(At(16), 2 * kHead, true) == Verdict::kFine);
  CHECK(watch.Look(At(24), 2 * kHead, true) == Verdict::kAsk);
  CHECK(watch.Look(At(29), 3 * kHead, true) == Verdict::kGone);
}

TEST_CASE("Peer watch: nobody is asked while nothing is awaited", "[net][data]") {
  PeerWatch watch(At(0));
  CHECK(watch.Look(At(100), 0, false) == Verdict::kFine);
  CHECK(watch.Look(At(109), 0, true) == Verdict::kFine);
  CHECK(watch.Look(At(110), 0, true) == Verdict::kAsk);
  CHECK(watch.Look(At(120), 0, false) == Verdict::kFine);  // The call was cancelled.
}

}  // namespace
}  // namespace capstan::peer_watch_test
