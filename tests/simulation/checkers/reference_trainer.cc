#include "tests/simulation/checkers/reference_trainer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/sparse/key_batch.h"
#include "common/types/ids.h"
#include "common/wire/wire_values.h"
#include "server/optimizer/config/optimizer_from_proto.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/testing/reference.h"
#include "server/store/sparse/sparse_rows.h"
#include "server/store/sparse/sparse_rows_config.h"

namespace capstan::sim {
namespace {

// The sum of slots [begin, end), halved at the largest power of two below its size: the tree of
// server/core/consistency/slot_tree.h, written down once more.
Arrays SumSlots(const std::vector<Arrays>& slots, size_t begin, size_t end) {
  if (end - begin == 1) return slots[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  Arrays sum = SumSlots(slots, begin, begin + half);
  const Arrays right = SumSlots(slots, begin + half, end);
  for (size_t t = 0; t < sum.size(); ++t) {
    for (size_t i = 0; i < sum[t].size(); ++i) sum[t][i] += right[t][i];
  }
  return sum;
}

struct Table {
  server::OptimizerConfig rule;
  std::vector<std::vector<float>> state;
};

std::vector<Table> MakeTables(const Workload& workload) {
  std::vector<Table> tables;
  const Arrays zeros = workload.Zeros();
  for (const v1::TableSpec& spec : workload.tables()) {
    Table table;
    if (spec.rule() == v1::MOVING_AVERAGE) {
      table.rule.kind = server::OptimizerKind::kMovingAverage;
      table.rule.momentum = spec.tensors(0).momentum();
    } else {
      table.rule = server::OptimizerFromProto(workload.job()->spec.optimizer()).value();
    }
    for (int slot = 0; slot < server::StateSlots(table.rule); ++slot) {
      table.state.emplace_back(zeros[tables.size()].size(), server::InitialState(table.rule, slot));
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

void Update(Table& table, int64_t step, const std::vector<float>& gradient,
            std::vector<float>* values) {
  std::vector<float*> state;
  for (std::vector<float>& slot : table.state) state.push_back(slot.data());
  server::ApplyReference(table.rule, step, static_cast<int64_t>(values->size()), values->data(),
                         gradient.data(), absl::MakeSpan(state), values->data());
}

// The rows of table 0 where rows come and go: one copy of each bucket, without messages, snapshots
// or records. What makes them come and go is the server's own code, which its unit tests compare
// with a model; here it shows whether every copy has had the same updates.
class LivingRows {
 public:
  explicit LivingRows(const Workload& workload)
      : batch_(*workload.keys()[0].batch), dim_(workload.keys()[0].dim) {
    const v1::TableSpec& table = workload.tables()[0];
    const v1::JobSpec& job = workload.job()->spec;
    server::SparseRows::Config config = server::SparseRowsConfig(
        table.sparse(), TableId(0), job.training().seed(),
        server::OptimizerFromProto(job.optimizer()).value(), /*disks=*/nullptr);
    config.memory_bytes = 0;  // It changes nothing.
    for (int32_t b = 0; b < table.sparse().buckets(); ++b) {
      buckets_.push_back(server::SparseRows::Make(config).value());
    }
  }

  // Updates the rows that a slot's gradient names, that is, in which it is not 0.
  void Update(int64_t step, const std::vector<Arrays>& slots, const std::vector<float>& sum,
              std::vector<float>* values) {
    for (size_t b = 0; b < buckets_.size(); ++b) {
      std::vector<uint64_t> keys;
      std::vector<float> gradient;
      for (int64_t row = batch_.bucket_begin[b]; row < batch_.bucket_begin[b + 1]; ++row) {
        if (!IsNamed(slots, row)) continue;
        keys.push_back(batch_.keys[static_cast<size_t>(row)]);
        gradient.insert(gradient.end(), sum.begin() + row * dim_, sum.begin() + (row + 1) * dim_);
      }
      buckets_[b].Update(step, keys, WireValues(gradient)).IgnoreError();
      const std::vector<uint64_t> all(batch_.keys.begin() + batch_.bucket_begin[b],
                                      batch_.keys.begin() + batch_.bucket_begin[b + 1]);
      buckets_[b].Read(all, values->data() + batch_.bucket_begin[b] * dim_).IgnoreError();
    }
  }

 private:
  bool IsNamed(const std::vector<Arrays>& slots, int64_t row) const {
    return std::any_of(slots.begin(), slots.end(), [&](const Arrays& slot) {
      const auto begin = slot[0].begin() + row * dim_;
      return std::any_of(begin, begin + dim_, [](float g) { return g != 0.0f; });
    });
  }

  const KeyBatch& batch_;
  const int64_t dim_;
  std::vector<server::SparseRows> buckets_;
};

}  // namespace

ReferenceResult TrainReference(const Workload& workload) {
  const JobOptions& job = workload.options();
  ReferenceResult result{.tables = workload.InitialValues(), .iterations = 0};
  std::vector<Table> tables = MakeTables(workload);
  std::optional<LivingRows> rows;
  if (workload.rows_come_and_go()) rows.emplace(workload);
  const int64_t per_iteration = job.slots * job.batch_size;
  for (int epoch = 0; epoch < job.epochs; ++epoch) {
    for (int64_t first = 0; first < job.train_count; first += per_iteration) {
      const int64_t end = std::min(first + per_iteration, job.train_count);
      std::vector<Arrays> slots;
      for (int slot = 0; slot < job.slots; ++slot) {
        const int64_t begin = std::min(first + slot * job.batch_size, end);
        const Batch batch{.epoch = Epoch(epoch),
                          .iteration = Iteration(result.iterations),
                          .slots = {slot, slot + 1},
                          .positions = {begin, std::min(begin + job.batch_size, end)}};
        Arrays gradient = workload.Zeros();
        const float forward = workload.Forward(batch, result.tables);
        for (size_t t = 0; t < gradient.size(); ++t) {
          workload.Backward(batch, forward, end - first, result.tables, static_cast<int>(t), 0,
                            static_cast<int64_t>(gradient[t].size()), &gradient);
        }
        slots.push_back(std::move(gradient));
      }
      const Arrays sum = SumSlots(slots, 0, slots.size());
      for (size_t t = 0; t < tables.size(); ++t) {
        if (t == 0 && rows.has_value()) {
          rows->Update(result.iterations, slots, sum[t], &result.tables[t]);
        } else {
          Update(tables[t], result.iterations, sum[t], &result.tables[t]);
        }
      }
      ++result.iterations;
    }
  }
  return result;
}

}  // namespace capstan::sim
