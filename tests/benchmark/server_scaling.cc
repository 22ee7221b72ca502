// The gain of a server from more cores: measures the updates of one job, whose messages come on as
// many connections as there are threads.
//
//   server_scaling [--threads=2] [--json]
//
// Whole messages are pushed into the job that the daemon holds, in memory: no network, no second
// process that would take a core. Each thread is a worker of its own (ASP).
//   dense    16 shards of 4 MiB, Adam: the gain over one thread, beside that of the rule alone
//   sparse   2,000,000 rows of 16 in 64 buckets, Adagrad: 8,192 keys a message; over one thread
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/status/status_macros.h"
#include "common/time/clock.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/job/held_job.h"
#include "server/optimizer/optimizer.h"
#include "tests/benchmark/at_once.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr double kDenseGoal = 0.9;   // Part of what the rule alone gains.
constexpr double kSparseGoal = 1.7;  // Speed with two threads divided by that with one.
constexpr int64_t kShardElements = 1 << 20;
constexpr int32_t kShards = 16;
constexpr int32_t kBuckets = 64;
constexpr int32_t kDim = 16;
constexpr int64_t kRows = 2'000'000;
constexpr int64_t kRowsPerFill = 200'000;
constexpr int32_t kFillingRank = 1000;
constexpr int64_t kKeysPerMessage = 8192;
constexpr int kMessages =
    32;  // Messages of a thread, with keys of their own, sent again and again.
constexpr int64_t kPushesPerOperation = 8;

struct Flags {
  ReportFlags report;
  int threads = 2;
};

v1::TableSpec DenseTable() {
  v1::TableSpec table;
  table.set_name("dense");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(kShards * kShardElements);
  v1::TensorSpec* const tensor = table.add_tensors();
  tensor->set_name("weight");
  tensor->add_shape(table.elements());
  tensor->mutable_initializer()->set_constant(0.5f);
  return table;
}

v1::TableSpec SparseTable() {
  v1::TableSpec table;
  table.set_name("rows");
  table.set_rule(v1::OPTIMIZER);
  table.set_elements(kBuckets);
  table.mutable_sparse()->set_dim(kDim);
  table.mutable_sparse()->set_buckets(kBuckets);
  table.mutable_sparse()->mutable_initializer()->set_constant(0.5f);
  return table;
}

// A job with one table, all of whose shards are here.
absl::StatusOr<std::shared_ptr<server::HeldJob>> MakeJob(const v1::TableSpec& table,
                                                         server::OptimizerKind rule) {
  static const SteadyClock clock;
  server::JobTablesConfig config;
  config.tables = {table};
  config.job = "scaling-1";
  config.optimizer.kind = rule;
  config.optimizer.learning_rate = 1e-4f;
  config.consistency.mode = ConsistencyMode::kAsp;
  CAPSTAN_ASSIGN_OR_RETURN(const auto factory, server::ShardFactory::Make(config));
  auto job = std::make_shared<server::HeldJob>(
      server::HeldJob::Options{
          .job = "scaling-1", .node = "server-1", .incarnation = Incarnation(1), .clock = &clock},
      factory);
  v1::RoutingTable routing;
  routing.set_generation(1);
  v1::ServerAddress* const self = routing.add_servers();
  self->set_node_id("server-1");
  self->set_incarnation(1);
  const bool is_sparse = table.has_sparse();
  const int64_t elements = is_sparse ? 1 : kShardElements;
  for (int32_t shard = 0; shard < (is_sparse ? kBuckets : kShards); ++shard) {
    v1::ShardRoute* const route = routing.add_shards();
    route->set_shard(shard);
    route->set_element_begin(shard * elements);
    route->set_element_end((shard + 1) * elements);
    route->set_term(1);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const auto orders, job->assignment().MissingShards(routing, {}));
  std::vector<server::MadeShard> made;
  for (const server::ShardOrder& order : orders) {
    CAPSTAN_ASSIGN_OR_RETURN(server::TableShard initial, factory->Initial(order.shard));
    made.push_back({.order = order, .shard = std::move(initial)});
  }
  job->assignment().SetRouting(routing, std::move(made));
  return job;
}

absl::Cord BytesOf(const void* data, size_t bytes) {
  return absl::Cord(absl::string_view(static_cast<const char*>(data), bytes));
}

// A worker whose messages are made before they are timed.
struct Worker {
  std::shared_ptr<server::HeldJob> job;
  std::vector<PushMessage> messages;
  uint64_t sequence = 0;
  double bytes = 0;  // Bytes of pushed values and keys.

  PushMessage Empty(int32_t rank) const {
    PushMessage message;
    message.head.mutable_caller()->set_job_id("scaling-1");
    message.head.mutable_caller()->set_rank(rank);
    message.head.mutable_caller()->set_incarnation(1);
    message.head.mutable_caller()->set_routing_generation(1);
    return message;
  }
  void AddShard(int32_t shard, absl::Cord values, PushMessage* message) const {
    v1::ShardPush* const push = message->head.add_shards();
    push->set_shard(shard);
    push->set_value_type(v1::FLOAT32);
    message->values.push_back(std::move(values));
  }

  absl::Status PushNext() {
    PushMessage& message = messages[static_cast<size_t>(sequence) % messages.size()];
    ++sequence;
    for (v1::ShardPush& shard : *message.head.mutable_shards()) {
      shard.set_sequence(sequence);
      shard.set_sequence_low_water(sequence);
    }
    for (const absl::Cord& values : message.values) bytes += static_cast<double>(values.size());
    absl::Status result = absl::InternalError("a push of a job without replicas waits");
    v1::PushResponse response;
    job->calls().Push(message, &response, [&](const absl::Status& status) { result = status; });
    return result;
  }
};

Worker DenseWorker(std::shared_ptr<server::HeldJob> job, int32_t rank) {
  Worker worker{.job = std::move(job)};
  const std::vector<float> gradient(kShardElements, 0.01f);
  const absl::Cord values = BytesOf(gradient.data(), gradient.size() * sizeof(float));
  PushMessage message = worker.Empty(rank);
  for (int32_t shard = 0; shard < kShards; ++shard) worker.AddShard(shard, values, &message);
  worker.messages.push_back(std::move(message));
  return worker;
}

PushMessage RowsOf(const Worker& worker, int32_t rank, const std::vector<uint64_t>& keys) {
  PushMessage message = worker.Empty(rank);
  const KeyBatch batch = MakeKeyBatch(keys, kBuckets);
  for (int32_t bucket = 0; bucket < kBuckets; ++bucket) {
    const Range range = batch.InBucket(bucket);
    if (range.size() == 0) continue;
    const auto count = static_cast<size_t>(range.size());
    absl::Cord values = BytesOf(batch.keys.data() + range.begin, count * sizeof(uint64_t));
    const std::vector<float> rows(count * kDim, 0.01f);
    values.Append(BytesOf(rows.data(), rows.size() * sizeof(float)));
    worker.AddShard(bucket, std::move(values), &message);
  }
  return message;
}

Worker SparseWorker(std::shared_ptr<server::HeldJob> job, int32_t rank) {
  Worker worker{.job = std::move(job)};
  for (int i = 0; i < kMessages; ++i) {
    std::vector<uint64_t> keys(kKeysPerMessage);
    const auto stream = static_cast<uint64_t>(rank) * kMessages + static_cast<uint64_t>(i);
    for (size_t k = 0; k < keys.size(); ++k) {
      keys[k] = PhiloxWord(stream, k) % static_cast<uint64_t>(kRows);
    }
    worker.messages.push_back(RowsOf(worker, rank, keys));
  }
  return worker;
}

absl::Status Fill(const std::shared_ptr<server::HeldJob>& job) {
  Worker worker{.job = job};
  for (int64_t begin = 0; begin < kRows; begin += kRowsPerFill) {
    std::vector<uint64_t> keys(kRowsPerFill);
    std::iota(keys.begin(), keys.end(), static_cast<uint64_t>(begin));
    worker.messages = {RowsOf(worker, kFillingRank, keys)};
    CAPSTAN_RETURN_IF_ERROR(worker.PushNext());
  }
  return absl::OkStatus();
}

// An operation: some pushes of each of the first `threads` workers.
Contestant PushesOf(const std::string& name, std::vector<Worker>* workers, int threads) {
  return {.name = name, .run = [=](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer(ProcessorSeconds);
            const auto pushed = [&] {
              double bytes = 0;
              for (const Worker& worker : *workers) bytes += worker.bytes;
              return bytes;
            };
            for (int64_t i = 0; i < count; ++i) {
              const double before = pushed();
              timer.Begin();
              CAPSTAN_RETURN_IF_ERROR(RunAtOnce(static_cast<size_t>(threads), [&](size_t which) {
                Worker& worker = (*workers)[which];
                absl::Status status;
                for (int64_t n = 0; n < kPushesPerOperation; ++n) status.Update(worker.PushNext());
                return status;
              }));
              timer.End(pushed() - before);
            }
            return timer.Take();
          }};
}

struct AdamArrays {
  std::vector<float> weights = std::vector<float>(kShards * kShardElements, 0.5f);
  std::vector<float> gradient = std::vector<float>(kShardElements, 0.01f);
  std::vector<float> first = std::vector<float>(kShards * kShardElements, 0.1f);
  std::vector<float> second = std::vector<float>(kShards * kShardElements, 0.1f);
};

// The same updates without a server: each thread has its part of the shards.
Contestant RuleAlone(const std::string& name, AdamArrays* arrays, int threads) {
  server::OptimizerConfig config;
  config.kind = server::OptimizerKind::kAdam;
  config.learning_rate = 1e-4f;
  return {.name = name, .run = [=](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer(ProcessorSeconds);
            for (int64_t i = 0; i < count; ++i) {
              timer.Begin();
              CAPSTAN_RETURN_IF_ERROR(RunAtOnce(static_cast<size_t>(threads), [&](size_t which) {
                for (auto shard = static_cast<int64_t>(which); shard < kShards; shard += threads) {
                  const int64_t at = shard * kShardElements;
                  float* const state[] = {arrays->first.data() + at, arrays->second.data() + at};
                  float* const weights = arrays->weights.data() + at;
                  server::Apply(config, 100, kShardElements, weights, arrays->gradient.data(),
                                absl::MakeConstSpan(state, 2), weights);
                }
                return absl::OkStatus();
              }));
              timer.End(static_cast<double>(kShards * kShardElements) * sizeof(float));
            }
            return timer.Take();
          }};
}

Series GainOf(const std::string& name, const Series& many, const Series& one) {
  Series gain{.name = name};
  for (size_t i = 0; i < many.rates.size(); ++i) {
    gain.rates.push_back(many.rates[i] / one.rates[i]);
    gain.processor.push_back(many.processor[i] / one.processor[i]);
  }
  return gain;
}

absl::Status CompareDense(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto job, MakeJob(DenseTable(), server::OptimizerKind::kAdam));
  std::vector<Worker> workers;
  for (int32_t i = 0; i < flags.threads; ++i) workers.push_back(DenseWorker(job, i));
  AdamArrays arrays;
  const std::string many = absl::StrCat(flags.threads, " threads");
  CAPSTAN_ASSIGN_OR_RETURN(
      const std::vector<Series> series,
      MeasureInTurn({PushesOf(many, &workers, flags.threads), PushesOf("1 thread", &workers, 1),
                     RuleAlone("Adam alone, " + many, &arrays, flags.threads),
                     RuleAlone("Adam alone, 1 thread", &arrays, 1)},
                    flags.report.turns));
  report->Add(
      {.measure = "updates of one job, dense, Adam", .series = series, .goals = {0, 0, 0, 0}});
  report->Add({.measure = "the same: gain of " + many + " over 1",
               .series = {GainOf("server", series[0], series[1]),
                          GainOf("Adam alone", series[2], series[3])},
               .goals = {0, kDenseGoal}});
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<server::HeldJob>> MakeSparseJob() {
  CAPSTAN_ASSIGN_OR_RETURN(auto job, MakeJob(SparseTable(), server::OptimizerKind::kAdagrad));
  CAPSTAN_RETURN_IF_ERROR(Fill(job));
  return job;
}

// Beside it: as many jobs as threads, which share nothing but the machine.
absl::Status CompareSparse(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto job, MakeSparseJob());
  std::vector<Worker> workers, apart;
  for (int32_t i = 0; i < flags.threads; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(auto own, MakeSparseJob());
    workers.push_back(SparseWorker(job, i));
    apart.push_back(SparseWorker(std::move(own), i));
  }
  CAPSTAN_ASSIGN_OR_RETURN(
      std::vector<Series> series,
      MeasureInTurn({PushesOf(absl::StrCat(flags.threads, " threads"), &workers, flags.threads),
                     PushesOf("1 thread", &workers, 1),
                     PushesOf(absl::StrCat(flags.threads, " jobs"), &apart, flags.threads)},
                    flags.report.turns));
  const double goal = flags.threads == 2 ? kSparseGoal : 0;
  report->Add({.measure = "updates of one job, sparse, Adagrad",
               .series = std::move(series),
               .goals = {0, goal, 0}});
  return absl::OkStatus();
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  CAPSTAN_RETURN_IF_ERROR(CompareDense(flags, report));
  return CompareSparse(flags, report);
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures the updates of one job on several cores against one.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--threads", flags.threads, "Connections that push at the same time")
      .Between(2, 64);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) { return capstan::benchmark::Main(argc, argv); }
