#include "server/service/key_lists.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace capstan::server {
namespace {

constexpr Rank kFirst{0}, kSecond{1};
constexpr Incarnation kLife{5}, kNextLife{6};
constexpr ShardKey kShard{TableId(0), ShardId(3)};
constexpr int64_t kListBytes = 8 * 10 + KeyLists::kOverheadBytes;

RowKeys Keys(uint64_t first) {
  auto keys = std::make_shared<std::vector<uint64_t>>();
  for (uint64_t i = 0; i < 10; ++i) keys->push_back(first + i);
  return keys;
}

struct Story {
  // Room for so many lists of ten keys a worker.
  explicit Story(int room, int workers = 1)
      : lists({.bytes = room * kListBytes * workers, .parts = workers}, [this](int64_t bytes) {
          if (bytes > budget) return absl::ResourceExhaustedError("beyond the limit");
          accounted = bytes;
          return absl::OkStatus();
        }) {}
  void Keep(uint64_t first, Rank rank = kFirst, Incarnation life = kLife) {
    lists.Keep(rank, life, kShard, NameOfKeys(*Keys(first)), Keys(first));
  }
  bool Has(uint64_t first, Rank rank = kFirst, Incarnation life = kLife) {
    const RowKeys keys = lists.Find(rank, life, kShard, NameOfKeys(*Keys(first)));
    return keys != nullptr && *keys == *Keys(first);
  }

  int64_t budget = 1 << 30;
  int64_t accounted = 0;
  KeyLists lists;
};

TEST_CASE("Key lists: a list is found by its own worker's life and shard alone", "[server]") {
  Story story(4);
  story.Keep(100);
  CHECK(story.Has(100));
  CHECK_FALSE(story.Has(200));
  CHECK_FALSE(story.Has(100, kSecond));
  CHECK_FALSE(story.Has(100, kFirst, kNextLife));
  const ShardKey other{TableId(0), ShardId(4)};
  CHECK(story.lists.Find(kFirst, kLife, other, NameOfKeys(*Keys(100))) == nullptr);
  CHECK(story.accounted == kListBytes);
}

TEST_CASE("Key lists: the one used longest ago makes room", "[server]") {
  Story story(2);
  story.Keep(100);
  story.Keep(200);
  CHECK(story.Has(100));  // Used: 200 is the oldest now.
  story.Keep(300);
  CHECK(story.Has(100));
  CHECK_FALSE(story.Has(200));
  CHECK(story.Has(300));
  CHECK(story.lists.bytes() == 2 * kListBytes);
  story.Keep(300);  // Once more: nothing changes.
  CHECK(story.Has(100));
}

TEST_CASE("Key lists: more workers than parts share what there is", "[server]") {
  Story story(2);  // One part.
  story.Keep(100);
  story.Keep(200);
  story.Keep(300, kSecond);
  CHECK(story.Has(300, kSecond));
  CHECK_FALSE(story.Has(100));
  CHECK(story.Has(200));
  CHECK(story.lists.bytes() == 2 * kListBytes);
}

TEST_CASE("Key lists: a new life drops those of the one before, and an old one keeps nothing",
          "[server]") {
  Story story(4);
  story.Keep(100);
  story.Keep(200, kFirst, kNextLife);
  CHECK_FALSE(story.Has(100));
  CHECK(story.Has(200, kFirst, kNextLife));
  story.Keep(300, kFirst, kLife);
  CHECK_FALSE(story.Has(300));
  CHECK(story.accounted == kListBytes);
}

TEST_CASE("Key lists: a membership drops those of lives that it does not list", "[server]") {
  Story story(4, 2);
  story.Keep(100);
  story.Keep(200, kSecond);
  story.lists.SetMembership({.generation = Generation(2),
                             .members = {{.rank = kFirst, .incarnation = kLife},
                                         {.rank = kSecond, .incarnation = kNextLife}}});
  CHECK(story.Has(100));
  CHECK_FALSE(story.Has(200, kSecond));
  CHECK(story.accounted == kListBytes);
}

TEST_CASE("Key lists: without memory nothing is kept, and nothing else is lost", "[server]") {
  Story story(4);
  story.budget = kListBytes;
  story.Keep(100);
  story.Keep(200);
  CHECK(story.Has(100));
  CHECK_FALSE(story.Has(200));
  CHECK(story.accounted == kListBytes);
  auto large = std::make_shared<std::vector<uint64_t>>(10'000);
  story.lists.Keep(kFirst, kLife, kShard, NameOfKeys(*large), large);  // Beyond the part.
  CHECK(story.lists.Find(kFirst, kLife, kShard, NameOfKeys(*large)) == nullptr);
}

TEST_CASE("Key lists: what was named, used and unknown is counted", "[server]") {
  Story story(4);
  story.Keep(100);
  story.Keep(200);
  CHECK(story.Has(100));
  CHECK(story.Has(100));
  CHECK_FALSE(story.Has(300));
  const v1::KeyListCounts counts = story.lists.counts();
  CHECK(counts.kept() == 2);
  CHECK(counts.bytes() == 2 * kListBytes);
  CHECK(counts.named() == 2);
  CHECK(counts.used() == 2);
  CHECK(counts.unknown() == 1);
}

}  // namespace
}  // namespace capstan::server
