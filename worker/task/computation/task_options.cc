#include "worker/task/computation/task_options.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/examples/click_log.h"
#include "common/examples/parsers/criteo_parser.h"
#include "common/examples/sets/column_ranges.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/program_tables.h"
#include "common/model/tables.h"
#include "common/sparse_models/model_of_job.h"
#include "common/sparse_models/skip_gram.h"
#include "common/wire/number_format.h"
#include "worker/client/transport/shared_memory_connection.h"
#include "worker/training/trainer/dataset_split.h"

namespace capstan::worker {
namespace {

constexpr int kOperationsMin = 64;       // The lowest value of operations_max.
constexpr int kOwnOperationsMax = 1100;  // More than TableOperations has at once.
// An operation waits this much longer than the job waits for lost servers: the scheduler decides
// then what becomes of the job, and a new routing table takes a moment.
constexpr absl::Duration kSilenceBeyondServerWait = absl::Minutes(1);
constexpr int64_t kKeysPerLine = 256;
constexpr int64_t kKeysPerText = 1000;
// The job file does not say how many rows a program names. With this the 64 buckets of a table make
// one chunk even on one server, and larger operations are cut into messages by what they name.
constexpr int64_t kProgramBucketBytes = 8 << 10;
// The most examples whose rows are pulled at once in evaluation; also no more than in training,
// whose messages have a good size. This does not change what is predicted.
constexpr int64_t kSparseEvaluationBatchMax = 1024;

// An estimate: the exact number depends on the file's lines.
int64_t KeysPerExample(const v1::JobSpec& job) {
  const v1::Data& data = job.data();
  switch (data.format()) {
    case v1::Data::CRITEO:
      return kCriteoCategories;
    case v1::Data::CLICK_LOG:
      return data.click_log().has_fields() ? data.click_log().fields() : ClickLog::Options().fields;
    case v1::Data::COLUMNS: {
      std::vector<const v1::Column*> line;
      ColumnsOfLine(data.columns(), &line);  // The job was checked.
      return static_cast<int64_t>(line.size());
    }
    case v1::Data::TEXT:
      return kKeysPerText;
    default:
      return kKeysPerLine;
  }
}

int64_t RowBytes(const v1::SparseModel& model) {
  const v1::SparseModel::SkipGram& skip_gram = model.skip_gram();
  const int64_t skip_gram_dim = !model.has_skip_gram() ? 1
                                : skip_gram.has_dim()  ? skip_gram.dim()
                                                       : SkipGram::Options().dim;
  const int64_t floats =
      std::max<int64_t>({1, 1 + model.factorization_machine().rank(),
                         1 + model.matrix_factorization().rank(), 1 + model.wide_and_deep().rank(),
                         1 + model.deep_fm().rank(), model.dlrm().dim(), skip_gram_dim});
  return static_cast<int64_t>(sizeof(uint64_t)) + floats * static_cast<int64_t>(sizeof(float));
}

int64_t EvaluationBatchSize(const v1::JobSpec& job) {
  const int64_t batch_size = job.training().batch_size();
  if (job.has_program()) return batch_size;  // It has memory for such a batch.
  if (job.model().has_sparse()) return std::min(kSparseEvaluationBatchMax, batch_size);
  return kEvaluationBatchSize;
}

}  // namespace

Acknowledgement AcknowledgementOf(const v1::JobSpec& job) {
  const bool committed = job.resources().replicas() > 0 || job.durability() == v1::LOG;
  return ConsistencyOf(job).synchronous() && committed ? Acknowledgement::kWholeIteration
                                                       : Acknowledgement::kEachPush;
}

bool EarlyPulls(const v1::JobSpec& job, bool on_gpu) {
  // A program at its own pace reads what it has pushed.
  return !job.program().own_pace() && (HasRows(job) || on_gpu) && ConsistencyOf(job).reads_ahead();
}

PushPullSession::Options SessionOptions(const v1::JobSpec& job, bool on_gpu) {
  const ConsistencyRule consistency = ConsistencyOf(job);
  PushPullSession::Options options{.acknowledgement = AcknowledgementOf(job),
                                   .pulls_behind_pushes = consistency.synchronous(),
                                   .early_pulls = EarlyPulls(job, on_gpu)};
  // A task may hold every slot of an iteration, be given slots of another one, and pull.
  options.operations_max = std::max(kOperationsMin, 2 * consistency.slots + 2);
  if (job.program().own_pace()) {
    options.operations_max = kOwnOperationsMax;
    options.table_chunks = options.pulls_have_own_arrays = true;
  }
  const absl::Duration server_wait = absl::Seconds(job.resources().server_wait_seconds());
  options.silence_max = std::max(options.silence_max, server_wait + kSilenceBeyondServerWait);
  options.wait_max += server_wait;
  options.exact_snapshots = job.wire().parameters() != v1::FP32;
  return options;
}

Formats WireFormats(const v1::JobSpec& job) {
  const TableFormats wire = {.gradients = FormatOf(job.wire().gradients()),
                             .parameters = FormatOf(job.wire().parameters())};
  if (job.model().has_sparse()) return Formats(kDenseTable + 1, wire);
  if (job.has_program()) {
    Formats formats;
    for (const v1::TableSpec& table : ProgramTables(job.program())) {
      formats.push_back(table.rule() == v1::OPTIMIZER ? wire : TableFormats());
    }
    return formats;
  }
  return Formats(kParametersTable + 1, wire);
}

int64_t SharedMemoryBytes(const v1::JobSpec& job) {
  return job.wire().shared_memory() == v1::OFF ? 0 : SharedMemoryConnection::kBytesDefault;
}

std::vector<int64_t> BucketBytes(const v1::JobSpec& job) {
  if (job.has_program()) {
    std::vector<int64_t> bytes;
    for (const v1::TableSpec& table : ProgramTables(job.program())) {
      bytes.push_back(table.has_sparse() ? kProgramBucketBytes : 0);
    }
    return bytes;
  }
  const v1::SparseModel& model = job.model().sparse();
  if (!job.model().has_sparse()) return {};
  const int64_t batch = job.training().batch_size() * KeysPerExample(job);
  return {std::max<int64_t>(1, batch * RowBytes(model) / BucketsOf(model))};
}

std::optional<RowCache::Options> RowCacheOptions(const v1::JobSpec& job, int64_t dim) {
  const ConsistencyRule consistency = ConsistencyOf(job);
  if (consistency.cached_rows == 0) return std::nullopt;
  const bool ssp = consistency.mode == ConsistencyMode::kSsp;
  return RowCache::Options{
      .rows_max = consistency.cached_rows,
      .dim = dim,
      .by_floor = ssp,
      .bound = ssp ? consistency.staleness_bound : consistency.cached_iterations};
}

TaskBoard::Options BoardOptions(const v1::JobSpec& job) {
  const ConsistencyRule consistency = ConsistencyOf(job);
  return {.bsp = consistency.synchronous(),
          .slots = consistency.slots,
          .backups = consistency.backups,
          .batch_size = job.training().batch_size(),
          .evaluation_batch_size = EvaluationBatchSize(job)};
}

}  // namespace capstan::worker
