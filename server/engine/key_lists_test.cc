#include "server/engine/key_lists.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace capstan::server::key_lists_test {
namespace {

constexpr Rank kFirst{0}, kSecond{1};
constexpr Incarnation kIncarnation{5}, kNextIncarnation{6};
constexpr ShardKey kShard{TableId(0), ShardId(3)};
constexpr int64_t kListBytes = 8 * 10 + KeyLists::kOverheadBytes;

RowKeys Keys(uint64_t first) {
  auto keys = std::make_shared<std::vector<uint64_t>>();
  for (uint64_t i = 0; i < 10; ++i) keys->push_back(first + i);
  return keys;
}

struct Fixture {
  // Room for so many lists of ten keys a worker.
  explicit Fixture(int room, int workers = 1)
      : lists({.bytes = room * kListBytes * workers, .parts = workers}, [this](int64_t bytes) {
          if (bytes > budget) return absl::ResourceExhaustedError("beyond the limit");
          accounted = bytes;
          return absl::OkStatus();
        }) {}
  void Keep(uint64_t first, Rank rank = kFirst, Incarnation incarnation = kIncarnation) {
    lists.Keep(rank, incarnation, kShard, NameOfKeys(*Keys(first)), Keys(first));
  }
  bool Has(uint64_t first, Rank rank = kFirst, Incarnation incarnation = kIncarnation) {
    const RowKeys keys = lists.Find(rank, incarnation, kShard, NameOfKeys(*Keys(first)));
    return keys != nullptr && *keys == *Keys(first);
  }

  int64_t budget = 1 << 30;
  int64_t accounted = 0;
  KeyLists lists;
};

TEST_CASE("Key lists: a list is found by its own worker's incarnation and shard alone",
          "[server]") {
  Fixture fixture(4);
  fixture.Keep(100);
  CHECK(fixture.Has(100));
  CHECK_FALSE(fixture.Has(200));
  CHECK_FALSE(fixture.Has(100, kSecond));
  CHECK_FALSE(fixture.Has(100, kFirst, kNextIncarnation));
  const ShardKey other{TableId(0), ShardId(4)};
  CHECK(fixture.lists.Find(kFirst, kIncarnation, other, NameOfKeys(*Keys(100))) == nullptr);
  CHECK(fixture.accounted == kListBytes);
}

TEST_CASE("Key lists: the one used longest ago makes room", "[server]") {
  Fixture fixture(2);
  fixture.Keep(100);
  fixture.Keep(200);
  CHECK(fixture.Has(100));  // Used: 200 is the oldest now.
  fixture.Keep(300);
  CHECK(fixture.Has(100));
  CHECK_FALSE(fixture.Has(200));
  CHECK(fixture.Has(300));
  CHECK(fixture.lists.bytes() == 2 * kListBytes);
  fixture.Keep(300);  // Once more: nothing changes.
  CHECK(fixture.Has(100));
}

TEST_CASE("Key lists: more workers than parts share what there is", "[server]") {
  Fixture fixture(2);  // One part.
  fixture.Keep(100);
  fixture.Keep(200);
  fixture.Keep(300, kSecond);
  CHECK(fixture.Has(300, kSecond));
  CHECK_FALSE(fixture.Has(100));
  CHECK(fixture.Has(200));
  CHECK(fixture.lists.bytes() == 2 * kListBytes);
}

TEST_CASE(
    "Key lists: a new incarnation drops those of the one before, and an old one keeps nothing",
    "[server]") {
  Fixture fixture(4);
  fixture.Keep(100);
  fixture.Keep(200, kFirst, kNextIncarnation);
  CHECK_FALSE(fixture.Has(100));
  CHECK(fixture.Has(200, kFirst, kNextIncarnation));
  fixture.Keep(300, kFirst, kIncarnation);
  CHECK_FALSE(fixture.Has(300));
  CHECK(fixture.accounted == kListBytes);
}

TEST_CASE("Key lists: a membership drops those of incarnations that it does not list", "[server]") {
  Fixture fixture(4, 2);
  fixture.Keep(100);
  fixture.Keep(200, kSecond);
  fixture.lists.SetMembership({.generation = Generation(2),
                               .members = {{.rank = kFirst, .incarnation = kIncarnation},
                                           {.rank = kSecond, .incarnation = kNextIncarnation}}});
  CHECK(fixture.Has(100));
  CHECK_FALSE(fixture.Has(200, kSecond));
  CHECK(fixture.accounted == kListBytes);
}

TEST_CASE("Key lists: without memory nothing is kept, and nothing else is lost", "[server]") {
  Fixture fixture(4);
  fixture.budget = kListBytes;
  fixture.Keep(100);
  fixture.Keep(200);
  CHECK(fixture.Has(100));
  CHECK_FALSE(fixture.Has(200));
  CHECK(fixture.accounted == kListBytes);
  auto large = std::make_shared<std::vector<uint64_t>>(10'000);
  fixture.lists.Keep(kFirst, kIncarnation, kShard, NameOfKeys(*large), large);  // Beyond the part.
  CHECK(fixture.lists.Find(kFirst, kIncarnation, kShard, NameOfKeys(*large)) == nullptr);
}

TEST_CASE("Key lists: what was named, used and unknown is counted", "[server]") {
  Fixture fixture(4);
  fixture.Keep(100);
  fixture.Keep(200);
  CHECK(fixture.Has(100));
  CHECK(fixture.Has(100));
  CHECK_FALSE(fixture.Has(300));
  const v1::KeyListCounts counts = fixture.lists.counts();
  CHECK(counts.kept() == 2);
  CHECK(counts.bytes() == 2 * kListBytes);
  CHECK(counts.named() == 2);
  CHECK(counts.used() == 2);
  CHECK(counts.unknown() == 1);
}

}  // namespace
}  // namespace capstan::server::key_lists_test
