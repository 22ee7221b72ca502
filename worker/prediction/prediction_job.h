// The job of a prediction: the job that an exported model is of, with the data to be predicted.
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
  std::string job_file;                // Whose `data` takes the place of the model's; empty: none.
  std::vector<std::string> overrides;  // FIELD=VALUE, as `job submit --set`; after job_file.
  std::string split = "test";          // Or "train" or "validation".
};

// `model` with that data, whose test split is the one to be predicted; large files are counted.
//   model_name  stands for the model in messages
// Errors: kInvalidArgument  no such split, or a line for each field that is wrong;
//         else              those of JobFile and CountBlocks.
absl::StatusOr<v1::JobSpec> CheckedPredictionJob(const v1::JobSpec& model,
                                                 const std::string& model_name,
                                                 const PredictionData& data);

}  // namespace capstan::worker

#endif  // CAPSTAN_WORKER_PREDICTION_PREDICTION_JOB_H_
