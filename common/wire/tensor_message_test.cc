#include "common/wire/tensor_message.h"

#include <google/protobuf/util/message_differencer.h>

#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan {
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
  v1::WaitingFor* waiting = answer.add_waiting_for();
  waiting->set_iteration(3);
  waiting->add_ranks(1);
  waiting->add_ranks(300);
  return answer;
}

PullAnswer Detached(const v1::PullResponse& response) {
  PullAnswer answer{.head = response, .values = {}};
  for (v1::ShardValues& shard : *answer.head.mutable_shards()) {
    answer.values.emplace_back(shard.values());
    shard.clear_values();
  }
  return answer;
}

v1::PushRequest Whole(const PushMessage& message) {
  v1::PushRequest whole = message.head;
  for (int i = 0; i < whole.shards_size(); ++i) {
    CHECK(whole.shards(i).values().empty());
    whole.mutable_shards(i)->set_values(std::string(message.values[static_cast<size_t>(i)]));
  }
  return whole;
}

template <typename Message>
Message Parsed(const absl::Cord& bytes) {
  Message message;
  REQUIRE(message.ParseFromString(std::string(bytes)));
  return message;
}

TEST_CASE("Tensor messages: what is encoded here, protobuf parses", "[wire]") {
  const v1::PushRequest push = SomePush();
  const v1::PullResponse answer = SomeAnswer();
  CHECK(MessageDifferencer::Equals(Parsed<v1::PushRequest>(Encode(Detach(push))), push));
  CHECK(MessageDifferencer::Equals(Parsed<v1::PullResponse>(Encode(Detached(answer))), answer));
  v1::PushPullRequest both;
  *both.mutable_push() = push;
  both.mutable_pull()->set_wait_limit_ms(500);
  CHECK(MessageDifferencer::Equals(
      Parsed<v1::PushPullRequest>(Encode(PushPullMessage{Detach(push), both.pull()})), both));
  v1::PushPullResponse answers;
  answers.mutable_push()->add_shards()->set_version(4);
  *answers.mutable_pull() = answer;
  CHECK(MessageDifferencer::Equals(
      Parsed<v1::PushPullResponse>(Encode(PushPullAnswer{answers.push(), Detached(answer)})),
      answers));
}

TEST_CASE("Tensor messages: what protobuf serializes is parsed here, however it is torn",
          "[wire]") {
  const size_t piece = GENERATE(1, 2, 3, 7, 64, 1000, 100'000);
  const v1::PushRequest push = SomePush();
  REQUIRE_OK_AND_ASSIGN(const PushMessage message,
                        DecodePush(Torn(push.SerializeAsString(), piece)));
  CHECK(MessageDifferencer::Equals(Whole(message), push));
  v1::PushPullRequest both;
  *both.mutable_push() = push;
  both.mutable_pull()->mutable_caller()->set_rank(2);
  REQUIRE_OK_AND_ASSIGN(const PushPullMessage parsed,
                        DecodePushPull(Torn(both.SerializeAsString(), piece)));
  CHECK(MessageDifferencer::Equals(Whole(parsed.push), push));
  CHECK(MessageDifferencer::Equals(parsed.pull, both.pull()));
  v1::PushPullResponse answers;
  answers.mutable_push()->add_shards()->set_version(4);
  *answers.mutable_pull() = SomeAnswer();
  REQUIRE_OK_AND_ASSIGN(PushPullAnswer answered,
                        DecodePushPullAnswer(Torn(answers.SerializeAsString(), piece)));
  CHECK(MessageDifferencer::Equals(answered.push, answers.push()));
  CHECK(MessageDifferencer::Equals(Attach(std::move(answered.pull)), answers.pull()));
  REQUIRE_OK_AND_ASSIGN(PullAnswer answer,
                        DecodePullAnswer(Torn(answers.pull().SerializeAsString(), piece)));
  CHECK(MessageDifferencer::Equals(Attach(std::move(answer)), answers.pull()));
}

TEST_CASE("Tensor messages: values share the memory that they came in", "[wire]") {
  const std::string bytes = SomePush().SerializeAsString();
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
  REQUIRE_OK_AND_ASSIGN(const PushMessage message, DecodePush(Torn(push.SerializeAsString(), 9)));
  CHECK(message.head.iteration() == 77);
  CHECK(message.values[1] == push.shards(1).values());
}

TEST_CASE("Tensor messages: entries are counted before they are listed (issue 20)", "[wire]") {
  // Two bytes an entry: field 5 (4 of a pull), length 0.
  const auto many = [](char tag, int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes.append({tag, 0});
    return absl::Cord(bytes);
  };
  constexpr char kPushEntry = 5 << 3 | 2, kPullEntry = 4 << 3 | 2, kAnswerEntry = 1 << 3 | 2;
  constexpr auto invalid = absl::StatusCode::kInvalidArgument;
  const std::string named = "more than 16384 shards in one message";
  CHECK(DecodePush(many(kPushEntry, kShardsPerMessageMax)).ok());
  CHECK(DecodePullRequest(many(kPullEntry, kShardsPerMessageMax)).ok());
  const int too_many = kShardsPerMessageMax + 1;
  CHECK_STATUS(DecodePush(many(kPushEntry, too_many)), invalid, named);
  CHECK_STATUS(DecodePullRequest(many(kPullEntry, too_many)), invalid, named);
  CHECK_STATUS(DecodePullAnswer(many(kAnswerEntry, too_many)), invalid, named);
  for (const bool push : {true, false}) {
    v1::PushPullRequest both;
    for (int i = 0; i < too_many; ++i) {
      if (push) both.mutable_push()->add_shards();
      if (!push) both.mutable_pull()->add_shards();
    }
    CHECK_STATUS(DecodePushPull(absl::Cord(both.SerializeAsString())), invalid, named);
  }
}

TEST_CASE("Tensor messages: a sealed one passes whole, and never with a flipped bit (issue 20)",
          "[wire]") {
  v1::PushRequest push;
  push.set_iteration(7);
  push.add_shards()->set_values("some values");
  const absl::Cord sealed = Sealed(absl::Cord(push.SerializeAsString()));
  REQUIRE_OK_AND_ASSIGN(const PushMessage whole, DecodePush(sealed));
  CHECK(whole.values[0] == "some values");
  v1::PushRequest parsed;
  REQUIRE(parsed.ParseFromString(std::string(sealed)));  // Others may read it as well.
  CHECK(parsed.has_checksum());
  REQUIRE_OK(DecodePush(absl::Cord(push.SerializeAsString())));  // Nor need they seal.
  v1::PullRequest pull;
  pull.set_iteration(7);
  const absl::Cord asked = Sealed(absl::Cord(pull.SerializeAsString()));
  REQUIRE_OK(DecodePullRequest(asked));
  for (size_t bit = 0; bit < 8 * (sealed.size() - 5); ++bit) {
    std::string damaged(sealed);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    CAPTURE(bit);
    CHECK_FALSE(DecodePush(absl::Cord(damaged)).ok());
  }
  std::string damaged(sealed);
  damaged[damaged.size() - 7] ^= 1;
  CHECK_STATUS(DecodePush(absl::Cord(damaged)), absl::StatusCode::kUnavailable,
               "it was damaged on its way");
}

TEST_CASE("Tensor messages: bytes that are no message are refused, and nothing is read beyond",
          "[wire]") {
  const std::string good = SomePush().SerializeAsString();
  SECTION("cut anywhere") {
    for (size_t size = 0; size < good.size(); size += 13) {
      const absl::StatusOr<PushMessage> cut = DecodePush(Torn(good.substr(0, size), 50));
      if (!cut.ok()) {
        CHECK(cut.status().code() == absl::StatusCode::kInvalidArgument);
        continue;
      }
      v1::PushRequest prefix;  // It ends between two fields: protobuf reads it likewise.
      REQUIRE(prefix.ParseFromString(good.substr(0, size)));
      CHECK(MessageDifferencer::Equals(Whole(*cut), prefix));
    }
  }
  SECTION("any byte changed: protobuf and this parser agree") {
    for (size_t at = 0; at < good.size(); ++at) {
      if (at > 200 && at + 200 < good.size()) continue;  // Values: any byte will do there.
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x55);
      v1::PushRequest whole;
      const bool parses = whole.ParseFromString(bad);
      const absl::StatusOr<PushMessage> message = DecodePush(Torn(bad, 11));
      CHECK(message.ok() == parses);
      if (parses && message.ok()) CHECK(MessageDifferencer::Equals(Whole(*message), whole));
    }
  }
  SECTION("a length that lies") {
    CHECK_STATUS(DecodePush(absl::Cord("\x2a\xff\xff\xff\xff\x07")),
                 absl::StatusCode::kInvalidArgument,
                 "the message is broken at byte 6: a field of 2147483647 bytes where 0 are left");
  }
  SECTION("text") {
    CHECK_STATUS(DecodePullAnswer(absl::Cord("hello, world")), absl::StatusCode::kInvalidArgument,
                 "the message is broken at byte");
  }
}

}  // namespace
}  // namespace capstan
