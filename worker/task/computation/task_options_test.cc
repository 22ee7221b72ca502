#include "worker/task/computation/task_options.h"

#include <catch2/catch.hpp>

namespace capstan::worker::task_options_test {
namespace {

v1::JobSpec Job(int workers, int replicas) {
  v1::JobSpec job;
  job.mutable_resources()->set_workers(workers);
  job.mutable_resources()->set_replicas(replicas);
  job.mutable_training()->set_batch_size(8);
  return job;
}

TEST_CASE("Task options: acknowledgements wait for iterations only where BSP commits them",
          "[worker][task]") {
  v1::JobSpec job = Job(4, 0);
  CHECK(AcknowledgementOf(job) == Acknowledgement::kEachPush);
  job.set_durability(v1::LOG);
  CHECK(AcknowledgementOf(job) == Acknowledgement::kWholeIteration);
  job = Job(4, 1);
  CHECK(AcknowledgementOf(job) == Acknowledgement::kWholeIteration);
  job.mutable_consistency()->mutable_ssp();
  CHECK(AcknowledgementOf(job) == Acknowledgement::kEachPush);
  job.mutable_consistency()->mutable_asp();
  CHECK(AcknowledgementOf(job) == Acknowledgement::kEachPush);
}

TEST_CASE("Task options: under BSP a pull need not wait for acknowledgements", "[worker][task]") {
  v1::JobSpec job = Job(2, 0);
  CHECK(SessionOptions(job, /*on_gpu=*/false).pulls_behind_pushes);
  job.mutable_consistency()->mutable_ssp()->set_staleness_bound(0);
  CHECK_FALSE(SessionOptions(job, /*on_gpu=*/false).pulls_behind_pushes);
  job.mutable_consistency()->mutable_asp();
  CHECK_FALSE(SessionOptions(job, /*on_gpu=*/false).pulls_behind_pushes);
}

TEST_CASE("Task options: what is needed next is pulled early where a worker may miss its last push",
          "[worker][task]") {
  v1::JobSpec job = Job(2, 0);
  job.mutable_consistency()->mutable_asp();
  // On the host, layers read the parameters from the array that a pull would overwrite.
  CHECK_FALSE(EarlyPulls(job, /*on_gpu=*/false));
  const bool on_gpu = GENERATE(false, true);
  if (!on_gpu) job.mutable_model()->mutable_sparse()->mutable_logistic_regression();
  CHECK(EarlyPulls(job, on_gpu));
  CHECK(SessionOptions(job, on_gpu).early_pulls);
  job.mutable_consistency()->mutable_asp()->set_read_own_pushes(true);
  CHECK_FALSE(EarlyPulls(job, on_gpu));
  job.mutable_consistency()->mutable_ssp()->set_staleness_bound(0);
  CHECK_FALSE(EarlyPulls(job, on_gpu));
  job.mutable_consistency()->mutable_ssp()->set_staleness_bound(1);
  CHECK(EarlyPulls(job, on_gpu));
  job.mutable_consistency()->mutable_bsp();
  CHECK_FALSE(EarlyPulls(job, on_gpu));
}

TEST_CASE("Task options: rows are kept by the bound, or by age where there are no clocks",
          "[worker][task]") {
  v1::JobSpec job = Job(2, 0);
  CHECK_FALSE(RowCacheOptions(job, 8).has_value());
  job.mutable_consistency()->mutable_ssp()->set_staleness_bound(4);
  CHECK_FALSE(RowCacheOptions(job, 8).has_value());
  job.mutable_consistency()->mutable_ssp()->set_cached_rows(100);
  REQUIRE(RowCacheOptions(job, 8).has_value());
  CHECK(RowCacheOptions(job, 8)->rows_max == 100);
  CHECK(RowCacheOptions(job, 8)->dim == 8);
  CHECK(RowCacheOptions(job, 8)->by_floor);
  CHECK(RowCacheOptions(job, 8)->bound == 4);
  job.mutable_consistency()->mutable_asp()->set_cached_rows(50);
  job.mutable_consistency()->mutable_asp()->set_cached_iterations(3);
  REQUIRE(RowCacheOptions(job, 8).has_value());
  CHECK(RowCacheOptions(job, 8)->rows_max == 50);
  CHECK_FALSE(RowCacheOptions(job, 8)->by_floor);
  CHECK(RowCacheOptions(job, 8)->bound == 3);
}

TEST_CASE("Task options: an operation waits for as long as the job waits for lost servers",
          "[worker][task]") {
  const PushPullSession::Options usual;
  v1::JobSpec job = Job(2, 0);
  job.mutable_resources()->set_server_wait_seconds(60);
  CHECK(SessionOptions(job, /*on_gpu=*/false).silence_max == usual.silence_max);
  CHECK(SessionOptions(job, /*on_gpu=*/false).wait_max == usual.wait_max + absl::Minutes(1));
  job.mutable_resources()->set_server_wait_seconds(7200);
  CHECK(SessionOptions(job, /*on_gpu=*/false).silence_max == absl::Minutes(121));
  CHECK(SessionOptions(job, /*on_gpu=*/false).wait_max == usual.wait_max + absl::Hours(2));
}

TEST_CASE("Task options: one task may hold every slot of an iteration", "[worker][task]") {
  v1::JobSpec job = Job(4, 1);
  CHECK(SessionOptions(job, /*on_gpu=*/false).operations_max == 64);
  job.mutable_training()->set_slots(500);
  CHECK(SessionOptions(job, /*on_gpu=*/false).operations_max > 500);
  CHECK(SessionOptions(job, /*on_gpu=*/false).acknowledgement == Acknowledgement::kWholeIteration);
}

TEST_CASE("Task options: formats are of the parameters, and snapshots stay exact",
          "[worker][task]") {
  v1::JobSpec job = Job(4, 0);
  CHECK_FALSE(SessionOptions(job, /*on_gpu=*/false).exact_snapshots);
  job.mutable_wire()->set_gradients(v1::FP16);
  CHECK_FALSE(SessionOptions(job, /*on_gpu=*/false).exact_snapshots);
  job.mutable_wire()->set_parameters(v1::BF16);
  CHECK(SessionOptions(job, /*on_gpu=*/false).exact_snapshots);
  const Formats formats = WireFormats(job);
  REQUIRE(formats.size() == 1);  // Statistics come second, and are fp32.
  CHECK(formats[0].gradients == NumberFormat::kFp16);
  CHECK(formats[0].parameters == NumberFormat::kBf16);
}

TEST_CASE("Task options: BSP has a slot a worker unless the job says otherwise", "[worker][task]") {
  v1::JobSpec job = Job(4, 0);
  CHECK(BoardOptions(job).slots == 4);
  CHECK(BoardOptions(job).bsp);
  CHECK(BoardOptions(job).evaluation_batch_size == 256);
  job.mutable_program();
  job.mutable_training()->set_batch_size(24);
  CHECK(BoardOptions(job).evaluation_batch_size == 24);
  job.mutable_training()->set_slots(6);
  CHECK(BoardOptions(job).slots == 6);
  job.mutable_consistency()->mutable_asp();
  CHECK_FALSE(BoardOptions(job).bsp);
}

TEST_CASE("Task options: a sparse job's tables travel alike, in messages by its batch",
          "[worker][task]") {
  v1::JobSpec job;
  CHECK(BucketBytes(job).empty());
  job.mutable_wire()->set_gradients(v1::BF16);
  job.mutable_training()->set_batch_size(100);
  job.mutable_data()->set_format(v1::Data::CRITEO);
  job.mutable_model()->mutable_sparse()->mutable_deep_fm()->set_rank(15);
  job.mutable_model()->mutable_sparse()->set_buckets(10);
  const Formats formats = WireFormats(job);
  REQUIRE(formats.size() == 2);
  CHECK(formats[0].gradients == NumberFormat::kBf16);
  CHECK(formats[1].gradients == NumberFormat::kBf16);
  CHECK(BucketBytes(job) == std::vector<int64_t>{100 * 26 * (8 + 16 * 4) / 10});
  CHECK(BoardOptions(job).evaluation_batch_size == 100);
  job.mutable_model()->mutable_sparse()->mutable_skip_gram();
  CHECK(BucketBytes(job) == std::vector<int64_t>{100 * 26 * (8 + 100 * 4) / 10});
}

TEST_CASE("Task options: the rows of a program have a size in messages, its tensors their own",
          "[worker][task]") {
  v1::JobSpec job;
  job.mutable_program()->add_parameters()->set_name("w");
  job.mutable_program()->add_rows()->set_name("ads");
  const bool own_pace = GENERATE(false, true);
  job.mutable_program()->set_own_pace(own_pace);
  const std::vector<int64_t> bytes = BucketBytes(job);
  REQUIRE(bytes.size() == 2);
  CHECK(bytes[0] == 0);
  // The buckets that a table has by default make one message on one server.
  CHECK(bytes[1] > 0);
  CHECK(bytes[1] * 64 <= SessionOptions(job, /*on_gpu=*/false).chunk_bytes_min);
}

}  // namespace
}  // namespace capstan::worker::task_options_test
