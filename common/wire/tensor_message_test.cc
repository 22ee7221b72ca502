#include "common/wire/tensor_message.h"

#include <google/protobuf/util/message_differencer.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"
#include "common/wire/message_checksum.h"

namespace capstan::tensor_message_test {
namespace {

using google::protobuf::util::MessageDifferencer;

// Bytes in pieces of `piece`, so that fields, lengths and values are torn anywhere.
absl::Cord Torn(const std::string& bytes, size_t piece) {
  absl::Cord cord;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    auto* part = new std::string(bytes.substr(begin, piece));
    cord.Append(absl::MakeCordFromExternal(*part, [part] { delete part; }));
  }
  return cord;
}

std::string Values(size_t size, char first) {
  std::string values(size, '\0');
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<char>(first + static_cast<char>(i * 7));
  return values;
}

v1::PushRequest SomePush() {
  v1::PushRequest push;
  push.mutable_caller()->set_job_id("lenet-1");
  push.mutable_caller()->set_rank(3);
  push.mutable_caller()->set_incarnation(1ull << 40);
  push.set_iteration(77);
  push.set_slot_end(1);
  for (const size_t size : {0ul, 4ul, 600ul, 5000ul}) {
    v1::ShardPush* shard = push.add_shards();
    shard->set_table(1);
    shard->set_shard(static_cast<int32_t>(size));
    shard->set_sequence(1 + size);
    shard->set_value_type(v1::FLOAT32);
    shard->set_values(Values(size, 'a'));
  }
  return push;
}

v1::PullResponse SomeAnswer() {
  v1::PullResponse answer;
  for (const size_t size : {8ul, 0ul, 3000ul}) {
    v1::ShardValues* shard = answer.add_shards();
    shard->set_outcome(size == 0 ? v1::ShardValues::NOT_READY : v1::ShardValues::VALUES);
    shard->set_version(12);
    shard->set_values(Values(size, 'k'));
  }
  v1::WaitingOn* waiting = answer.add_waiting_on();
  waiting->set_iteration(3);
  waiting->add_ranks(1);
  waiting->add_ranks(300);
  return answer;
}

std::string Number(uint32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

TEST_CASE("Tensor messages: what is encoded is decoded, however it is torn", "[wire]") {
  const size_t piece = GENERATE(1, 2, 3, 7, 64, 1000, 100'000);
  const v1::PushRequest push = SomePush();
  const std::string pushed(Encode(Detach(push)));
  REQUIRE_OK_AND_ASSIGN(PushMessage message, DecodePush(Torn(pushed, piece)));
  for (const v1::ShardPush& shard : message.head.shards()) CHECK(shard.values().empty());
  CHECK(MessageDifferencer::Equals(Attach(std::move(message)), push));
  const v1::PullResponse pull = SomeAnswer();
  const std::string pulled(Encode(Detach(pull)));
  REQUIRE_OK_AND_ASSIGN(PullAnswer answer, DecodePullAnswer(Torn(pulled, piece)));
  CHECK(MessageDifferencer::Equals(Attach(std::move(answer)), pull));
  REQUIRE_OK_AND_ASSIGN(const PushMessage none, DecodePush(Encode(PushMessage())));
  CHECK(none.values.empty());
}

TEST_CASE("Tensor messages: values lie raw behind the head", "[wire]") {
  PushMessage push;
  for (const absl::string_view values : {"values of one", "", "more"}) {
    push.head.add_shards();
    push.values.emplace_back(values);
  }
  const std::string head = push.head.SerializeAsString();
  const std::string payload(Encode(push));
  CHECK(payload == Number(static_cast<uint32_t>(head.size())) + Number(3) + Number(13) + Number(0) +
                       Number(4) + head + "values of onemore");
  for (const size_t come : {0, 7, 8, 19}) {
    REQUIRE_OK_AND_ASSIGN(const auto start, ReadPayloadStart(payload.substr(0, come)));
    CHECK_FALSE(start.has_value());
  }
  REQUIRE_OK_AND_ASSIGN(const auto start, ReadPayloadStart(payload.substr(0, 20)));
  REQUIRE(start.has_value());
  CHECK(start->sizes == std::vector<uint32_t>{13, 0, 4});
  CHECK(start->values_begin() == 20 + head.size());
}

TEST_CASE("Tensor messages: values share the memory that they came in", "[wire]") {
  const std::string bytes(Encode(Detach(SomePush())));
  REQUIRE_OK_AND_ASSIGN(const PushMessage message,
                        DecodePush(absl::MakeCordFromExternal(bytes, [] {})));
  const absl::string_view values = *message.values[3].TryFlat();
  CHECK(values.data() >= bytes.data());
  CHECK(values.data() + values.size() <= bytes.data() + bytes.size());
}

TEST_CASE("Tensor messages: a newer sender's fields are passed over", "[wire]") {
  v1::PushRequest push = SomePush();
  push.GetReflection()->MutableUnknownFields(&push)->AddVarint(900, 5);
  v1::ShardPush* shard = push.mutable_shards(1);
  shard->GetReflection()->MutableUnknownFields(shard)->AddLengthDelimited(901, "later");
  REQUIRE_OK_AND_ASSIGN(const PushMessage message, DecodePush(Encode(Detach(push))));
  CHECK(message.head.iteration() == 77);
  CHECK(message.values[1] == push.shards(1).values());
}

TEST_CASE("Tensor messages: entries are counted before they are listed (issue 20)", "[wire]") {
  // Two bytes an entry: field 5 (4 of a pull), length 0.
  const auto many = [](char tag, int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes.append({tag, 0});
    return bytes;
  };
  const auto payload = [](const std::string& head, uint32_t values) {
    std::string bytes = Number(static_cast<uint32_t>(head.size())) + Number(values);
    for (uint32_t i = 0; i < values; ++i) bytes += Number(0);
    return absl::Cord(bytes + head);
  };
  constexpr char kPushEntry = 5 << 3 | 2, kPullEntry = 4 << 3 | 2, kAnswerEntry = 1 << 3 | 2;
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  const std::string named = "a message of 16385 shards, expected at most 16384";
  const int most = kShardsPerMessageMax;
  CHECK(ParsePush(absl::Cord(many(kPushEntry, most))).ok());
  CHECK(ParsePull(absl::Cord(many(kPullEntry, most))).ok());
  CHECK(DecodePush(payload(many(kPushEntry, most), kShardsPerMessageMax)).ok());
  const int too_many = kShardsPerMessageMax + 1;
  CHECK_STATUS(ParsePush(absl::Cord(many(kPushEntry, too_many))), invalid, named);
  CHECK_STATUS(ParsePull(absl::Cord(many(kPullEntry, too_many))), invalid, named);
  CHECK_STATUS(DecodePush(payload(many(kPushEntry, too_many), 1)), invalid, named);
  CHECK_STATUS(DecodePullAnswer(payload(many(kAnswerEntry, too_many), 1)), invalid, named);
  CHECK_STATUS(DecodePush(payload("", too_many)), invalid, named);
  CHECK_STATUS(DecodePush(absl::Cord(Number(0) + Number(~0u))), invalid,
               "a message of 4294967295 shards");
}

TEST_CASE("Tensor messages: whatever else may be repeated is counted as well", "[wire]") {
  const auto payload = [](const std::string& head) {
    return absl::Cord(Number(static_cast<uint32_t>(head.size())) + Number(0) + head);
  };
  // `count` times the field, empty; one that an entry of `tag` has, if that is not 0.
  const auto many = [](char field, int count, char tag = 0) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes.append({field, 0});
    if (tag == 0) return bytes;
    std::string entry{tag};
    for (auto left = static_cast<uint32_t>(bytes.size());; left >>= 7) {
      entry.push_back(static_cast<char>(left < 128 ? left : (left & 127) | 128));
      if (left < 128) break;
    }
    return entry + bytes;
  };
  constexpr char kWaitingOn = 2 << 3 | 2, kUnknown = 14 << 3 | 2, kPushEntry = 5 << 3 | 2;
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  CHECK(DecodePullAnswer(payload(many(kWaitingOn, kShardsPerMessageMax))).ok());
  CHECK_STATUS(DecodePullAnswer(payload(many(kWaitingOn, kShardsPerMessageMax + 1))), invalid,
               "a message of 16385 waiting_on, expected at most 16384");
  const int most = 8 * kShardsPerMessageMax - 1;  // The message itself is one.
  const std::string named = "a message of 131073 parts, expected at most 131072";
  CHECK(ParsePush(absl::Cord(many(kUnknown, most))).ok());
  CHECK_STATUS(ParsePush(absl::Cord(many(kUnknown, most + 1))), invalid, named);
  CHECK(ParsePush(absl::Cord(many(kUnknown, most - 1, kPushEntry))).ok());
  CHECK_STATUS(ParsePush(absl::Cord(many(kUnknown, most, kPushEntry))), invalid, named);
  v1::PullResponse answer;
  answer.add_waiting_on()->mutable_ranks()->Resize(1024 * kShardsPerMessageMax + 1, 1);
  CHECK_STATUS(DecodePullAnswer(payload(answer.SerializeAsString())), invalid,
               "a message of 16777217 numbers, expected at most 16777216");
}

TEST_CASE("Tensor messages: values in a head are refused", "[wire]") {
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  PushMessage push = Detach(SomePush());
  push.head.mutable_shards(1)->set_values("in front");
  CHECK_STATUS(DecodePush(Encode(push)), invalid,
               "a message has 8 bytes of values of its shard 1 in the head");
  PullAnswer answer = Detach(SomeAnswer());
  answer.head.mutable_shards(2)->set_values("x");
  CHECK_STATUS(DecodePullAnswer(Encode(answer)), invalid, "1 bytes of values of its shard 2");
}

TEST_CASE("Tensor messages: a sealed one passes whole, and never with a flipped bit (issue 20)",
          "[wire]") {
  v1::PushRequest push;
  push.set_iteration(7);
  push.add_shards()->set_values("some values");
  REQUIRE_OK(ParsePush(absl::Cord(push.SerializeAsString())));  // Nobody need seal.
  Seal(&push);
  const std::string sealed = push.SerializeAsString();
  REQUIRE_OK_AND_ASSIGN(const v1::PushRequest whole, ParsePush(absl::Cord(sealed)));
  CHECK(whole.shards(0).values() == "some values");
  v1::PullRequest pull;
  pull.set_iteration(7);
  pull.GetReflection()->MutableUnknownFields(&pull)->AddVarint(14, 5);  // A newer sender's.
  Seal(&pull);
  REQUIRE_OK(ParsePull(absl::Cord(pull.SerializeAsString())));
  for (size_t bit = 0; bit < 8 * (sealed.size() - 5); ++bit) {
    std::string damaged = sealed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    CAPTURE(bit);
    CHECK_FALSE(ParsePush(absl::Cord(damaged)).ok());
  }
  std::string damaged = sealed;
  damaged[damaged.size() - 7] ^= 1;
  CHECK_STATUS(ParsePush(absl::Cord(damaged)), absl::StatusCode::kUnavailable,
               "its bytes have the checksum");
  v1::PullResponse answer = SomeAnswer();
  Seal(&answer);
  REQUIRE_OK(CheckIfSealed(answer));
  answer.mutable_shards(0)->set_version(13);
  CHECK_STATUS(CheckIfSealed(answer), absl::StatusCode::kUnavailable, "");
}

TEST_CASE("Tensor messages: bytes that are no message are refused, and nothing is read beyond",
          "[wire]") {
  const std::string good(Encode(Detach(SomePush())));
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  SECTION("cut anywhere, or too long") {
    for (size_t size = 0; size < good.size(); size += 13) {
      CHECK_STATUS(DecodePush(Torn(good.substr(0, size), 50)), invalid, "a payload ");
    }
    CHECK_STATUS(DecodePush(absl::Cord(good + "x")), invalid, "expected 24 for 4 sizes, a head of");
  }
  SECTION("any byte in front of the values changed") {
    REQUIRE_OK_AND_ASSIGN(const auto start, ReadPayloadStart(good));
    for (size_t at = 0; at < start->values_begin(); ++at) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      const absl::StatusOr<PushMessage> message = DecodePush(Torn(bad, 11));
      if (!message.ok()) CHECK(message.status().code() == invalid);
      if (message.ok()) CHECK(message->values.size() == 4);  // The head means something else.
    }
  }
  SECTION("fewer shards than values") {
    CHECK_STATUS(DecodePush(absl::Cord(Number(0) + Number(1) + Number(0))), invalid,
                 "a message of 0 shards with 1 values, expected as many");
  }
  SECTION("text") {
    CHECK_STATUS(DecodePullAnswer(absl::Cord("hello, world")), invalid, "a message of ");
    CHECK_STATUS(ParsePush(absl::Cord("hello, world")), invalid, "not a valid");
  }
}

}  // namespace
}  // namespace capstan::tensor_message_test
