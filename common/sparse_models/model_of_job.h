// Makes a SparseModel, and its tables on servers, from a job file.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_SPARSE_MODELS_MODEL_OF_JOB_H_
#define CAPSTAN_COMMON_SPARSE_MODELS_MODEL_OF_JOB_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/examples/sets/example_set.h"
#include "common/sparse_models/sparse_model.h"
#include "common/types/progress.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Indices of a sparse job's tables.
inline constexpr int kRowsTable = 0;
inline constexpr int kDenseTable = 1;  // Exists only if the model has dense parameters.

// SparseModel::buckets, or its default.
int32_t BucketsOf(const v1::SparseModel& spec);

// Makes the model for examples like those of `train`. Skip-gram counts the words of all of them;
// matrix factorisation without a mean uses the mean of the first million labels. `progress` gets
// "examples gone through" meanwhile.
// REQUIRES: ValidateJob found nothing wrong with `spec`.
// Errors: kInvalidArgument  the examples have columns or fields that the model cannot have; names
//                           the option and both numbers.
//         else              those of reading `train`.
absl::StatusOr<std::unique_ptr<SparseModel>> MakeSparseModel(const v1::SparseModel& spec,
                                                             ExampleSet& train,
                                                             const Progress& progress = nullptr);

// One or two tables, ordered by index, for a model of this shape.
std::vector<v1::TableSpec> MakeSparseTables(const v1::SparseModel& spec, const SparseShape& shape);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SPARSE_MODELS_MODEL_OF_JOB_H_
