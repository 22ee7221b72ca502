#include "worker/client/messages/known_key_lists.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace capstan::worker::known_key_lists_test {
namespace {

using Forms = std::vector<KeyForm>;

// A message with two buckets of a sparse table and a shard of a dense one.
SendMessage Message(OpKind kind, bool snapshot = false) {
  SendMessage message{.request = {.kind = kind, .snapshot = snapshot}};
  for (int bucket = 0; bucket < 2; ++bucket) {
    message.shards.push_back(
        {.key = {TableId(0), ShardId(bucket)}, .elements = {bucket, bucket + 1}});
  }
  message.shards.push_back({.key = {TableId(1), ShardId(0)}, .elements = {0, 8}});
  return message;
}

// `count` keys from `first` on, in two buckets, whose lists have names.
AllTableKeys Keys(uint64_t first, uint64_t count = 100) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(first + i);
  KeyBatch batch = MakeKeyBatch(keys, 2);
  NameLists(&batch);
  return {{.batch = std::make_shared<const KeyBatch>(std::move(batch)), .dim = 1}};
}

TEST_CASE("Known key lists: a pull brings keys and name, what follows names them", "[worker]") {
  KnownKeyLists known({});
  const AllTableKeys keys = Keys(0);
  const SendMessage pull = Message(OpKind::kPull), push = Message(OpKind::kPush);
  CHECK(known.Forms(push, keys) == Forms{KeyForm::kKeys, KeyForm::kKeys, KeyForm::kKeys});
  const Forms first = known.Forms(pull, keys);
  CHECK(first == Forms{KeyForm::kKeysAndName, KeyForm::kKeysAndName, KeyForm::kKeys});
  CHECK(known.Forms(pull, keys) == first);  // Nothing changes until an answer has come.
  known.Answered(pull, keys, first);
  const Forms named{KeyForm::kName, KeyForm::kName, KeyForm::kKeys};
  CHECK(known.Forms(push, keys) == named);
  CHECK(known.Forms(pull, keys) == named);
  CHECK(known.Forms(push, Keys(1000)) == Forms(3, KeyForm::kKeys));
  CHECK(known.Forms(Message(OpKind::kPull, /*snapshot=*/true), keys) == Forms(3, KeyForm::kKeys));
}

TEST_CASE("Known key lists: short lists, and those without names, are sent as they are",
          "[worker]") {
  KnownKeyLists known({.keys_min = 30});
  const SendMessage pull = Message(OpKind::kPull);
  CHECK(known.Forms(pull, Keys(0, 20)) == Forms(3, KeyForm::kKeys));
  AllTableKeys nameless = Keys(0);
  KeyBatch batch = *nameless[0].batch;
  batch.names.clear();
  nameless[0].batch = std::make_shared<const KeyBatch>(batch);
  CHECK(known.Forms(pull, nameless) == Forms(3, KeyForm::kKeys));
}

TEST_CASE(
    "Known key lists: what was used longest ago is no longer believed, and after a wrong "
    "belief less",
    "[worker]") {
  KnownKeyLists known({.bytes_max = 5000});  // About four batches of two lists.
  const SendMessage pull = Message(OpKind::kPull), push = Message(OpKind::kPush);
  const auto learn = [&](uint64_t first) {
    const AllTableKeys keys = Keys(first);
    known.Answered(pull, keys, known.Forms(pull, keys));
  };
  const auto knows = [&](uint64_t first) {
    return known.Forms(push, Keys(first))[0] == KeyForm::kName;
  };
  for (const uint64_t first : {0, 1000, 2000, 3000}) learn(first);
  CHECK(knows(0));  // This also marks it as used.
  learn(4000);
  CHECK(knows(0));
  CHECK_FALSE(knows(1000));
  CHECK(knows(4000));
  const std::vector<KeyForm> forms = known.Forms(push, Keys(0));
  known.Forget(push, Keys(0), forms);
  known.Forget(push, Keys(0), forms);  // This is the answer to another message under way.
  CHECK_FALSE(knows(0));
  CHECK(known.bytes_max() == 2500);
  for (const uint64_t first : {0, 1000, 2000}) learn(first);
  CHECK_FALSE(knows(0));
  CHECK(knows(2000));
}

}  // namespace
}  // namespace capstan::worker::known_key_lists_test
