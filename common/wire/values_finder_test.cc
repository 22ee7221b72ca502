#include "common/wire/values_finder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"

namespace capstan {
namespace {

using Outcome = ValuesFinder::Outcome;

v1::PullResponse SomeAnswer() {
  v1::PullResponse answer;
  for (const size_t size : {300, 0, 20, 5000}) {
    v1::ShardValues* shard = answer.add_shards();
    shard->set_outcome(size == 0 ? v1::ShardValues::NOT_READY : v1::ShardValues::VALUES);
    shard->set_version(1 << 20);
    shard->set_values(std::string(size, static_cast<char>('a' + answer.shards_size())));
    shard->set_membership(77);  // Behind the values.
  }
  answer.add_shards();  // As short as one can be.
  answer.add_waiting_for()->add_ranks(3);
  return answer;
}

std::string Written(const v1::PullResponse& answer) {
  PullAnswer split{.head = answer, .values = {}};
  for (v1::ShardValues& shard : *split.head.mutable_shards()) {
    split.values.emplace_back(shard.values());
    shard.clear_values();
  }
  return std::string(Encode(split));
}

struct Find {
  size_t shard;
  std::string values;
};

// What is found where each look sees `window` bytes more than the one before, from where it stands.
std::vector<Find> FindAll(const std::string& bytes, size_t window, Outcome* last) {
  std::vector<Find> found;
  ValuesFinder finder;
  size_t at = 0;
  for (size_t seen = 0;;) {
    const absl::string_view come = absl::string_view(bytes).substr(at, seen);
    ValuesFinder::Values values;
    *last = finder.Next(come, &values);
    if (*last == Outcome::kLost || (*last == Outcome::kMore && at + seen >= bytes.size())) break;
    if (*last == Outcome::kMore) {
      seen += window;
      continue;
    }
    REQUIRE(values.begin <= come.size());
    REQUIRE(at + values.begin + values.size <= bytes.size());
    found.push_back({values.shard, bytes.substr(at + values.begin, values.size)});
    at += values.begin + values.size;
    seen = 0;
  }
  return found;
}

TEST_CASE("Values finder: finds what each shard has, however little has come", "[wire]") {
  const v1::PullResponse answer = SomeAnswer();
  for (const std::string& bytes : {Written(answer), answer.SerializeAsString()}) {
    for (const size_t window : {1, 2, 3, 50, 100000}) {
      CAPTURE(window);
      Outcome last;
      const std::vector<Find> found = FindAll(bytes, window, &last);
      CHECK(last == Outcome::kMore);
      REQUIRE(found.size() == 3);
      for (const auto& [shard, values] : found) {
        CHECK(values == answer.shards(static_cast<int>(shard)).values());
      }
      CHECK(found[0].shard == 0);
      CHECK(found[1].shard == 2);
      CHECK(found[2].shard == 3);
    }
  }
}

TEST_CASE("Values finder: a length that lies is lost, or ends before its message", "[wire]") {
  const std::string bytes = Written(SomeAnswer());
  size_t lost = 0;
  for (size_t i = 0; i < 40; ++i) {  // The heads of the first shards.
    for (const int bit : {0, 3, 6, 7}) {
      std::string wrong = bytes;
      wrong[i] = static_cast<char>(wrong[i] ^ (1 << bit));
      ValuesFinder finder;
      ValuesFinder::Values values;
      const Outcome outcome = finder.Next(wrong, &values);
      if (outcome == Outcome::kLost) ++lost;
      // Values that go beyond the bytes are for whoever has a place for them to refuse.
      if (outcome == Outcome::kFound) CHECK(values.begin <= wrong.size());
    }
  }
  CHECK(lost > 0);
}

TEST_CASE("Values finder: values twice in one shard are lost", "[wire]") {
  v1::ShardValues shard;
  shard.set_values(std::string(100, 'x'));
  const std::string twice = shard.SerializeAsString() + shard.SerializeAsString();
  REQUIRE(twice.size() == 204);
  const std::string bytes = "\x0a\xcc\x01" + twice;  // Field 1, 204 bytes.
  Outcome last;
  CHECK(FindAll(bytes, 1000, &last).size() == 1);
  CHECK(last == Outcome::kLost);
}

}  // namespace
}  // namespace capstan
