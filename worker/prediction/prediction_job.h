// Makes the job of a prediction: the job of an exported model, with the data to be predicted.
//
// Thread safety: pure functions; CheckedPredictionJob reads files.
#ifndef CAPSTAN_WORKER_PREDICTION_PREDICTION_JOB_H_
#define CAPSTAN_WORKER_PREDICTION_PREDICTION_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace capstan::worker {

struct PredictionData {
  // Its `data` replaces that of the model's job, except class names if it has none. May be empty.
  std::string job_file;
  std::vector<std::string> overrides;  // FIELD=VALUE, as `job submit --set`; after job_file.
  std::string split = "test";          // "test", "train" or "validation".
};

// Returns `model` with that data; its test split is the split to be predicted, and the examples in
// its files are counted.
//   model_name  the model's name in messages
// Errors: kInvalidArgument  no such split, or a line for each field that is wrong;
//         else              those of JobFile and CountBlocks.
absl::StatusOr<v1::JobSpec> CheckedPredictionJob(const v1::JobSpec& model,
                                                 const std::string& model_name,
                                                 const PredictionData& data);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_JOB_H_
