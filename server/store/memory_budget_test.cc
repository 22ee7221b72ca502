#include "server/store/memory_budget.h"

#include <optional>

#include "common/testing/status_matchers.h"

namespace capstan::server::memory_budget_test {
namespace {

using absl::StatusCode;

constexpr ShardKey kFirst{TableId(0), ShardId(0)}, kSecond{TableId(0), ShardId(1)};

TEST_CASE("Memory budget: what is reserved counts until it is given back", "[store]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.all = 100});
  std::optional<MemoryBudget::Reservation> first = budget->Reserve("a-1", kFirst, 60).value();
  CHECK_STATUS(budget->Reserve("b-1", kFirst, 41), StatusCode::kResourceExhausted,
               "needs 41 bytes: this server holds 60 of the 100 that --memory-limit allows");
  MemoryBudget::Reservation second = budget->Reserve("b-1", kFirst, 40).value();
  CHECK(budget->held() == 100);
  CHECK(budget->HeldBy("b-1") == 40);
  first.reset();
  CHECK(budget->held() == 40);
  CHECK(budget->HeldBy("a-1") == 0);
  REQUIRE_OK(budget->Reserve("a-1", kFirst, 60));
}

TEST_CASE("Memory budget: a job has a limit of its own", "[store]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.one_job = 50});
  const MemoryBudget::Reservation first = budget->Reserve("a-1", kFirst, 50).value();
  CHECK_STATUS(budget->Reserve("a-1", kSecond, 1), StatusCode::kResourceExhausted,
               "job a-1 here holds 50 of the 50 that --job-memory-limit allows");
  REQUIRE_OK(budget->Reserve("b-1", kFirst, 50));
}

TEST_CASE("Memory budget: a reservation that is moved is given back once", "[store]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{});
  {
    MemoryBudget::Reservation from = budget->Reserve("a-1", kFirst, 10).value();
    MemoryBudget::Reservation to = budget->Reserve("a-1", kSecond, 5).value();
    to = std::move(from);
    CHECK(budget->held() == 15);  // The other one is given back with `from`.
  }
  CHECK(budget->held() == 0);
}

TEST_CASE("Memory budget: what a reservation needs no more is there for others", "[store]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.all = 100});
  MemoryBudget::Reservation lists = budget->Reserve("a-1", kFirst, 0).value();
  REQUIRE_OK(lists.Resize(70));
  CHECK_STATUS(budget->Reserve("b-1", kFirst, 31), StatusCode::kResourceExhausted, "holds 70");
  CHECK_STATUS(lists.Resize(101), StatusCode::kResourceExhausted, "needs 31 bytes");
  CHECK(budget->held() == 70);
  REQUIRE_OK(lists.Resize(20));
  CHECK(budget->HeldBy("a-1") == 20);
  const MemoryBudget::Reservation other = budget->Reserve("b-1", kFirst, 80).value();
  CHECK(budget->held() == 100);
  // The larger one of two copies counts, because they cannot be told apart.
  const MemoryBudget::Reservation copy = budget->Reserve("a-1", kFirst, 20).value();
  REQUIRE_OK(lists.Resize(5));
  CHECK(budget->HeldBy("a-1") == 20);
}

TEST_CASE("Memory budget: a copy that replaces another one of its shard needs no room", "[store]") {
  const auto budget = std::make_shared<MemoryBudget>(MemoryBudget::Limits{.one_job = 100});
  MemoryBudget::Reservation old = budget->Reserve("a-1", kFirst, 80).value();
  MemoryBudget::Reservation fresh = budget->Reserve("a-1", kFirst, 80).value();
  CHECK(budget->held() == 80);
  CHECK_STATUS(budget->Reserve("a-1", kFirst, 101), StatusCode::kResourceExhausted,
               "needs 21 bytes");
  { const MemoryBudget::Reservation ended = std::move(old); }
  CHECK(budget->held() == 80);
  { const MemoryBudget::Reservation ended = std::move(fresh); }
  CHECK(budget->held() == 0);
}

}  // namespace
}  // namespace capstan::server::memory_budget_test
