#include "common/shared_memory/shared_values.h"

#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::shared_values_test {
namespace {

using absl::StatusCode;

std::shared_ptr<SharedSegment> Segment(int64_t bytes) {
  auto segment = SharedSegment::Create(bytes);
  REQUIRE_OK(segment);
  return *segment;
}

PushMessage PushOf(const std::vector<std::string>& values) {
  PushMessage push;
  for (const std::string& each : values) {
    push.head.add_shards()->set_table(1);
    push.values.emplace_back(each);
  }
  return push;
}

// A request of as many shards, and an answer with these values.
v1::PullRequest RequestOf(const MessageRoom& room, const std::vector<int64_t>& sizes) {
  v1::PullRequest request;
  for (size_t i = 0; i < sizes.size(); ++i) request.add_shards();
  NameRoom(room, sizes, &request);
  return request;
}

PullAnswer AnswerOf(const std::vector<std::string>& values) {
  PullAnswer answer;
  for (const std::string& each : values) {
    answer.head.add_shards();
    answer.values.emplace_back(each);
  }
  return answer;
}

const std::string kLong(100, 'a');
const std::string kLonger(200, 'b');

TEST_CASE("Shared values: values of a push go through shared memory, none through the message",
          "[shared_values]") {
  const auto ours = Segment(1024);
  const auto theirs = SharedSegment::Open(ours->offer()).value();
  PushMessage push = PushOf({kLong, "", kLonger});
  CHECK(RoomBytes({100, 0, 200}) == 128 + 256);
  PutValues({.segment = ours, .name = 7, .offset = 64, .bytes = 384}, &push);
  CHECK(push.head.segment() == 7);
  CHECK(push.head.shards(0).shared().offset() == 64);
  CHECK(push.head.shards(2).shared().offset() == 64 + 128);
  CHECK(push.values[0].empty());
  CHECK(push.values[2].empty());

  REQUIRE_OK_AND_ASSIGN(PushMessage received, DecodePush(Encode(push)));
  REQUIRE_OK(TakeValues(theirs, &received));
  CHECK(received.values[0] == kLong);
  CHECK(received.values[1].empty());
  CHECK(received.values[2] == kLonger);
  CHECK(received.values[0].Flatten().data() == theirs->data() + 64);  // Where they lie.
}

TEST_CASE("Shared values: values of an answer go to the rooms of the request", "[shared_values]") {
  const auto ours = Segment(1024);
  const auto theirs = SharedSegment::Open(ours->offer()).value();
  const v1::PullRequest request =
      RequestOf({.segment = ours, .name = 7, .offset = 128, .bytes = 512}, {100, 100, 200});
  CHECK(request.segment() == 7);
  REQUIRE_OK(CheckRooms(*theirs, request));
  PullAnswer answer = AnswerOf({kLong, "", kLonger});
  PutValues(theirs, request, &answer);
  CHECK(answer.values[0].empty());
  REQUIRE_OK_AND_ASSIGN(PullAnswer received, DecodePullAnswer(Encode(answer)));
  REQUIRE_OK(TakeValues(ours, &received));
  CHECK(received.values[0] == kLong);
  CHECK(received.values[1].empty());
  CHECK(received.values[2] == kLonger);
}

TEST_CASE("Shared values: values that are larger than their room stay in the message",
          "[shared_values]") {
  const auto segment = Segment(1024);
  const v1::PullRequest request =
      RequestOf({.segment = segment, .name = 7, .offset = 0, .bytes = 256}, {100, 100});
  PullAnswer answer = AnswerOf({kLong, kLonger});
  PutValues(segment, request, &answer);
  CHECK(answer.values[0].empty());
  CHECK(answer.values[1] == kLonger);
}

TEST_CASE("Shared values: a range beyond the segment is refused by its entry", "[shared_values]") {
  const auto segment = Segment(1024);
  struct Case {
    uint64_t offset, bytes;
    bool ok;
  };
  for (const Case& each :
       {Case{1000, 24, true}, Case{1024, 0, true}, Case{1000, 25, false}, Case{1025, 0, false},
        Case{0, 1025, false}, Case{~uint64_t{0}, 2, false}, Case{2, ~uint64_t{0}, false}}) {
    CAPTURE(each.offset, each.bytes);
    PushMessage push = PushOf({""});
    push.head.mutable_shards(0)->mutable_shared()->set_offset(each.offset);
    push.head.mutable_shards(0)->mutable_shared()->set_bytes(each.bytes);
    CHECK(TakeValues(segment, &push).ok() == each.ok);
    v1::PullRequest request;
    v1::SharedRange* room = request.add_shards()->mutable_room();
    room->set_offset(each.offset);
    room->set_bytes(each.bytes);
    CHECK(CheckRooms(*segment, request).ok() == each.ok);
  }
}

TEST_CASE("Shared values: values in both places are refused", "[shared_values]") {
  const auto segment = Segment(1024);
  PushMessage push = PushOf({"abcd"});
  push.head.mutable_shards(0)->mutable_shared()->set_bytes(4);
  CHECK(TakeValues(segment, &push).code() == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace capstan::shared_values_test
