#include "scheduler/codec/task_codec.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/metrics/evaluation.h"
#include "common/metrics/score_counts.h"
#include "common/testing/status_matchers.h"
#include "common/types/job_limits.h"
#include "scheduler/codec/shared_codec.h"

namespace capstan::scheduler::task_codec_test {
namespace {

v1::SyncTaskRequest RequestOf(const std::vector<uint32_t>& bin_steps,
                              const std::vector<int64_t>& non_clicks,
                              const std::vector<int64_t>& clicks) {
  v1::SyncTaskRequest request;
  v1::SampleProgress& sample = *request.mutable_progress()->add_samples();
  sample.set_lease_id(6);
  v1::ScoreCounts& scores = *sample.mutable_scores();
  scores.mutable_bin_steps()->Add(bin_steps.begin(), bin_steps.end());
  scores.mutable_non_clicks()->Add(non_clicks.begin(), non_clicks.end());
  scores.mutable_clicks()->Add(clicks.begin(), clicks.end());
  return request;
}

TEST_CASE("Task codec: scores of a lease are rebuilt from steps and counts", "[scheduler]") {
  ScoreCounts expected;
  REQUIRE_OK(expected.Append(0, {.non_clicks = 2, .clicks = 0}));
  REQUIRE_OK(expected.Append(7, {.non_clicks = 0, .clicks = 300}));
  REQUIRE_OK(expected.Append(65535, {.non_clicks = 1, .clicks = 1}));
  REQUIRE_OK_AND_ASSIGN(const TaskReport report,
                        DecodeTaskReport(RequestOf({0, 7, 65528}, {2, 0, 1}, {0, 300, 1})));
  CHECK(report.samples[0].lease == LeaseId(6));
  CHECK(report.samples[0].scores == expected);
  REQUIRE_OK_AND_ASSIGN(const TaskReport none, DecodeTaskReport(RequestOf({}, {}, {})));
  CHECK(none.samples[0].scores.empty());
}

TEST_CASE("Task codec: scores that cannot be are refused with their lease and what is wrong",
          "[scheduler]") {
  const auto refused = [](const v1::SyncTaskRequest& request, const std::string& why) {
    CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument,
                 "progress.samples: lease 6: scores: " + why);
  };
  refused(RequestOf({1, 2}, {1, 1}, {1}), "2 bin_steps, 2 non_clicks and 1 clicks");
  refused(RequestOf({1}, {1, 1}, {1, 1}), "1 bin_steps, 2 non_clicks and 2 clicks");
  refused(RequestOf({5, 0}, {1, 1}, {1, 1}), "score bin 5, expected one from 6 to 65535");
  refused(RequestOf({65536}, {1}, {1}), "score bin 65536, expected one from 0 to 65535");
  refused(RequestOf({9, 65527}, {1, 1}, {1, 1}), "score bin 65536, expected one from 10");
  refused(RequestOf({4294967295u}, {1}, {1}), "score bin 4294967295");
  refused(RequestOf({1}, {-1}, {1}), "score bin 1: -1 non-clicks, expected 0 to");
  refused(RequestOf({1}, {1}, {INT64_MAX}),
          "score bin 1: 9223372036854775807 clicks, expected 0 to");
  refused(RequestOf({1}, {0}, {0}), "score bin 1 has no examples");
}

TEST_CASE("Task codec: sums of a lease's outputs, and sums that cannot be", "[scheduler]") {
  v1::SyncTaskRequest request = RequestOf({}, {}, {});
  v1::OutputSums& outputs = *request.mutable_progress()->mutable_samples(0)->mutable_outputs();
  outputs.set_values(9);
  outputs.set_squared_errors(2.5);
  outputs.set_absolute_errors(1.5);
  outputs.set_among_five(8);
  outputs.set_predicted(7);
  outputs.set_positives(6);
  outputs.set_hits(5);
  REQUIRE_OK_AND_ASSIGN(const TaskReport report, DecodeTaskReport(request));
  CHECK(report.samples[0].outputs == OutputSums{.values = 9,
                                                .squared_errors = 2.5,
                                                .absolute_errors = 1.5,
                                                .among_five = 8,
                                                .predicted = 7,
                                                .positives = 6,
                                                .hits = 5});
  outputs.set_hits(8);
  CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument,
               "lease 6: outputs: values: 9");
}

v1::UpdateHashes UpdateOf(int64_t iteration, int tables) {
  v1::UpdateHashes update;
  update.set_iteration(iteration);
  update.set_epoch(1);
  update.set_slot(2);
  update.set_begin(32);
  update.set_end(48);
  for (int i = 0; i < tables; ++i) {
    v1::TableHashes& table = *update.add_tables();
    table.set_table(i);
    table.set_parameters(10);
    table.set_gradient(11);
    table.set_keys(12);
  }
  return update;
}

TEST_CASE("Task codec: updates are rebuilt with the hashes of their tables", "[scheduler]") {
  v1::SyncTaskRequest request;
  *request.add_updates() = UpdateOf(5, 1);
  *request.add_updates() = UpdateOf(6, 3);
  REQUIRE_OK_AND_ASSIGN(const TaskReport report, DecodeTaskReport(request));
  REQUIRE(report.updates.size() == 2);
  const UpdateHashes& update = report.updates[1];
  CHECK(update.iteration == Iteration(6));
  CHECK(update.epoch == Epoch(1));
  CHECK(update.slot == SlotId(2));
  CHECK(update.positions == Range{.begin = 32, .end = 48});
  REQUIRE(update.tables.size() == 3);
  CHECK(update.tables[2].table == 2);
  CHECK(update.tables[2].parameters == 10);
  CHECK(update.tables[2].gradient == 11);
  CHECK(update.tables[2].keys == 12);
}

TEST_CASE("Task codec: updates of no table, or of too many in a report, are refused",
          "[scheduler]") {
  v1::SyncTaskRequest request;
  *request.add_updates() = UpdateOf(5, 0);
  CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument,
               "updates: iteration 5 has 0 tables, expected one at least");
  *request.mutable_updates(0) = UpdateOf(5, kTablesReportedMax);
  REQUIRE_OK(DecodeTaskReport(request));
  *request.add_updates() = UpdateOf(6, 1);
  CHECK_STATUS(DecodeTaskReport(request), absl::StatusCode::kInvalidArgument,
               "updates: iteration 6 has 1 tables");
}

TEST_CASE("Task codec: every failure's reason survives the way there and back", "[scheduler]") {
  for (int reason = v1::Failure::Reason_MIN; reason <= v1::Failure::Reason_MAX; ++reason) {
    v1::Failure failure;
    failure.set_reason(static_cast<v1::Failure::Reason>(reason));
    failure.set_message("m");
    v1::Failure back;
    EncodeFailure(DecodeFailure(failure), back);
    CHECK(back.SerializeAsString() == failure.SerializeAsString());
  }
  v1::Failure unknown;
  unknown.set_reason(static_cast<v1::Failure::Reason>(99));
  CHECK(DecodeFailure(unknown).reason == FailureReason::kInternal);
}

}  // namespace
}  // namespace capstan::scheduler::task_codec_test
