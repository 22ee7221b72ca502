#include "scheduler/store/testing/memory_store.h"

#include <catch2/catch.hpp>

#include "common/testing/status_matchers.h"

namespace capstan::scheduler::memory_store_test {
namespace {

TEST_CASE("Memory store: a crash loses what was not synced, and nothing else",
          "[scheduler][store]") {
  MemoryStore store(MemoryStore::Durable::kOnSync);
  REQUIRE_OK(store.Write({{"a", "1"}, {"b", "1"}}));
  store.Sync();
  REQUIRE_OK(store.Write({{"a", "2"}, {"b", std::nullopt}}));
  CHECK(*store.Load() == StoreRows{{"a", "2"}});
  store.Crash();
  CHECK(*store.Load() == StoreRows{{"a", "1"}, {"b", "1"}});
}

TEST_CASE("Memory store: a write fails once where the test says so", "[scheduler][store]") {
  MemoryStore store;
  store.FailNext(absl::ResourceExhaustedError("full"));
  CHECK_STATUS(store.Write({{"a", "1"}}), absl::StatusCode::kResourceExhausted, "full");
  CHECK(store.Load()->empty());
  REQUIRE_OK(store.Write({{"a", "1"}}));
  store.Crash();
  CHECK(*store.Load() == StoreRows{{"a", "1"}});
  CHECK(store.write_count() == 2);
}

}  // namespace
}  // namespace capstan::scheduler::memory_store_test
