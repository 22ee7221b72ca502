#include "common/job/spec/program_tables.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/model_plan.h"
#include "common/model/tables.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace capstan {
namespace {

constexpr float kInitialStd = 0.01f;

// Returns a dense table of the tensors for which `belongs` is true; nothing if there are none.
template <typename Belongs>
std::optional<v1::TableSpec> TableOf(
    size_t table, const std::string& name, v1::UpdateRule rule,
    const google::protobuf::RepeatedPtrField<v1::Program::Tensor>& tensors,
    const Belongs& belongs) {
  std::vector<PlannedTensor> planned;
  int64_t end = 0;
  for (const v1::Program::Tensor& tensor : tensors) {
    if (!belongs(tensor)) continue;
    PlannedTensor& plan = planned.emplace_back();
    plan.name = tensor.name();
    plan.shape.assign(tensor.shape().begin(), tensor.shape().end());
    plan.offset = end;
    plan.count = 1;
    for (const int64_t size : plan.shape) plan.count *= size;
    plan.momentum = 1.0f;  // An average becomes what was pushed for it.
    end += plan.count;
  }
  if (planned.empty()) return std::nullopt;
  return MakeTable(static_cast<int>(table), name.c_str(), rule, planned, end);
}

void SetOptimizer(const v1::Program& program, int number, v1::TableSpec* table) {
  if (number > 0) *table->mutable_optimizer() = program.optimizers(number - 1);
}

// Own pace: a table for each of the parameters.
void AddTables(const v1::Program& program, std::vector<v1::TableSpec>* tables) {
  for (const v1::Program::Tensor& each : program.parameters()) {
    auto table = TableOf(tables->size(), each.name(), v1::OPTIMIZER, program.parameters(),
                         [&each](const v1::Program::Tensor& tensor) { return &tensor == &each; });
    SetOptimizer(program, each.optimizer(), &*table);
    tables->push_back(*std::move(table));
  }
}

// A table for each optimizer that parameters have.
void AddTablesByOptimizer(const v1::Program& program, std::vector<v1::TableSpec>* tables) {
  for (int number = 0; number <= program.optimizers_size(); ++number) {
    auto table = TableOf(
        tables->size(), number == 0 ? "parameters" : absl::StrCat("parameters-", number),
        v1::OPTIMIZER, program.parameters(),
        [number](const v1::Program::Tensor& tensor) { return tensor.optimizer() == number; });
    if (!table.has_value()) continue;
    SetOptimizer(program, number, &*table);
    tables->push_back(*std::move(table));
  }
}

}  // namespace

bool UpdatesRows(const v1::JobSpec& job, int number) {
  const auto has_it = [number](const v1::Program::Rows& rows) {
    return rows.optimizer() == number;
  };
  return job.model().has_sparse() ||
         std::any_of(job.program().rows().begin(), job.program().rows().end(), has_it);
}

std::vector<v1::TableSpec> ProgramTables(const v1::Program& program) {
  std::vector<v1::TableSpec> tables;
  if (program.own_pace()) {
    AddTables(program, &tables);
  } else {
    AddTablesByOptimizer(program, &tables);
  }
  if (auto table = TableOf(tables.size(), "statistics", v1::MOVING_AVERAGE, program.averages(),
                           [](const v1::Program::Tensor&) { return true; })) {
    tables.push_back(*std::move(table));
  }
  for (const v1::Program::Rows& rows : program.rows()) {
    const int32_t buckets = rows.has_buckets() ? rows.buckets() : kRowBucketsDefault;
    v1::TableSpec table = MakeRowsTable(static_cast<int>(tables.size()), rows.name(), rows.dim(),
                                        buckets, rows.lifetime());
    table.mutable_sparse()->mutable_initializer()->set_normal_std(
        rows.has_initial_std() ? rows.initial_std() : kInitialStd);
    SetOptimizer(program, rows.optimizer(), &table);
    tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace capstan
