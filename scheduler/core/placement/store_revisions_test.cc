#include "scheduler/core/placement/store_revisions.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::store_revisions_test {
namespace {

// Returns the revisions of scheduler `next`, which goes on from `store`.
StoreRevisions After(StoreRevisions store, uint64_t next) {
  StoreRevisions later(next);
  std::vector<StoreRevision> row;
  auto save = [&row](const std::vector<StoreRevision>& latest) { row = latest; };
  auto load = [&row](std::vector<StoreRevision>& latest) { latest = row; };
  store.serialize(save);
  later.serialize(load);
  later.Begin();
  return later;
}

TEST_CASE("Store revisions: what was written is known, also to later schedulers",
          "[scheduler][core]") {
  StoreRevisions first(7);
  CHECK(first.current() == StoreRevision{7, 0});
  first.Advance();
  CHECK(first.Tell());
  CHECK_FALSE(first.Tell());
  first.Advance();
  CHECK(first.current() == StoreRevision{7, 2});
  CHECK(first.Has({}));
  CHECK(first.Has({7, 2}));
  CHECK_FALSE(first.Has({7, 3}));
  StoreRevisions second = After(first, 9);
  CHECK(second.current() == StoreRevision{9, 0});
  CHECK(second.Has({7, 2}));
  second.Tell();
  second.Advance();
  CHECK(second.Has({9, 1}));
  CHECK(After(second, 4).Has({7, 1}));
}

TEST_CASE("Store revisions: what was written behind a copy is not known", "[scheduler][core]") {
  StoreRevisions first(7);
  first.Tell();
  first.Advance();
  const StoreRevisions copy = first;
  first.Advance();
  StoreRevisions lost = After(first, 8);
  lost.Tell();
  lost.Advance();
  StoreRevisions next = After(copy, 9);
  CHECK(next.Has({7, 1}));
  CHECK_FALSE(next.Has(first.current()));
  CHECK_FALSE(next.Has(lost.current()));
  SECTION("nor when this one has written as much") {
    next.Tell();
    next.Advance();
    next.Advance();
    CHECK_FALSE(next.Has(first.current()));
    CHECK_FALSE(next.Has(lost.current()));
    CHECK_FALSE(After(next, 10).Has(first.current()));
  }
  SECTION("but one that has written nothing is no loss") { CHECK(next.Has({8, 0})); }
}

TEST_CASE("Store revisions: the oldest of the schedulers that told any are forgotten",
          "[scheduler][core]") {
  StoreRevisions revisions(1);
  revisions.Tell();
  revisions.Advance();
  for (uint64_t next = 2; next <= StoreRevisions::kSchedulersMax; ++next) {
    revisions = After(revisions, next);
    revisions.Tell();
  }
  for (uint64_t next = 1000; next < 1000 + 2 * StoreRevisions::kSchedulersMax; ++next) {
    revisions = After(revisions, next);
    revisions.Advance();
  }
  CHECK(revisions.Has({1, 1}));
  revisions.Tell();
  CHECK_FALSE(revisions.Has({1, 1}));
}

}  // namespace
}  // namespace capstan::scheduler::store_revisions_test
