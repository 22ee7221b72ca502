#include "common/job/program_tables.h"

#include <cstdint>

#include "common/model/model_plan.h"
#include "common/model/tables.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace capstan {
namespace {

v1::TableSpec TableOf(int table, const char* name, v1::UpdateRule rule,
                      const google::protobuf::RepeatedPtrField<v1::Program::Tensor>& tensors) {
  std::vector<PlannedTensor> planned;
  int64_t end = 0;
  for (const v1::Program::Tensor& tensor : tensors) {
    PlannedTensor& plan = planned.emplace_back();
    plan.name = tensor.name();
    plan.shape.assign(tensor.shape().begin(), tensor.shape().end());
    plan.offset = end;
    plan.count = 1;
    for (const int64_t size : plan.shape) plan.count *= size;
    plan.momentum = 1.0f;  // An average becomes what was pushed for it.
    end += plan.count;
  }
  return MakeTable(table, name, rule, planned, end);
}

}  // namespace

std::vector<v1::TableSpec> ProgramTables(const v1::Program& program) {
  std::vector<v1::TableSpec> tables = {
      TableOf(kParametersTable, "parameters", v1::OPTIMIZER, program.parameters())};
  if (!program.averages().empty()) {
    tables.push_back(
        TableOf(kStatisticsTable, "statistics", v1::MOVING_AVERAGE, program.averages()));
  }
  return tables;
}

}  // namespace capstan
