#include "tests/simulation/world/workload.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/initial_rows.h"
#include "common/model/initial_values.h"
#include "common/random/philox.h"
#include "common/sparse/key_batch.h"

namespace capstan::sim {
namespace {

constexpr uint64_t kSamplesStream = 0x53414D504C45;
constexpr int kIntegerMax = 8;  // Largest element of a sample's gradient.

void SetRowLifetime(const RowLifetime& lifetime, v1::SparseSpec* spec) {
  spec->set_admit_after(lifetime.admit_after);
  spec->set_admission_keys(lifetime.admission_keys);
  spec->set_admit_probability(lifetime.admit_probability);
  spec->set_evict_after_updates(lifetime.evict_after_updates);
  spec->set_ttl_seconds(lifetime.ttl_seconds);
  spec->set_rows_max(lifetime.rows_max);
}

v1::TableSpec MakeTable(int index, const JobOptions& job) {
  v1::Initializer initializer;
  if (job.mode == ConsistencyMode::kBsp && job.backups == 0) {
    initializer.set_uniform_bound(0.5f);
  } else {
    initializer.set_constant(3.0f);
  }
  v1::TableSpec table;
  table.set_table(index);
  const bool averages = index == 1 && job.mode == ConsistencyMode::kBsp;
  table.set_name(index == 0 ? "parameters" : averages ? "statistics" : absl::StrCat("w", index));
  table.set_rule(averages ? v1::MOVING_AVERAGE : v1::OPTIMIZER);
  if (index == 0 && job.sparse_buckets > 0) {
    table.set_elements(job.sparse_buckets);
    table.mutable_sparse()->set_dim(static_cast<int32_t>(job.sparse_dim));
    table.mutable_sparse()->set_buckets(job.sparse_buckets);
    *table.mutable_sparse()->mutable_initializer() = initializer;
    SetRowLifetime(job.row_lifetime, table.mutable_sparse());
    table.mutable_sparse()->set_memory_bytes(job.sparse_memory);
    return table;
  }
  table.set_elements(job.table_elements[static_cast<size_t>(index)]);
  v1::TensorSpec* tensor = table.add_tensors();
  tensor->set_name(absl::StrCat("t", index));
  tensor->add_shape(table.elements());
  if (averages) tensor->set_momentum(0.1f);
  *tensor->mutable_initializer() = initializer;
  return table;
}

std::shared_ptr<const KeyBatch> NamedBatch(const std::vector<uint64_t>& keys, int32_t buckets) {
  KeyBatch batch = MakeKeyBatch(keys, buckets);
  NameLists(&batch);
  return std::make_shared<const KeyBatch>(std::move(batch));
}

worker::AllTableKeys MakeKeys(const JobOptions& job) {
  if (job.sparse_buckets == 0) return {};
  std::vector<uint64_t> keys;
  for (int64_t i = 0; i < job.table_elements[0] / job.sparse_dim; ++i) {
    keys.push_back(static_cast<uint64_t>(i));
  }
  return {{.batch = NamedBatch(keys, job.sparse_buckets), .dim = job.sparse_dim}};
}

void SetOptimizer(const JobOptions& options, v1::Optimizer* optimizer) {
  const bool whole = options.mode != ConsistencyMode::kBsp || options.backups > 0;
  optimizer->set_learning_rate(whole ? 1.0f : 0.05f);
  switch (options.optimizer) {
    case 1:
      optimizer->mutable_momentum();
      break;
    case 2:
      optimizer->mutable_adam();
      break;
    case 3:
      optimizer->mutable_adagrad();
      break;
    default:
      optimizer->mutable_sgd();
      break;
  }
}

v1::JobSpec MakeSpec(const JobOptions& job) {
  v1::JobSpec spec;
  spec.set_name("sim");
  spec.mutable_training()->set_epochs(job.epochs);
  spec.mutable_training()->set_batch_size(static_cast<int32_t>(job.batch_size));
  spec.mutable_training()->set_slots(job.slots);
  spec.mutable_training()->set_seed(job.seed);
  SetOptimizer(job, spec.mutable_optimizer());
  v1::Consistency* consistency = spec.mutable_consistency();
  if (job.mode == ConsistencyMode::kBsp) consistency->mutable_bsp()->set_backups(job.backups);
  if (job.mode == ConsistencyMode::kSsp) {
    consistency->mutable_ssp()->set_staleness_bound(job.staleness_bound);
    consistency->mutable_ssp()->set_cached_rows(job.cached_rows);
  }
  if (job.mode == ConsistencyMode::kAsp) {
    consistency->mutable_asp()->set_cached_rows(job.cached_rows);
    consistency->mutable_asp()->set_cached_iterations(job.cached_iterations);
  }
  if (job.sparse_buckets > 0) spec.mutable_model()->mutable_sparse();
  if (job.own_operations > 0) spec.mutable_program()->set_own_pace(true);
  v1::Resources* resources = spec.mutable_resources();
  resources->set_workers(job.workers);
  resources->set_servers(job.servers);
  resources->set_replicas(job.replicas);
  spec.set_durability(job.log ? v1::LOG : v1::NONE);
  spec.mutable_checkpoints()->set_every_iterations(job.checkpoint_iterations);
  spec.mutable_checkpoints()->set_keep(job.checkpoints_kept);
  return spec;
}

// A folder of this job alone.
std::string FolderOf(absl::string_view what, const JobOptions& job) {
  return job.number == 1 ? std::string(what) : absl::StrCat(what, "-", job.number);
}

scheduler::JobPlan MakePlan(const JobOptions& job) {
  scheduler::JobPlan plan;
  plan.id = absl::StrCat("sim-", job.number);
  plan.unique_id = absl::StrCat("5eed-", job.number);
  plan.consistency.mode = job.mode;
  plan.workers = job.workers;
  plan.servers = job.servers;
  plan.max_restarts = job.max_restarts;
  plan.worker_wait = job.worker_wait;
  plan.epochs = job.epochs;
  plan.batch_size = job.batch_size;
  plan.consistency.slots = job.slots;
  plan.consistency.backups = job.backups;
  plan.train_count = job.train_count;
  plan.test_count = job.test_count;
  plan.objective = Objective::kClicks;
  plan.own_pace = job.own_operations > 0;
  plan.ttl_seconds = job.row_lifetime.ttl_seconds;
  plan.export_path = FolderOf("export", job);
  plan.replicas = job.replicas;
  plan.log = job.log;
  plan.server_wait = job.server_wait;
  plan.checkpoint_iterations = job.checkpoint_iterations;
  plan.checkpoints_kept = job.checkpoints_kept;
  plan.checkpoint_folder = FolderOf("checkpoints", job);
  plan.folders = {.output = plan.export_path, .checkpoints = plan.checkpoint_folder};
  return plan;
}

}  // namespace

Workload::Workload(const JobOptions& options) : options_(options), keys_(MakeKeys(options)) {
  auto job = std::make_shared<scheduler::AdmittedJob>();
  job->plan = MakePlan(options);
  job->spec = MakeSpec(options);
  for (size_t i = 0; i < options.table_elements.size(); ++i) {
    job->tables.push_back(MakeTable(static_cast<int>(i), options));
    job->plan.tables.emplace_back(job->tables[i].elements(), job->tables[i].has_sparse());
  }
  job->mode = "sim";
  job->output_directory = job->plan.export_path;
  job_ = std::move(job);
}

Arrays Workload::InitialValues() const {
  Arrays values = Zeros();
  for (size_t t = 0; t < values.size(); ++t) {
    if (!tables()[t].has_sparse()) {
      FillInitialValues(tables()[t], options_.seed, 0, absl::MakeSpan(values[t]));
      continue;
    }
    const int64_t dim = keys_[t].dim;
    const RowInitializer rows(tables()[t].sparse().initializer(), options_.seed,
                              TableId(static_cast<int32_t>(t)), dim);
    const std::vector<uint64_t>& keys = keys_[t].batch->keys;
    std::vector<float*> out;
    for (size_t i = 0; i < keys.size(); ++i) out.push_back(values[t].data() + out.size() * dim);
    rows.Fill(keys, out);
  }
  return values;
}

Arrays Workload::Zeros() const {
  Arrays values;
  for (const int64_t elements : options_.table_elements) {
    values.emplace_back(static_cast<size_t>(elements));
  }
  return values;
}

Range Workload::PartOf(const ShardKey& shard, const Range& elements) const {
  return worker::PartOf({.key = shard, .elements = elements}, keys_);
}

Workload::Named Workload::NamedRows(std::shared_ptr<const Arrays> gradient) const {
  // Momentum and Adam move rows without a gradient, too, in the reference trainer, if it does not
  // know of rows.
  const bool moves_all = options_.optimizer == 1 || options_.optimizer == 2;
  const bool all = moves_all && !rows_come_and_go();
  if (keys_.empty() || all) return {.values = std::move(gradient), .keys = keys_};
  const int64_t dim = keys_[0].dim;
  std::vector<uint64_t> keys;
  auto values = std::make_shared<Arrays>(*gradient);
  (*values)[0].clear();
  for (size_t row = 0; row < keys_[0].batch->keys.size(); ++row) {
    const auto begin = (*gradient)[0].begin() + static_cast<int64_t>(row) * dim;
    if (std::all_of(begin, begin + dim, [](float g) { return g == 0.0f; })) continue;
    keys.push_back(keys_[0].batch->keys[row]);
    (*values)[0].insert((*values)[0].end(), begin, begin + dim);
  }
  const int32_t buckets = options_.sparse_buckets;
  return {.values = std::move(values), .keys = {{.batch = NamedBatch(keys, buckets), .dim = dim}}};
}

// About half of a sparse table's rows are not in a batch.
bool Workload::Touches(const Batch& batch, int table, int64_t element) const {
  if (table != 0 || keys_.empty() || options_.backups > 0) return true;
  const auto row = static_cast<uint64_t>(element / keys_[0].dim);
  return MixKey(MixKey(options_.seed, static_cast<uint64_t>(batch.positions.begin)), row) % 2 == 0;
}

float Workload::SlotGradient(Iteration iteration, int64_t slot) {
  return static_cast<float>((iteration.value() % 2 == 0 ? 1 : 256) << slot);
}

float Workload::SampleTerm(const Batch& batch, int64_t position, int table, int64_t element) const {
  const uint64_t sample =
      MixKey(MixKey(options_.seed, kSamplesStream),
             static_cast<uint64_t>(batch.epoch.value()) << 32 | static_cast<uint64_t>(position));
  const uint64_t word =
      MixKey(sample, static_cast<uint64_t>(table) << 32 | static_cast<uint64_t>(element));
  if (!reads_parameters())
    return static_cast<float>(static_cast<int>(word % (2 * kIntegerMax + 1))) -
           static_cast<float>(kIntegerMax);
  return 2.0f * ToUnitFloat(static_cast<uint32_t>(word)) - 1.0f;
}

float Workload::Forward(const Batch& batch, const Arrays& parameters) const {
  if (!reads_parameters()) return 0.0f;
  float sum = 0.0f;
  for (const std::vector<float>& table : parameters) {
    for (size_t i = 0; i < table.size(); ++i) {
      sum += table[i] * static_cast<float>(1 + (i + static_cast<size_t>(batch.slots.begin)) % 7);
    }
  }
  return sum / (1.0f + std::fabs(sum));
}

void Workload::Backward(const Batch& batch, float forward, int64_t samples,
                        const Arrays& parameters, int table, int64_t begin, int64_t end,
                        Arrays* gradient) const {
  const auto t = static_cast<size_t>(table);
  for (int64_t i = begin; i < end; ++i) {
    const auto e = static_cast<size_t>(i);
    float sum = 0.0f;
    if (!Touches(batch, table, i)) {
      (*gradient)[t][e] = 0.0f;
      continue;
    }
    if (options_.backups > 0) {
      (*gradient)[t][e] = SlotGradient(batch.iteration, batch.slots.begin);
      continue;
    }
    for (int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
      const float term = SampleTerm(batch, p, table, i);
      sum += reads_parameters() ? term + 0.5f * forward + 0.1f * parameters[t][e] : term;
    }
    (*gradient)[t][e] = reads_parameters() ? sum / static_cast<float>(samples) : sum;
  }
}

}  // namespace capstan::sim
