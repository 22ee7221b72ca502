// Admission: from a user's job file to a job that can be run, or a message that says what is wrong.
//
// Reads the data files to check them and to learn their counts, so it may take seconds: it is never
// called with a lock held. Thread safety: functions of their arguments and of the files.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_H_
#define CAPSTAN_SCHEDULER_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/storage/disk.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "scheduler/core/job_plan.h"

namespace capstan::scheduler {

// A job that was accepted. Constant from its submission on, but for labels and note of `submitted`.
struct AdmittedJob {
  JobPlan plan;                       // What the core sees.
  v1::JobSpec submitted;              // As its owner wrote it.
  v1::JobSpec spec;                   // With every default filled in.
  std::vector<v1::TableSpec> tables;  // By index.
  std::string mode;                   // "bsp", "ssp(2)", "asp".
  std::string output_directory;       // Absolute.
  std::vector<std::string> warnings;  // For its owner, at its submission; not kept.
  // What the tables begin with, by table; empty: what the seed draws. Not kept beyond submission.
  std::vector<std::vector<float>> initial_values;
};

// Shared by the service and the answers on their way out; immutable.
using AdmittedJobs = absl::btree_map<JobId, std::shared_ptr<const AdmittedJob>>;

// Writes out the defaults that proto/job.proto names, so that everybody reads the same job.
void FillDefaults(v1::JobSpec& spec);

// Validates the job, reads its data, plans its model and tables. The id and what depends on it are
// not set.
// Errors: kInvalidArgument  a line for each thing that is wrong: field, value, what was expected.
absl::StatusOr<AdmittedJob> AdmitJob(const v1::JobSpec& spec);

// The one name of `folder`, whatever links lead to it: equal folders have equal names. What is not
// there yet has the name it was given.
// Errors: kInvalidArgument  names `field` and the folder.
absl::StatusOr<std::string> OneName(absl::string_view field, const std::string& folder);

// What the files of its dense tables take at least; rows of sparse ones are not known before.
int64_t ModelBytes(const AdmittedJob& job);

// Makes `folder`, and looks whether a model of `bytes` can be written there now: by a file that is
// written and removed, and by the space that is free.
// Errors: kInvalidArgument  it cannot; names `field`, the folder and the cause.
absl::Status CheckWritable(absl::string_view field, const std::string& folder, int64_t bytes);

// Errors: kFailedPrecondition  `folder` holds a model, of whichever job; names it.
absl::Status CheckHoldsNoModel(absl::string_view field, const std::string& folder);

// Gives the job its id "<name>-<number>" and makes its output folder: the one that it asks for, or
// <data_folder>/jobs/<id>. Likewise the folder of its checkpoints, <the one that it asks for>/<id>;
// that within the output folder, the default, is made by the first checkpoint. Both may hold
// something: the job's checkpoints are numbered from above those that are there. Whether another
// job writes into them now is for the core to say (plan.folders).
// A folder that the job asks for and that holds a model already is refused, unless the job may
// replace that one at its end.
// Errors: kInvalidArgument     a folder cannot be made or written, or has no space for the model.
//         kFailedPrecondition  the output folder holds a model, and `old_model` is kKeep.
//         Those of `disk`, of the listing.
enum class OldModel { kKeep, kReplace };
absl::Status NameJob(uint64_t number, const std::string& data_folder, Disk& disk,
                     OldModel old_model, AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_H_
