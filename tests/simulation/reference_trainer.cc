#include "tests/simulation/reference_trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/optimizer/optimizer.h"
#include "server/optimizer/optimizer_from_proto.h"
#include "server/optimizer/reference.h"

namespace capstan::sim {
namespace {

// The sum of slots [begin, end), halved at the largest power of two below its size: the tree of
// server/core/slot_tree.h, written down once more.
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

}  // namespace

ReferenceResult TrainReference(const Workload& workload) {
  const JobOptions& job = workload.options();
  ReferenceResult result{.tables = workload.InitialValues(), .iterations = 0};
  std::vector<Table> tables = MakeTables(workload);
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
        Update(tables[t], result.iterations, sum[t], &result.tables[t]);
      }
      ++result.iterations;
    }
  }
  return result;
}

}  // namespace capstan::sim
