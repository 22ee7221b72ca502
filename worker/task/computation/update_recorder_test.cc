#include "worker/task/computation/update_recorder.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "common/sparse/key_batch.h"

namespace capstan::worker::update_recorder_test {
namespace {

Work BatchOf(int64_t iteration, int slot) {
  return {.kind = Work::Kind::kTrain,
          .epoch = Epoch(1),
          .iteration = Iteration(iteration),
          .slots = {.begin = slot, .end = slot + 1},
          .positions = {.begin = 16, .end = 32}};
}

// The record of a batch with these parameters and this gradient, in one table.
v1::UpdateHashes RecordOf(const std::vector<float>& parameters, const std::vector<float>& gradient,
                          const AllTableKeys& keys = {}) {
  UpdateRecorder recorder("job-1");
  recorder.Pulled({parameters}, nullptr);
  recorder.Trained(BatchOf(5, 2), {.floats = {gradient}, .halves = {}}, keys);
  v1::SyncTaskRequest request;
  recorder.AddTo(request);
  REQUIRE(request.updates_size() == 1);
  return request.updates(0);
}

AllTableKeys KeysOf(const std::vector<uint64_t>& keys) {
  return {{.batch = std::make_shared<const KeyBatch>(MakeKeyBatch(keys, 4)), .dim = 1}};
}

TEST_CASE("Update recorder: a record says which micro-batch it is, and depends on every bit",
          "[worker]") {
  const v1::UpdateHashes record = RecordOf({1, 2}, {3, 0.0f});
  CHECK(record.iteration() == 5);
  CHECK(record.epoch() == 1);
  CHECK(record.slot() == 2);
  CHECK(record.begin() == 16);
  CHECK(record.end() == 32);
  REQUIRE(record.tables_size() == 1);
  const v1::TableHashes hashes = record.tables(0);
  const v1::TableHashes same = RecordOf({1, 2}, {3, 0.0f}).tables(0);
  CHECK(same.parameters() == hashes.parameters());
  CHECK(same.gradient() == hashes.gradient());
  CHECK(RecordOf({1, 2.0000002f}, {3, 0.0f}).tables(0).parameters() != hashes.parameters());
  CHECK(RecordOf({1, 2}, {3, -0.0f}).tables(0).gradient() != hashes.gradient());
}

TEST_CASE("Update recorder: only tables of rows have keys, and other keys another hash",
          "[worker]") {
  CHECK(RecordOf({1, 2}, {3, 4}).tables(0).keys() == 0);
  const uint64_t keys = RecordOf({1, 2}, {3, 4}, KeysOf({7, 9})).tables(0).keys();
  CHECK(keys != 0);
  CHECK(RecordOf({1, 2}, {3, 4}, KeysOf({9, 7})).tables(0).keys() == keys);
  CHECK(RecordOf({1, 2}, {3, 4}, KeysOf({7, 8})).tables(0).keys() != keys);
}

TEST_CASE("Update recorder: values that a device has in 16 bits are hashed as they are",
          "[worker]") {
  const auto hashes_of = [](uint16_t parameter, uint16_t slope) {
    UpdateRecorder recorder("job-1");
    const HalfArrays halves = {{parameter}};
    recorder.Pulled({{1.0f}, {2.0f}}, &halves);
    recorder.Trained(BatchOf(0, 0), {.floats = {{}, {3.0f}}, .halves = {{slope}}}, {});
    v1::SyncTaskRequest request;
    recorder.AddTo(request);
    return request.updates(0);
  };
  const v1::UpdateHashes record = hashes_of(1, 2);
  REQUIRE(record.tables_size() == 2);
  CHECK(hashes_of(3, 2).tables(0).parameters() != record.tables(0).parameters());
  CHECK(hashes_of(1, 3).tables(0).gradient() != record.tables(0).gradient());
  CHECK(hashes_of(3, 3).tables(1).gradient() == record.tables(1).gradient());
}

TEST_CASE("Update recorder: records wait until their report is answered, the oldest go first",
          "[worker]") {
  UpdateRecorder recorder("job-1");
  recorder.Pulled({{1.0f}, {2.0f}}, nullptr);
  const auto train = [&recorder](int64_t iteration) {
    recorder.Trained(BatchOf(iteration, 0), {.floats = {{3.0f}, {4.0f}}, .halves = {}}, {});
  };
  const auto report = [&recorder](int tables_max) {
    v1::SyncTaskRequest request;
    const bool all = recorder.AddTo(request, tables_max);
    std::vector<int64_t> iterations;
    for (const v1::UpdateHashes& update : request.updates()) {
      iterations.push_back(update.iteration());
    }
    return std::pair(iterations, all);
  };
  CHECK(report(4) == std::pair(std::vector<int64_t>(), true));
  for (int64_t iteration = 0; iteration < 3; ++iteration) train(iteration);
  CHECK(report(5) == std::pair(std::vector<int64_t>{0, 1}, false));
  CHECK(report(4) == std::pair(std::vector<int64_t>{0, 1}, false));  // The first got no answer.
  train(3);
  recorder.Reported();
  CHECK(report(4) == std::pair(std::vector<int64_t>{2, 3}, true));
  recorder.Reported();
  recorder.Reported();
  CHECK(report(4) == std::pair(std::vector<int64_t>(), true));
}

TEST_CASE("Update recorder: only a job that asks for it has one", "[worker]") {
  v1::TaskAssignment assignment;
  CHECK(UpdateRecorder::Create(assignment) == nullptr);
  assignment.mutable_spec()->mutable_output()->set_record_updates(true);
  CHECK(UpdateRecorder::Create(assignment) != nullptr);
}

TEST_CASE("Update recorder: what is computed while too many records wait is left out", "[worker]") {
  UpdateRecorder recorder("job-1");
  recorder.Pulled({}, nullptr);
  for (size_t i = 0; i <= UpdateRecorder::kRecordsMax; ++i) {
    recorder.Trained(BatchOf(static_cast<int64_t>(i), 0), {}, {});
  }
  v1::SyncTaskRequest request;
  CHECK(recorder.AddTo(request));
  REQUIRE(request.updates_size() == static_cast<int>(UpdateRecorder::kRecordsMax));
  CHECK(request.updates().rbegin()->iteration() ==
        static_cast<int64_t>(UpdateRecorder::kRecordsMax) - 1);
}

}  // namespace
}  // namespace capstan::worker::update_recorder_test
