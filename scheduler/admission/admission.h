// Admission: turns a user's job file into a job that can run, or into a message that says what is
// wrong with it.
//
// Admission reads the data files to check them and to count their examples. This may take seconds,
// so JobSubmission calls it in the admission thread and without a lock, and the scheduler has the
// data read by a child process.
// Thread safety: functions of their arguments and of the files.
#ifndef CAPSTAN_SCHEDULER_ADMISSION_ADMISSION_H_
#define CAPSTAN_SCHEDULER_ADMISSION_ADMISSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/capability.h"
#include "common/storage/disk.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "scheduler/core/plan/job_plan.h"

namespace capstan {
struct JobCheck;
}

namespace capstan::scheduler {

// An accepted job. It is constant from its submission on, except for the labels and the note of
// `submitted`.
struct AdmittedJob {
  JobPlan plan;                       // The part of the job that the core sees.
  v1::JobSpec submitted;              // The specification as its owner wrote it.
  v1::JobSpec spec;                   // The specification with every default filled in.
  std::vector<v1::TableSpec> tables;  // Indexed by TableId.
  std::string mode;                   // "bsp", "ssp(2)", "asp".
  std::string output_directory;       // Absolute path.
  // The job's servers check capabilities with it. Never logged or printed. Null: only in tests and
  // in records of jobs.
  std::optional<CapabilityKey> capability_key;
  std::vector<std::string> warnings;  // Shown to the owner at submission; not stored.
  // The initial values of each table, by TableId. Empty: the seed draws them. Not stored.
  std::vector<std::vector<float>> initial_values;
};

// DurableState and the answers that it has not sent yet share these jobs, which are immutable.
using AdmittedJobs = std::map<JobId, std::shared_ptr<const AdmittedJob>>;

// Fills in the defaults that proto/job.proto names, so that all processes read the same job.
void FillDefaults(v1::JobSpec& spec);

// Validates the job, reads its data, plans its model and tables. NameJob() sets the id and the
// fields that depend on it.
// Errors: kInvalidArgument  one line for each mistake: the field, its value, the expected value.
absl::StatusOr<AdmittedJob> AdmitJob(const v1::JobSpec& spec);

// Same as AdmitJob(spec), but with the result of CheckJob(spec), which reads the data. Another
// process may have made that call (job_check_process.h).
absl::StatusOr<AdmittedJob> AdmitJob(const v1::JobSpec& spec, JobCheck check);

// Returns the canonical path of `folder`: all links to one folder give the same path. Components
// that do not exist yet keep their names.
// Errors: kInvalidArgument  names `field` and the folder.
absl::StatusOr<std::string> OneName(absl::string_view field, const std::string& folder);

// A lower bound of the model's size in bytes: the values of all dense tables. The number of rows
// in sparse tables is not known in advance.
int64_t ModelBytes(const AdmittedJob& job);

// Creates `folder` and checks that a model of `bytes` can be written there now: the function writes
// and removes a file, and compares `bytes` with the free space.
// Errors: kInvalidArgument  the check failed; names `field`, the folder and the cause.
absl::Status CheckWritable(absl::string_view field, const std::string& folder, int64_t bytes);

// Errors: kFailedPrecondition  `folder` holds a model of any job; names the folder and the job.
absl::Status CheckHoldsNoModel(absl::string_view field, const std::string& folder);

// Sets the job's id, "<name>-<number>", and the folders that depend on it:
//  - The output folder is the requested one, or else <data_folder>/jobs/<id>, with a number behind
//    it if that folder holds a model already. NameJob() creates it.
//  - The checkpoint folder is <the requested one>/<id>, which NameJob() creates. The default is
//    <output folder>/checkpoints, which the first checkpoint creates.
// Both folders may hold files: the job numbers its checkpoints above those that are there. The core
// decides if another job writes into them now (plan.folders). A requested output folder that holds
// a model is refused, unless the job may replace that model at its end (OldModel::kReplace).
// Errors: kInvalidArgument     a folder cannot be created or written, or has no space for the
//                              model.
//         kFailedPrecondition  the output folder holds a model, and `old_model` is kKeep.
//         Errors of `disk` when it lists the checkpoints.
enum class OldModel { kKeep, kReplace };
absl::Status NameJob(uint64_t number, const std::string& data_folder, Disk& disk,
                     OldModel old_model, AdmittedJob& job);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_ADMISSION_ADMISSION_H_
