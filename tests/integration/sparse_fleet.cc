#include "tests/integration/sparse_fleet.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sparse/key_batch.h"
#include "common/sparse_models/model_of_job.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/at_once.h"

namespace capstan::testing {
namespace {

constexpr char kJob[] = "sparse-1";
constexpr uint64_t kSeed = 1;

Incarnation IncarnationOf(int rank) { return Incarnation(static_cast<uint64_t>(rank) + 1); }

void AddShard(int table, int shard, const Range& elements, int server, v1::RoutingTable* routing) {
  v1::ShardRoute& route = *routing->add_shards();
  route.set_table(table);
  route.set_shard(shard);
  route.set_element_begin(elements.begin);
  route.set_element_end(elements.end);
  route.set_server(server);
  route.set_term(1);
}

}  // namespace

struct SparseFleet::Batch {
  ExampleBatch examples;
  std::shared_ptr<const KeyBatch> keys;
  std::vector<uint32_t> places;
  SparseInput Input(const Worker& worker) const {
    return {.examples = examples,
            .draws = {},
            .places = places,
            .rows = worker.parameters[kRowsTable],
            .dense = worker.parameters[kDenseTable]};
  }
  worker::AllTableKeys table_keys(int64_t dim) const { return {{.batch = keys, .dim = dim}}; }
};

absl::StatusOr<std::unique_ptr<SparseFleet>> SparseFleet::Start(const Options& options) {
  std::unique_ptr<SparseFleet> fleet(new SparseFleet(options));
  CAPSTAN_RETURN_IF_ERROR(fleet->StartServers());
  CAPSTAN_RETURN_IF_ERROR(fleet->StartWorkers());
  return fleet;
}

absl::Status SparseFleet::StartServers() {
  v1::RoutingTable& routing = *assignment_.mutable_routing();
  for (int i = 0; i < options_.servers; ++i) {
    const std::string name = absl::StrCat("server-", i);
    const std::string folder = absl::StrCat(options_.folder, "/", name);
    std::filesystem::create_directories(folder);
    CAPSTAN_ASSIGN_OR_RETURN(auto server,
                             benchmark::LiveServer::Start(
                                 {.program = options_.program, .name = name, .folder = folder}));
    *routing.add_servers() = server->address();
    servers_.push_back(std::move(server));
  }
  const SparseShape shape = options_.make_model()->shape();
  assignment_.set_job_id(kJob);
  assignment_.set_seed(kSeed);
  for (const v1::TableSpec& table : MakeSparseTables(shape, options_.buckets)) {
    *assignment_.add_tables() = table;
  }
  *assignment_.mutable_optimizer() = options_.optimizer;
  *assignment_.mutable_consistency() = options_.consistency;
  routing.set_job_id(kJob);
  routing.set_generation(1);
  for (int32_t b = 0; b < options_.buckets; ++b) {
    AddShard(kRowsTable, b, {b, b + 1}, b % options_.servers, &routing);
  }
  AddShard(kDenseTable, 0, {0, shape.dense_count}, 0, &routing);
  assignment_.mutable_membership()->set_generation(1);
  for (int i = 0; i < options_.workers; ++i) {
    v1::Member& member = *assignment_.mutable_membership()->add_members();
    member.set_rank(i);
    member.set_incarnation(IncarnationOf(i).value());
    member.set_active(true);
  }
  for (const auto& server : servers_) CAPSTAN_RETURN_IF_ERROR(server->Assign(assignment_));
  return absl::OkStatus();
}

absl::Status SparseFleet::StartWorkers() {
  workers_.resize(static_cast<size_t>(options_.workers));
  for (int i = 0; i < options_.workers; ++i) {
    Worker& worker = workers_[static_cast<size_t>(i)];
    worker.model = options_.make_model();
    worker.parameters = {
        {}, std::vector<float>(static_cast<size_t>(worker.model->shape().dense_count))};
    worker::PushPullClient::Options options{
        .job = kJob, .rank = Rank(i), .incarnation = IncarnationOf(i)};
    options.bucket_bytes = {64 << 10};
    if (!options_.shared_memory) options.shared_memory_bytes = 0;
    worker.client = std::make_unique<worker::PushPullClient>(options, clock_);
    CAPSTAN_RETURN_IF_ERROR(worker.client->SetRouting(assignment_.routing()));
  }
  return absl::OkStatus();
}

absl::StatusOr<SparseFleet::Batch> SparseFleet::Pull(Worker& worker, ExampleBatch examples,
                                                     worker::PullMode mode) const {
  Batch batch{.examples = std::move(examples), .keys = nullptr, .places = {}};
  std::vector<uint64_t> keys;
  CAPSTAN_RETURN_IF_ERROR(worker.model->AppendKeys(batch.examples, {}, &keys));
  batch.keys =
      std::make_shared<const KeyBatch>(MakeKeyBatch(keys, options_.buckets, &batch.places));
  const int64_t dim = worker.model->shape().row_dim;
  worker.parameters[kRowsTable].resize(static_cast<size_t>(batch.keys->size() * dim));
  CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId pull,
                           worker.client->Pull(Iteration(worker.iteration), mode,
                                               &worker.parameters, batch.table_keys(dim)));
  CAPSTAN_RETURN_IF_ERROR(worker.client->Wait(pull).status());
  return batch;
}

absl::Status SparseFleet::TrainBatch(Worker& worker, ExampleBatch examples) const {
  CAPSTAN_ASSIGN_OR_RETURN(const Batch batch,
                           Pull(worker, std::move(examples), worker::PullMode::kTrain));
  const auto gradient = std::make_shared<worker::TableArrays>(worker.parameters);
  const SparseResult result = worker.model->Train(
      batch.Input(worker), std::max<int64_t>(batch.examples.count(), 1),
      absl::MakeSpan((*gradient)[kRowsTable]), absl::MakeSpan((*gradient)[kDenseTable]));
  worker.loss_sum += result.loss_sum;
  CAPSTAN_ASSIGN_OR_RETURN(
      const worker::OpId push,
      worker.client->Push(Iteration(worker.iteration++), {}, gradient, worker::PushStart::kNow,
                          batch.table_keys(worker.model->shape().row_dim)));
  return worker.client->Wait(push).status();
}

absl::StatusOr<double> SparseFleet::TrainEpoch(const ExampleBatch& examples) {
  const int64_t step = options_.batch_size * options_.workers;
  const auto train = [&](size_t w) -> absl::Status {
    Worker& worker = workers_[w];
    worker.loss_sum = 0;
    // As many batches as the others, the last of them perhaps empty: SSP counts them.
    for (int64_t all = 0; all < examples.count(); all += step) {
      const int64_t begin =
          std::min(all + static_cast<int64_t>(w) * options_.batch_size, examples.count());
      ExampleBatch part(examples.dense_columns());
      part.Append(examples, begin, std::min(begin + options_.batch_size, examples.count()));
      CAPSTAN_RETURN_IF_ERROR(TrainBatch(worker, std::move(part)));
    }
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(benchmark::RunAtOnce(workers_.size(), train));
  double loss_sum = 0;
  for (const Worker& worker : workers_) loss_sum += worker.loss_sum;
  return loss_sum / static_cast<double>(examples.count());
}

absl::StatusOr<std::vector<float>> SparseFleet::Predict(const ExampleBatch& examples) {
  Worker& worker = workers_[0];
  std::vector<float> outputs(static_cast<size_t>(examples.count()));
  for (int64_t begin = 0; begin < examples.count(); begin += options_.batch_size) {
    const int64_t end = std::min(begin + options_.batch_size, examples.count());
    ExampleBatch part(examples.dense_columns());
    part.Append(examples, begin, end);
    CAPSTAN_ASSIGN_OR_RETURN(const Batch batch,
                             Pull(worker, std::move(part), worker::PullMode::kSnapshot));
    worker.model->Predict(batch.Input(worker),
                          absl::MakeSpan(outputs).subspan(static_cast<size_t>(begin),
                                                          static_cast<size_t>(end - begin)));
  }
  return outputs;
}

}  // namespace capstan::testing
