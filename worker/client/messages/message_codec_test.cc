#include "worker/client/messages/message_codec.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/sparse/wanted_keys.h"
#include "common/testing/status_matchers.h"
#include "common/wire/wire_values.h"

namespace capstan::worker::message_codec_test {
namespace {

const CallerId kCaller{.job = "job-1", .rank = Rank(3), .incarnation = Incarnation(7)};

// Shards 0 and 1 of table 1: elements [0, 2) and [2, 5).
SendMessage TwoShards(OpKind kind) {
  SendMessage message{.message = MessageId(5),
                      .request = {.kind = kind, .iteration = Iteration(9)},
                      .generation = Generation(4)};
  message.shards.push_back({.key = {TableId(1), ShardId(0)},
                            .elements = {0, 2},
                            .sequence = Sequence(11),
                            .sequence_low_water = Sequence(10),
                            .held_version = 8});
  message.shards.push_back({.key = {TableId(1), ShardId(1)}, .elements = {2, 5}});
  return message;
}

v1::ShardValues Values(v1::ShardValues::Outcome outcome, const std::vector<float>& values) {
  v1::ShardValues shard;
  shard.set_outcome(outcome);
  shard.set_version(6);
  shard.set_staleness(2);
  shard.set_value_type(v1::FLOAT32);
  shard.set_values(values.data(), values.size() * sizeof(float));
  return shard;
}

PullAnswer Detached(const v1::PullResponse& response) { return Detach(response); }

std::vector<float> Floats(const std::string& bytes) {
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

TEST_CASE("Codec: a push names its caller, its slots and its sequences, and carries its shards",
          "[worker][client]") {
  SendMessage message = TwoShards(OpKind::kPush);
  message.request.slots = {2, 4};
  const auto gradient = std::make_shared<const TableArrays>(TableArrays{{9, 9}, {1, 2, 3, 4, 5}});
  const PushMessage push = EncodePush(kCaller, message, gradient);
  const v1::PushRequest& request = push.head;
  CHECK(request.caller().job_id() == "job-1");
  CHECK(request.caller().rank() == 3);
  CHECK(request.caller().incarnation() == 7);
  CHECK(request.caller().routing_generation() == 4);
  CHECK(request.iteration() == 9);
  CHECK(request.slot_begin() == 2);
  CHECK(request.slot_end() == 4);
  REQUIRE(request.shards_size() == 2);
  CHECK(request.shards(0).table() == 1);
  CHECK(request.shards(0).sequence() == 11);
  CHECK(request.shards(0).sequence_low_water() == 10);
  CHECK(Floats(std::string(push.values[0])) == std::vector<float>{1, 2});
  CHECK(request.shards(1).shard() == 1);
  CHECK(Floats(std::string(push.values[1])) == std::vector<float>{3, 4, 5});
}

TEST_CASE("Codec: a pull says what it holds and how long it may be kept", "[worker][client]") {
  SendMessage message = TwoShards(OpKind::kPull);
  message.request.snapshot = true;
  v1::PullRequest request;
  EncodePull(kCaller, message, absl::Milliseconds(250), &request);
  CHECK(request.wait_limit_ms() == 250);
  CHECK(request.snapshot());
  CHECK(request.shards(0).held_version() == 8);
  CHECK(request.shards(1).held_version() == -1);
}

TEST_CASE("Codec: a pull's values land in their places, others are left alone",
          "[worker][client]") {
  TableArrays destination = {{9, 9}, {0, 0, 0, 0, 0}};
  v1::PullResponse response;
  *response.add_shards() = Values(v1::ShardValues::NOT_READY, {});
  *response.add_shards() = Values(v1::ShardValues::VALUES, {3, 4, 5});
  v1::WaitingOn* waiting = response.add_waiting_on();
  waiting->set_table(1);
  waiting->set_iteration(8);
  waiting->add_slots(2);
  REQUIRE_OK_AND_ASSIGN(const DecodedReply reply,
                        DecodePull(TwoShards(OpKind::kPull), Detached(response), &destination));
  CHECK(destination == TableArrays{{9, 9}, {0, 0, 3, 4, 5}});
  CHECK(reply.shards[0].outcome == ShardReply::Outcome::kNotReady);
  CHECK(reply.shards[1].outcome == ShardReply::Outcome::kDone);
  CHECK(reply.shards[1].version == Version(6));
  CHECK(reply.shards[1].staleness == 2);
  CHECK(reply.waiting == std::vector<Waiting>{{.shard = {TableId(1), ShardId(0)},
                                               .iteration = Iteration(8),
                                               .ranks = {},
                                               .slots = {2}}});
}

TEST_CASE("Codec: numbers travel in the table's format, snapshots as fp32", "[worker][client]") {
  const Formats formats = {{},
                           {.gradients = NumberFormat::kBf16, .parameters = NumberFormat::kFp16}};
  SendMessage message = TwoShards(OpKind::kPush);
  const auto gradient = std::make_shared<const TableArrays>(TableArrays{{9, 9}, {1, 2, 3, 4, 5}});
  const PushMessage push = EncodePush(kCaller, message, gradient, formats);
  CHECK(push.head.shards(0).value_type() == v1::BFLOAT16);
  std::vector<float> read(3);
  REQUIRE(push.values[1].size() == 6);
  WireValues(push.values[1], NumberFormat::kBf16).CopyTo(read.data());
  CHECK(read == std::vector<float>{3, 4, 5});
  message = TwoShards(OpKind::kPull);
  v1::PullRequest pull;
  EncodePull(kCaller, message, absl::Milliseconds(1), &pull, formats);
  CHECK(pull.shards(1).value_type() == v1::FLOAT16);
  message.request.snapshot = true;
  v1::PullRequest snapshot;
  EncodePull(kCaller, message, absl::Milliseconds(1), &snapshot, formats);
  CHECK(snapshot.shards(1).value_type() == v1::FLOAT32);

  PullAnswer answer;
  for (const std::vector<float>& values : {std::vector<float>{1, 2}, {-3, 0.5f, 65504}}) {
    std::string bytes(values.size() * 2, 0);
    EncodeNumbers(NumberFormat::kFp16, values, bytes.data());
    v1::ShardValues* shard = answer.head.add_shards();
    shard->set_outcome(v1::ShardValues::VALUES);
    shard->set_value_type(v1::FLOAT16);
    answer.values.emplace_back(bytes);
  }
  TableArrays destination = {{9, 9}, {0, 0, 0, 0, 0}};
  REQUIRE_OK(DecodePull(TwoShards(OpKind::kPull), answer, &destination));
  CHECK(destination[1] == std::vector<float>{1, 2, -3, 0.5f, 65504});
  answer.head.mutable_shards(0)->set_value_type(static_cast<v1::ValueType>(8));
  CHECK_STATUS(DecodePull(TwoShards(OpKind::kPull), answer, &destination),
               absl::StatusCode::kInternal, "value_type 8");
}

TEST_CASE("Codec: values that are halves here are lent, and land, as they are",
          "[worker][client]") {
  const Formats formats = {{},
                           {.gradients = NumberFormat::kBf16, .parameters = NumberFormat::kFp16}};
  const auto gradient = std::make_shared<const TableArrays>(TableArrays{{9, 9}, {}});
  const auto halves = std::make_shared<const HalfArrays>(
      HalfArrays{{}, {0x3f80, 0x7fc1, 0x0001, 0x8000, 0x3f00}});  // A NaN of its own among them.
  const SendMessage message = TwoShards(OpKind::kPush);
  const PushMessage push = EncodePush(kCaller, message, gradient, formats, {}, {}, halves);
  CHECK(push.head.shards(1).value_type() == v1::BFLOAT16);
  REQUIRE(push.values[1].TryFlat().has_value());
  CHECK(push.values[1].TryFlat()->data() == reinterpret_cast<const char*>(&(*halves)[1][2]));
  CHECK(push.values[1].size() == 6);
  CHECK(halves.use_count() == 3);

  PullAnswer answer;
  for (const std::vector<uint16_t>& values :
       {std::vector<uint16_t>{0x3c00, 0x7e01}, {1, 2, 0xbc00}}) {
    v1::ShardValues* shard = answer.head.add_shards();
    shard->set_outcome(v1::ShardValues::VALUES);
    shard->set_value_type(v1::FLOAT16);
    answer.values.emplace_back(
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * 2));
  }
  TableArrays floats = {{9, 9}, {0, 0, 0, 0, 0}};
  HalfArrays to = {{}, {7, 7, 7, 7, 7}};
  SendMessage pull = TwoShards(OpKind::kPull);
  REQUIRE_OK(DecodePull(pull, answer, {&floats, &to}, {}, formats));
  CHECK(to[1] == std::vector<uint16_t>{0x3c00, 0x7e01, 1, 2, 0xbc00});
  CHECK(floats[1] == std::vector<float>(5, 0));
  // The values must come in the format that was asked for.
  answer.head.mutable_shards(1)->set_value_type(v1::BFLOAT16);
  CHECK_STATUS(DecodePull(pull, answer, {&floats, &to}, {}, formats), absl::StatusCode::kInternal,
               "shard 1 came as BFLOAT16, expected FLOAT16");
  // Snapshots are fp32.
  pull.request.snapshot = true;
  v1::PullResponse response;
  *response.add_shards() = Values(v1::ShardValues::VALUES, {1, 2});
  *response.add_shards() = Values(v1::ShardValues::VALUES, {3, 4, 5});
  REQUIRE_OK(DecodePull(pull, Detached(response), {&floats, &to}, {}, formats));
  CHECK(floats[1] == std::vector<float>{1, 2, 3, 4, 5});
  CHECK(to[1] == std::vector<uint16_t>{0x3c00, 0x7e01, 1, 2, 0xbc00});
}

TEST_CASE("Codec: unchanged and past shards carry no values", "[worker][client]") {
  TableArrays destination = {{}, {1, 2, 3, 4, 5}};
  v1::PullResponse response;
  *response.add_shards() = Values(v1::ShardValues::UNCHANGED, {});
  *response.add_shards() = Values(v1::ShardValues::PAST, {});
  REQUIRE_OK_AND_ASSIGN(const DecodedReply reply,
                        DecodePull(TwoShards(OpKind::kPull), Detached(response), &destination));
  CHECK(reply.shards[0].outcome == ShardReply::Outcome::kDone);
  CHECK(reply.shards[1].outcome == ShardReply::Outcome::kPast);
  CHECK(destination[1] == std::vector<float>{1, 2, 3, 4, 5});
}

TEST_CASE("Codec: answers that do not fit their message are refused", "[worker][client]") {
  TableArrays destination = {{}, {1, 2, 3, 4, 5}};
  const SendMessage message = TwoShards(OpKind::kPull);
  v1::PullResponse response;
  *response.add_shards() = Values(v1::ShardValues::VALUES, {1});
  CHECK_STATUS(DecodePull(message, Detached(response), &destination), absl::StatusCode::kInternal,
               "answered 1 shards, expected 2");
  *response.add_shards() = Values(v1::ShardValues::VALUES, {1, 2, 3});
  CHECK_STATUS(DecodePull(message, Detached(response), &destination), absl::StatusCode::kInternal,
               "shard 0 came with 4 bytes, expected 8");
  *response.mutable_shards(0) = Values(v1::ShardValues::OUTCOME_UNSPECIFIED, {});
  CHECK_STATUS(DecodePull(message, Detached(response), &destination), absl::StatusCode::kInternal,
               "shard 0 came with outcome 0");
  CHECK_STATUS(DecodePush(TwoShards(OpKind::kPush), {}), absl::StatusCode::kInternal,
               "answered 0 shards, expected 2");
}

TEST_CASE("Codec: a push's answer gives each shard's version", "[worker][client]") {
  v1::PushResponse response;
  response.add_shards()->set_version(3);
  response.add_shards()->set_version(4);
  REQUIRE_OK_AND_ASSIGN(const DecodedReply reply, DecodePush(TwoShards(OpKind::kPush), response));
  CHECK(reply.shards[1].version == Version(4));
  CHECK(reply.waiting.empty());
}

TEST_CASE("Codec: a routing table keeps terms, incarnations and ranges", "[worker][client]") {
  v1::RoutingTable table;
  table.set_generation(12);
  v1::ServerAddress* server = table.add_servers();
  server->set_node_id("server-1");
  server->set_address("h:1");
  server->set_incarnation(33);
  v1::ShardRoute* shard = table.add_shards();
  shard->set_shard(2);
  shard->set_element_begin(8);
  shard->set_element_end(12);
  shard->set_term(9);
  REQUIRE_OK_AND_ASSIGN(const Routing routing, DecodeRouting(table));
  CHECK(routing.generation == Generation(12));
  CHECK(routing.servers == std::vector<std::string>{"server-1"});
  CHECK(routing.addresses == std::vector<std::string>{"h:1"});
  CHECK(routing.incarnations == std::vector<Incarnation>{Incarnation(33)});
  CHECK(routing.shards[0].term == Term(9));
  CHECK(routing.shards[0].elements == Range{8, 12});
}

TEST_CASE("Codec: a routing table that cannot be is refused", "[worker][client]") {
  v1::RoutingTable table;
  table.add_servers();
  v1::ShardRoute* shard = table.add_shards();
  shard->set_server(1);
  CHECK_STATUS(DecodeRouting(table), absl::StatusCode::kInvalidArgument, "names server 1");
  shard->set_server(0);
  shard->set_element_begin(5);
  CHECK_STATUS(DecodeRouting(table), absl::StatusCode::kInvalidArgument, "[5, 0)");
}

TEST_CASE("Codec: keys go with their name, by it alone, or without", "[worker][client]") {
  std::vector<uint64_t> all;
  for (uint64_t key = 0; key < 12; ++key) all.push_back(key);
  KeyBatch batch = MakeKeyBatch(all, 2);
  NameLists(&batch);
  const AllTableKeys keys = {{.batch = std::make_shared<const KeyBatch>(batch), .dim = 1}};
  const auto rows = std::make_shared<const TableArrays>(TableArrays{std::vector<float>(12, 3.0f)});
  SendMessage message = TwoShards(OpKind::kPull);
  for (int i = 0; i < 2; ++i) {
    message.shards[static_cast<size_t>(i)].key = {TableId(0), ShardId(i)};
    message.shards[static_cast<size_t>(i)].elements = {i, i + 1};
  }
  const std::vector<KeyForm> forms = {KeyForm::kKeysAndName, KeyForm::kName};
  v1::PullRequest pull;
  EncodePull(kCaller, message, absl::Milliseconds(250), &pull, {}, keys, forms);
  CHECK(static_cast<int64_t>(pull.shards(0).keys().size()) == 8 * batch.names[0].count);
  CHECK(pull.shards(0).key_list().low() == batch.names[0].low);
  CHECK(pull.shards(1).keys().empty());
  CHECK(pull.shards(1).key_list().high() == batch.names[1].high);
  CHECK(pull.shards(1).key_list().count() == batch.names[1].count);
  message.request.kind = OpKind::kPush;
  const PushMessage push = EncodePush(kCaller, message, rows, {}, keys, forms);
  const std::vector<int64_t> sizes = ValueSizes(message, {}, keys, forms);
  CHECK_FALSE(push.head.shards(0).has_key_list());
  CHECK(push.head.shards(1).key_list().low() == batch.names[1].low);
  CHECK(sizes == std::vector<int64_t>{12 * batch.names[0].count, 4 * batch.names[1].count});
  CHECK(static_cast<int64_t>(push.values[0].size()) == sizes[0]);
  CHECK(static_cast<int64_t>(push.values[1].size()) == sizes[1]);
}

TEST_CASE("Codec: a pull that wants some rows names their bits, and takes them to their places",
          "[worker][client]") {
  KeyBatch batch = MakeKeyBatch(std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}, 2);
  NameLists(&batch);
  constexpr int64_t kRowDim = 3;
  const std::vector<uint32_t> places = {0, 2, 7};
  const AllTableKeys keys = {
      {.batch = std::make_shared<const KeyBatch>(batch),
       .dim = kRowDim,
       .wanted = std::make_shared<const WantedKeys>(MakeWantedKeys(batch, places))}};
  SendMessage message{.request = {.kind = OpKind::kPull}};
  for (int bucket = 0; bucket < 2; ++bucket) {
    message.shards.push_back(
        {.key = {TableId(0), ShardId(bucket)}, .elements = {bucket, bucket + 1}});
  }
  v1::PullRequest pull;
  EncodePull(kCaller, message, absl::Milliseconds(250), &pull, {}, keys);
  CHECK(pull.shards(0).keys().size() + pull.shards(1).keys().size() == 8 * sizeof(uint64_t));
  PullAnswer answer;
  float next = 10;
  for (int bucket = 0; bucket < 2; ++bucket) {
    const Range part = batch.InBucket(bucket);
    CHECK(pull.shards(bucket).wanted() == WantedBits(part, keys[0].wanted->InBucket(bucket)));
    std::vector<float> rows;
    while (std::ssize(rows) < std::ssize(keys[0].wanted->InBucket(bucket)) * kRowDim) {
      rows.push_back(next++);
    }
    CHECK(ValueSizes(message, {}, keys)[static_cast<size_t>(bucket)] ==
          std::ssize(rows) * int64_t{sizeof(float)});
    v1::ShardValues* head = answer.head.add_shards();
    head->set_outcome(v1::ShardValues::VALUES);
    head->set_value_type(v1::FLOAT32);
    head->set_membership(6);
    answer.values.emplace_back(
        std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float)));
  }
  TableArrays arrays = {std::vector<float>(8 * kRowDim, -1.0f)};
  REQUIRE_OK_AND_ASSIGN(const DecodedReply reply, DecodePull(message, answer, &arrays, keys));
  CHECK(reply.shards[0].membership == Generation(6));
  std::vector<float> expected(8 * kRowDim, -1.0f);
  next = 10;
  for (const uint32_t place : places) {
    for (int64_t c = 0; c < kRowDim; ++c) {
      expected[static_cast<size_t>(place * kRowDim + c)] = next++;
    }
  }
  CHECK(arrays[0] == expected);
  // The server sends more rows of a bucket than are wanted.
  answer.values[0] = std::string(static_cast<size_t>(batch.InBucket(0).size() + 1) * 12, 'x');
  CHECK_STATUS(DecodePull(message, answer, &arrays, keys), absl::StatusCode::kInternal,
               "bytes, expected");
  // A push carries all of its keys, even if the pull wanted fewer.
  message.request.kind = OpKind::kPush;
  CHECK(ValueSizes(message, {}, keys)[0] == batch.InBucket(0).size() * (8 + 12));
}

TEST_CASE("Codec: a server that does not know a list has no shard ready", "[worker][client]") {
  v1::PushResponse response;
  response.set_unknown_key_list(true);
  REQUIRE_OK_AND_ASSIGN(const DecodedReply reply, DecodePush(TwoShards(OpKind::kPush), response));
  CHECK(reply.unknown_key_list);
  REQUIRE(reply.shards.size() == 2);
  CHECK(reply.shards[1].outcome == ShardReply::Outcome::kNotReady);
  PullAnswer answer;
  answer.head.set_unknown_key_list(true);
  TableArrays destination;
  REQUIRE_OK_AND_ASSIGN(const DecodedReply pulled,
                        DecodePull(TwoShards(OpKind::kPull), answer, &destination));
  CHECK(pulled.unknown_key_list);
  CHECK(pulled.shards[0].outcome == ShardReply::Outcome::kNotReady);
}

}  // namespace
}  // namespace capstan::worker::message_codec_test
