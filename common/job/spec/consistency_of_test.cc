// A job's consistency, as all roles read it.
#include "common/job/spec/consistency_of.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::consistency_of_test {
namespace {

TEST_CASE("Consistency: each mode is understood, BSP by default", "[job]") {
  v1::Consistency consistency;
  CHECK(ConsistencyOf(consistency, 4) == ConsistencyRule{.slots = 4});
  consistency.mutable_bsp();
  CHECK(ConsistencyOf(consistency, 4) == ConsistencyRule{.slots = 4});
  CHECK(ConsistencyOf(consistency, 4).synchronous());
  CHECK_FALSE(ConsistencyOf(consistency, 4).reads_ahead());
  consistency.mutable_bsp()->set_backups(3);
  CHECK(ConsistencyOf(consistency, 4) == ConsistencyRule{.slots = 4, .backups = 3});

  v1::Consistency::Ssp& ssp = *consistency.mutable_ssp();
  ssp.set_staleness_bound(3);
  ConsistencyRule rule = ConsistencyOf(consistency, 4);
  CHECK(rule == ConsistencyRule{.mode = ConsistencyMode::kSsp, .slots = 4, .staleness_bound = 3});
  CHECK_FALSE(rule.synchronous());
  ssp.set_rate_by_staleness(true);
  ssp.set_delay_compensation(0.5f);
  ssp.set_cached_rows(9);
  rule = ConsistencyOf(consistency, 4);
  CHECK(rule.rate_by_staleness);
  CHECK(rule.delay_compensation == 0.5f);
  CHECK(rule.cached_rows == 9);

  v1::Consistency::Asp& asp = *consistency.mutable_asp();
  rule = ConsistencyOf(consistency, 4);
  CHECK(rule == ConsistencyRule{.mode = ConsistencyMode::kAsp, .slots = 4});
  CHECK_FALSE(rule.synchronous());
  asp.set_rate_by_staleness(true);
  asp.set_delay_compensation(0.25f);
  asp.set_cached_rows(8);
  asp.set_cached_iterations(7);
  asp.set_read_own_pushes(true);
  CHECK(ConsistencyOf(consistency, 4) == ConsistencyRule{.mode = ConsistencyMode::kAsp,
                                                         .slots = 4,
                                                         .rate_by_staleness = true,
                                                         .delay_compensation = 0.25f,
                                                         .read_own_pushes = true,
                                                         .cached_rows = 8,
                                                         .cached_iterations = 7});
}

TEST_CASE("Consistency: a job without slots has one a worker", "[job]") {
  v1::JobSpec job;
  job.mutable_resources()->set_workers(5);
  CHECK(ConsistencyOf(job).slots == 5);
  job.mutable_training()->set_slots(3);
  CHECK(ConsistencyOf(job).slots == 3);
}

TEST_CASE("Consistency: workers read ahead where nobody waits for their own pushes", "[job]") {
  v1::Consistency consistency;
  consistency.mutable_ssp();
  CHECK_FALSE(ConsistencyOf(consistency, 1).reads_ahead());
  consistency.mutable_ssp()->set_staleness_bound(1);
  CHECK(ConsistencyOf(consistency, 1).reads_ahead());
  consistency.mutable_asp();
  CHECK(ConsistencyOf(consistency, 1).reads_ahead());
  consistency.mutable_asp()->set_read_own_pushes(true);
  CHECK_FALSE(ConsistencyOf(consistency, 1).reads_ahead());
}

TEST_CASE("Consistency: its name is that of job files, with the bound", "[job]") {
  CHECK(NameOf(ConsistencyRule{}) == "bsp");
  CHECK(NameOf(ConsistencyRule{.mode = ConsistencyMode::kSsp, .staleness_bound = 2}) == "ssp(2)");
  CHECK(NameOf(ConsistencyRule{.mode = ConsistencyMode::kAsp}) == "asp");
  CHECK(NameOf(ConsistencyMode::kSsp) == std::string("ssp"));
}

}  // namespace
}  // namespace capstan::consistency_of_test
