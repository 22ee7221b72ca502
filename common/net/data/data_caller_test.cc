// Tests of requests that a caller refuses, and of answers that stop half-way; data_calls_test.cc
// has its calls with a server.
#include "common/net/data/data_caller.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/net/frame/frame.h"
#include "common/net/socket/socket_stream.h"
#include "common/storage/files/descriptor.h"
#include "common/testing/status_matchers.h"
#include "common/time/clock.h"
#include "common/types/message_limits.h"

namespace capstan::data_caller_test {
namespace {

absl::Cord PayloadOf(int64_t bytes) {
  const absl::Cord piece(std::string(1 << 20, 'x'));
  absl::Cord payload(std::string(static_cast<size_t>(bytes % (1 << 20)), 'x'));
  for (int64_t i = 0; i < bytes >> 20; ++i) payload.Append(piece);
  return payload;
}

TEST_CASE("Data caller: a request that no frame carries ends with an error, not the connection",
          "[net][data]") {
  int files[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
  const Descriptor peer(files[1]);
  SteadyClock clock;
  DataCaller caller(PlainStream(Descriptor(files[0])), &clock);
  absl::Status ended;
  std::thread thread([&] { ended = caller.Run(); });
  const int64_t bytes = GENERATE(int64_t{kMessageBytesMax} + 1, int64_t{1} << 32);
  absl::StatusOr<absl::Cord> outcome;
  absl::Notification there;
  const auto call = caller.Start(
      {.method = DataMethod::kPush, .bytes = PayloadOf(bytes), .timeout = absl::Hours(1)},
      [&](absl::StatusOr<absl::Cord> answer) {
        outcome = std::move(answer);
        there.Notify();
      });
  const bool told = there.WaitForNotificationWithTimeout(absl::Seconds(20));
  caller.Close();
  thread.join();
  REQUIRE(call.has_value());
  REQUIRE(told);
  CHECK_STATUS(outcome, absl::StatusCode::kResourceExhausted,
               absl::StrCat("a request of ", bytes, " bytes, expected at most 67108864"));
  CHECK_STATUS(ended, absl::StatusCode::kUnavailable, "closed here");
}

TEST_CASE("Data caller: a call is cancelled while its answer stays away half-way", "[net][data]") {
  int files[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, files) == 0);
  const Descriptor peer(files[1]);
  SteadyClock clock;
  DataCaller caller(PlainStream(Descriptor(files[0])), &clock);
  std::thread thread([&] { caller.Run().IgnoreError(); });
  absl::StatusOr<absl::Cord> outcome;
  absl::Notification there;
  const auto call =
      caller.Start({.method = DataMethod::kPull, .bytes = PayloadOf(0), .timeout = absl::Hours(1)},
                   [&](absl::StatusOr<absl::Cord> answer) {
                     outcome = std::move(answer);
                     there.Notify();
                   });
  REQUIRE(call.has_value());
  const auto head =
      EncodeFrameHead({.kind = FrameKind::kAnswer, .call = *call, .length = 1u << 20});
  const std::string half = std::string(head.data(), head.size()) + std::string(128 << 10, 'x');
  CHECK(send(peer.get(), half.data(), half.size(), 0) == static_cast<ssize_t>(half.size()));
  caller.Cancel(*call);
  CHECK(there.WaitForNotificationWithTimeout(absl::Seconds(20)));
  caller.Close();
  thread.join();
  CHECK_STATUS(outcome, absl::StatusCode::kCancelled, "cancelled");
}

}  // namespace
}  // namespace capstan::data_caller_test
