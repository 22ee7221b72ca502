// Tables: makes and checks the specifications of a job's tables, by which servers store tensors.
//
// Table 0 "parameters" is updated by the job's optimizer; table 1 "statistics" holds moving
// averages and exists only if a layer has any (batch normalisation). Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_MODEL_TABLES_H_
#define CAPSTAN_COMMON_MODEL_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/model/model_plan.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

inline constexpr int kParametersTable = 0;
inline constexpr int kStatisticsTable = 1;

inline constexpr int64_t kSparseDimMax = 4096;
inline constexpr int64_t kAdmitAfterMax = 255;
inline constexpr int64_t kAdmissionKeysMax = 1 << 21;  // Limit of keys in one bucket's filter.
inline constexpr int64_t kSparseRowsMax = int64_t{1} << 40;
inline constexpr int64_t kSparseMemoryMax = int64_t{1} << 50;  // Bytes.

v1::Initializer MakeInitializer(const Initial& initial);

// A dense table of these tensors, which lie end to end in its `elements`.
v1::TableSpec MakeTable(int table, const char* name, v1::UpdateRule rule,
                        const std::vector<PlannedTensor>& tensors, int64_t elements);

inline constexpr int32_t kRowBucketsDefault = 64;

// A sparse table of rows of `dim` floats in `buckets`.
v1::TableSpec MakeRowsTable(int table, const std::string& name, int64_t dim, int32_t buckets,
                            const v1::SparseModel::RowLifetime& lifetime);

// One or two tables, ordered by index.
std::vector<v1::TableSpec> MakeTables(const ModelPlan& plan);

// Checks a table that came over the network: tensors lie end to end from element 0, shapes are
// positive and agree with the element count, initial values are finite, the momentum of a moving
// average is in (0, 1]; a sparse table has a dim, buckets, no tensors, and valid rules for its
// rows.
// Errors: kInvalidArgument  naming the table, the tensor, the value and what was expected.
absl::Status ValidateTable(const v1::TableSpec& table);

// The smallest memory_bytes that is valid besides 0: each bucket works on some rows at a time.
int64_t SparseMemoryMin(const v1::SparseSpec& sparse);

// The table's own optimizer, or else the job's.
inline const v1::Optimizer& OptimizerOf(const v1::TableSpec& table, const v1::Optimizer& of_job) {
  return table.has_optimizer() ? table.optimizer() : of_job;
}

// The job's seed, or the default.
inline uint64_t SeedOf(const v1::Training& training) {
  return training.has_seed() ? training.seed() : 1;
}

// Elements of a tensor. REQUIRES: it is of a table that ValidateTable accepted.
int64_t ElementCount(const v1::TensorSpec& tensor);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_MODEL_TABLES_H_
