#include "common/model/tables.h"

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/model/plan_model.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/job_limits.h"

namespace capstan {
namespace {

float InitializerValue(const v1::Initializer& initializer) {
  switch (initializer.kind_case()) {
    case v1::Initializer::kConstant:
      return initializer.constant();
    case v1::Initializer::kUniformBound:
      return initializer.uniform_bound();
    case v1::Initializer::kNormalStd:
      return initializer.normal_std();
    case v1::Initializer::KIND_NOT_SET:
      break;
  }
  return 0.0f;
}

absl::Status ValidateInitializer(const v1::Initializer& initializer) {
  const float initial = InitializerValue(initializer);
  if (std::isfinite(initial)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("initializer is ", initial, ", expected a finite number"));
}

absl::Status ValidateTensor(const v1::TensorSpec& tensor, int64_t offset_expected,
                            v1::UpdateRule rule) {
  if (tensor.offset() != offset_expected) {
    return absl::InvalidArgumentError(absl::StrCat("offset is ", tensor.offset(), ", expected ",
                                                   offset_expected,
                                                   ", the end of the tensor before"));
  }
  int64_t count = 1;
  for (const int64_t d : tensor.shape()) {
    if (d < 1 || d > kTableElementsMax / count) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape has a dimension of ", d,
                       ", expected at least 1 and a product of at most ", kTableElementsMax));
    }
    count *= d;
  }
  CAPSTAN_RETURN_IF_ERROR(ValidateInitializer(tensor.initializer()));
  const bool averaged = rule == v1::MOVING_AVERAGE;
  if (averaged && !(tensor.momentum() > 0 && tensor.momentum() <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("momentum is ", tensor.momentum(), ", expected more than 0 and at most 1"));
  }
  return absl::OkStatus();
}

absl::Status ValidateDense(const v1::TableSpec& table) {
  int64_t end = 0;
  for (const v1::TensorSpec& tensor : table.tensors()) {
    CAPSTAN_RETURN_IF_ERROR(
        Annotate(ValidateTensor(tensor, end, table.rule()),
                 absl::StrCat("table ", table.table(), ", tensor \"", tensor.name(), "\"")));
    const int64_t count = ElementCount(tensor);
    if (count > kTableElementsMax - end) {
      return absl::InvalidArgumentError(absl::StrCat("table ", table.table(), ", tensor \"",
                                                     tensor.name(), "\": the table is larger than ",
                                                     kTableElementsMax, " elements"));
    }
    end += count;
  }
  if (table.elements() != end) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.table(), ": elements is ",
                                                   table.elements(), ", expected ", end,
                                                   ", the sum of its tensors'"));
  }
  return absl::OkStatus();
}

absl::Status CheckSparse(const v1::TableSpec& table, const char* what, int64_t value, int64_t min,
                         int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", table.table(), ": sparse.", what, " is ",
                                                 value, ", expected ", min, " to ", max));
}

absl::Status ValidateMemory(const v1::TableSpec& table) {
  const v1::SparseSpec& sparse = table.sparse();
  if (sparse.memory_bytes() == 0) return absl::OkStatus();
  return CheckSparse(table, "memory_bytes", sparse.memory_bytes(), SparseMemoryMin(sparse),
                     kSparseMemoryMax);
}

// Checks when a key gets a row, and when it loses it; 0 is the default.
absl::Status ValidateRowLifetime(const v1::TableSpec& table) {
  const v1::SparseSpec& sparse = table.sparse();
  const auto check = [&](const char* what, int64_t value, int64_t max) {
    return CheckSparse(table, what, value, 0, max);
  };
  CAPSTAN_RETURN_IF_ERROR(check("admit_after", sparse.admit_after(), kAdmitAfterMax));
  CAPSTAN_RETURN_IF_ERROR(
      check("admission_keys", sparse.admission_keys(), kAdmissionKeysMax * sparse.buckets()));
  CAPSTAN_RETURN_IF_ERROR(check("evict_after_updates", sparse.evict_after_updates(), INT32_MAX));
  CAPSTAN_RETURN_IF_ERROR(check("ttl_seconds", sparse.ttl_seconds(), kTtlSecondsMax));
  CAPSTAN_RETURN_IF_ERROR(check("rows_max", sparse.rows_max(), kSparseRowsMax));
  CAPSTAN_RETURN_IF_ERROR(ValidateMemory(table));
  const float probability = sparse.admit_probability();
  if (!sparse.has_admit_probability() || (probability > 0 && probability <= 1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("table ", table.table(),
                                                 ": sparse.admit_probability is ", probability,
                                                 ", expected more than 0 and at most 1"));
}

absl::Status ValidateSparse(const v1::TableSpec& table) {
  const v1::SparseSpec& sparse = table.sparse();
  CAPSTAN_RETURN_IF_ERROR(CheckSparse(table, "dim", sparse.dim(), 1, kSparseDimMax));
  CAPSTAN_RETURN_IF_ERROR(CheckSparse(table, "buckets", sparse.buckets(), 1, kSparseBucketsMax));
  CAPSTAN_RETURN_IF_ERROR(ValidateRowLifetime(table));
  if (sparse.zero_columns() < 0 || sparse.zero_columns() > sparse.dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.table(), ": sparse.zero_columns is ", sparse.zero_columns(),
                     ", expected 0 to ", sparse.dim(), ", its dim"));
  }
  CAPSTAN_RETURN_IF_ERROR(Annotate(ValidateInitializer(sparse.initializer()),
                                   absl::StrCat("table ", table.table(), ": sparse")));
  if (table.rule() != v1::OPTIMIZER || table.tensors_size() > 0 ||
      table.elements() != sparse.buckets()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.table(), ": a sparse table has ", table.elements(), " elements, ",
        table.tensors_size(), " tensors and the rule ", v1::UpdateRule_Name(table.rule()),
        ", expected ", sparse.buckets(), ", its buckets, no tensors and OPTIMIZER"));
  }
  return absl::OkStatus();
}

}  // namespace

v1::Initializer MakeInitializer(const Initial& initial) {
  v1::Initializer result;
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      result.set_constant(initial.value);
      break;
    case Initial::Kind::kUniform:
      result.set_uniform_bound(initial.value);
      break;
    case Initial::Kind::kNormal:
      result.set_normal_std(initial.value);
      break;
  }
  return result;
}

v1::TableSpec MakeTable(int table, const char* name, v1::UpdateRule rule,
                        const std::vector<PlannedTensor>& tensors, int64_t elements) {
  v1::TableSpec spec;
  spec.set_table(table);
  spec.set_name(name);
  spec.set_elements(elements);
  spec.set_rule(rule);
  for (const PlannedTensor& tensor : tensors) {
    v1::TensorSpec& out = *spec.add_tensors();
    out.set_name(tensor.name);
    for (const int64_t d : tensor.shape) out.add_shape(d);
    out.set_offset(tensor.offset);
    *out.mutable_initializer() = MakeInitializer(tensor.initial);
    if (rule == v1::MOVING_AVERAGE) out.set_momentum(tensor.momentum);
  }
  return spec;
}

v1::TableSpec MakeRowsTable(int table, const std::string& name, int64_t dim, int32_t buckets,
                            const v1::SparseModel::RowLifetime& lifetime) {
  v1::TableSpec spec;
  spec.set_table(table);
  spec.set_name(name);
  spec.set_rule(v1::OPTIMIZER);
  spec.set_elements(buckets);
  v1::SparseSpec& rows = *spec.mutable_sparse();
  rows.set_dim(static_cast<int32_t>(dim));
  rows.set_buckets(buckets);
  rows.set_admit_after(lifetime.admit_after());
  rows.set_admission_keys(lifetime.admission_keys());
  if (lifetime.has_admit_probability()) rows.set_admit_probability(lifetime.admit_probability());
  rows.set_evict_after_updates(static_cast<int32_t>(lifetime.evict_after_updates()));
  rows.set_ttl_seconds(lifetime.ttl_seconds());
  rows.set_rows_max(lifetime.rows_max());
  rows.set_memory_bytes(lifetime.memory_mib() << 20);
  return spec;
}

std::vector<v1::TableSpec> MakeTables(const ModelPlan& plan) {
  std::vector<v1::TableSpec> tables = {MakeTable(kParametersTable, "parameters", v1::OPTIMIZER,
                                                 plan.parameters, plan.parameter_count)};
  if (!plan.statistics.empty()) {
    tables.push_back(MakeTable(kStatisticsTable, "statistics", v1::MOVING_AVERAGE, plan.statistics,
                               plan.statistic_count));
  }
  return tables;
}

int64_t ElementCount(const v1::TensorSpec& tensor) {
  int64_t count = 1;
  for (const int64_t d : tensor.shape()) count *= d;
  return count;
}

int64_t SparseMemoryMin(const v1::SparseSpec& sparse) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kHeadAndIndexBytes = 30;
  constexpr int64_t kFloatsMax = 3;  // With Adam, each weight takes three floats.
  const int64_t row_bytes = kHeadAndIndexBytes + kFloatsMax * int64_t{4} * sparse.dim();
  return kRows * row_bytes * sparse.buckets();
}

absl::Status ValidateTable(const v1::TableSpec& table) {
  if (table.table() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("table is ", table.table(), ", expected at least 0"));
  }
  if (table.rule() != v1::OPTIMIZER && table.rule() != v1::MOVING_AVERAGE) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.table(), ": rule is ",
                                                   static_cast<int>(table.rule()),
                                                   ", expected OPTIMIZER or MOVING_AVERAGE"));
  }
  return table.has_sparse() ? ValidateSparse(table) : ValidateDense(table);
}

}  // namespace capstan
