#include "server/engine/waiting_calls.h"

#include "common/testing/status_matchers.h"

namespace capstan::server::waiting_calls_test {
namespace {

using CallId = WaitingCalls::CallId;

constexpr ShardKey kFirst{TableId(0), ShardId(0)}, kSecond{TableId(0), ShardId(1)};

TEST_CASE("Waiting calls: a call ends with its last part and hold, once it is sealed", "[server]") {
  WaitingCalls calls;
  EndedCalls ended;
  PullAnswer answer;
  const CallId call = calls.Begin([](const absl::Status&) {});
  const PullToken token =
      calls.AddPart({.call = call, .key = kFirst, .answer = &answer, .index = 0});
  calls.HoldForVersion(call, kFirst, Version(3));
  calls.HoldForVersion(call, kFirst, Version(3));  // Once is enough.
  calls.HoldForPosition(call, kSecond, Position(7));
  CHECK(calls.TakePart(token, &ended).index == 0);
  calls.Release(kFirst, Version(2), Position(100), &ended);
  calls.Release(kSecond, Version(100), Position(7), &ended);
  CHECK(calls.Seal(call, &ended));
  CHECK(ended.empty());
  calls.Release(kFirst, Version(3), Position(0), &ended);
  REQUIRE(ended.size() == 1);
  REQUIRE_OK(ended[0].second);
  CHECK_FALSE(calls.Has(call));
}

TEST_CASE("Waiting calls: the keys of parts are counted until these are answered or ended",
          "[server]") {
  WaitingCalls calls;
  EndedCalls ended;
  PullAnswer answer;
  const auto keys = std::make_shared<const std::vector<uint64_t>>(100);
  const CallId call = calls.Begin([](const absl::Status&) {});
  const CallId other = calls.Begin([](const absl::Status&) {});
  const PullToken token =
      calls.AddPart({.call = call, .key = kFirst, .answer = &answer, .index = 0, .keys = keys});
  calls.AddPart({.call = other, .key = kFirst, .answer = &answer, .index = 0, .keys = keys});
  calls.AddPart({.call = other, .key = kSecond, .answer = &answer, .index = 1});
  CHECK(calls.key_bytes() == 1600);
  calls.TakePart(token, &ended);
  CHECK(calls.key_bytes() == 800);
  calls.End(other, absl::CancelledError("gone"), &ended);
  CHECK(calls.key_bytes() == 0);
}

TEST_CASE("Waiting calls: one that waits for nothing ends when it is sealed", "[server]") {
  WaitingCalls calls;
  EndedCalls ended;
  const CallId call = calls.Begin([](const absl::Status&) {});
  CHECK_FALSE(calls.Seal(call, &ended));
  CHECK(ended.size() == 1);
  CHECK(calls.empty());
}

TEST_CASE("Waiting calls: ending one hands out its pulls and forgets its holds", "[server]") {
  WaitingCalls calls;
  EndedCalls ended;
  PullAnswer answer;
  const CallId call = calls.Begin([](const absl::Status&) {});
  const CallId other = calls.Begin([](const absl::Status&) {});
  const PullToken token =
      calls.AddPart({.call = call, .key = kFirst, .answer = &answer, .index = 0});
  calls.HoldForVersion(call, kSecond, Version(3));
  calls.HoldForVersion(other, kSecond, Version(3));
  CHECK(calls.WaitingFor(kFirst) == std::vector<CallId>{call});
  CHECK(calls.WaitingFor(kSecond) == std::vector<CallId>{call, other});
  const auto pulls = calls.End(call, absl::CancelledError("gone"), &ended);
  CHECK(pulls == std::vector<WaitingCalls::PendingPull>{{token, kFirst}});
  CHECK_STATUS(ended[0].second, absl::StatusCode::kCancelled, "gone");
  CHECK(calls.WaitingFor(kSecond) == std::vector<CallId>{other});
  CHECK(calls.End(call, absl::CancelledError("twice"), &ended).empty());
  CHECK(ended.size() == 1);
}

}  // namespace
}  // namespace capstan::server::waiting_calls_test
