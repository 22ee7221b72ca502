#include "scheduler/admission/admission.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/devices/devices_codec.h"
#include "common/job/check/check_job.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/objective.h"
#include "common/job/spec/optimizer_fields.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/storage/files/path_access.h"
#include "common/storage/files/replace_file.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan::scheduler {
namespace {

constexpr int kDefaultMaxRestarts = 3;
constexpr int kDefaultWorkerWaitSeconds = 60;
constexpr int kDefaultServerWaitSeconds = 60;
constexpr int kDefaultCheckpointsKept = 2;
constexpr double kPlateauMinimum = 0.001;

DecisionPlan::Metric MetricOf(v1::Training::Metric metric) {
  using Metric = DecisionPlan::Metric;
  switch (metric) {
    case v1::Training::ACCURACY:
      return Metric::kAccuracy;
    case v1::Training::AUC:
      return Metric::kAuc;
    case v1::Training::RMSE:
      return Metric::kRmse;
    case v1::Training::MAE:
      return Metric::kMae;
    case v1::Training::F1:
      return Metric::kF1;
    case v1::Training::TOP5_ACCURACY:
      return Metric::kTop5Accuracy;
    default:
      return Metric::kLoss;
  }
}

DecisionPlan DecisionsOf(const v1::JobSpec& spec) {
  const v1::Training& training = spec.training();
  const v1::Training::ReduceOnPlateau& plateau = training.reduce_on_plateau();
  DecisionPlan plan;
  plan.metric = MetricOf(training.metric());
  plan.on_validation = spec.data().has_validation();
  plan.keep_best = training.keep_best();
  plan.stop_patience = training.early_stopping().patience();
  plan.stop_min_delta = training.early_stopping().min_delta();
  if (!training.has_reduce_on_plateau()) return plan;
  plan.plateau_patience = plateau.patience();
  plan.plateau_min_delta = plateau.min_delta();
  plan.plateau_factor = double{plateau.factor()};
  plan.plateau_minimum = plateau.has_minimum() ? double{plateau.minimum()} : kPlateauMinimum;
  return plan;
}

JobPlan MakePlan(const v1::JobSpec& spec, const JobCheck& check) {
  JobPlan plan;
  plan.consistency = ConsistencyOf(spec);
  plan.objective = ObjectiveOf(spec.model(), spec.data());
  plan.workers = spec.resources().workers();
  plan.servers = spec.resources().servers();
  plan.max_restarts = spec.resources().max_restarts();
  plan.worker_wait = absl::Seconds(spec.resources().worker_wait_seconds());
  plan.epochs = spec.training().epochs();
  plan.batch_size = spec.training().batch_size();
  plan.train_count = check.train_count;
  plan.test_count = check.test_count;
  plan.validation_count = check.validation_count;
  if (plan.objective == Objective::kLabels) plan.scores = check.plan.classes;
  plan.decide = DecisionsOf(spec);
  plan.iterations_max = spec.training().iterations_max();
  plan.replicas = spec.resources().replicas();
  plan.log = spec.durability() == v1::LOG;
  plan.server_wait = absl::Seconds(spec.resources().server_wait_seconds());
  plan.checkpoint_iterations = spec.checkpoints().every_iterations();
  plan.checkpoint_interval = absl::Seconds(spec.checkpoints().every_seconds());
  plan.checkpoints_kept = spec.checkpoints().keep();
  plan.device = DeviceNeedOf(spec.resources()).value_or(DeviceNeed());
  plan.checkpoints_incremental = spec.checkpoints().incremental();
  plan.own_pace = spec.program().own_pace();
  return plan;
}

// Writes the sizes of the data's blocks into `data`. With them tasks need not read all of the data,
// and notice that it has changed.
void WriteBlocks(const JobCheck& check, v1::Data& data) {
  const auto write = [](const std::vector<int64_t>& blocks, v1::Split& split) {
    split.mutable_block_examples()->Assign(blocks.begin(), blocks.end());
  };
  write(check.train_blocks, *data.mutable_train());
  if (data.has_test()) write(check.test_blocks, *data.mutable_test());
  if (data.has_validation()) write(check.validation_blocks, *data.mutable_validation());
}

bool HoldsModel(const std::string& folder) {
  struct stat status;
  return StatPath(absl::StrCat(folder, "/", kModelManifestFile), &status) == 0 ||
         StatPath(absl::StrCat(folder, "/", kModelTensorsFile), &status) == 0;
}

// Returns the id of the job that wrote the model in `folder`, or "another program".
std::string OwnerOfModel(const std::string& folder) {
  const absl::StatusOr<v1::ModelManifest> manifest = ReadModelManifest(folder);
  const bool known = manifest.ok() && !manifest->job_id().empty();
  return known ? manifest->job_id() : "another program";
}

// Returns a folder that holds no model. After the loss of a store the names of jobs occur again, so
// <data_folder>/jobs/<id> may hold one.
std::string DefaultFolder(const std::string& data_folder, const JobId& job) {
  const std::string folder = absl::StrCat(data_folder, "/jobs/", job);
  if (!HoldsModel(folder)) return folder;
  for (int number = 2;; ++number) {
    std::string other = absl::StrCat(folder, "-", number);
    if (!HoldsModel(other)) return other;
  }
}

// Creates `folder`, which `field` of the job names, checks that `bytes` fit, and returns its
// absolute path.
absl::StatusOr<std::string> MakeAbsolute(absl::string_view field, const std::string& folder,
                                         int64_t bytes) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(folder, error).lexically_normal().string();
  if (error) return absl::InvalidArgumentError(absl::StrCat(field, ": ", error.message()));
  CAPSTAN_RETURN_IF_ERROR(CheckWritable(field, absolute, bytes));
  return absolute;
}

TableSize SizeOf(const v1::TableSpec& table, bool whole_tensors) {
  TableSize size(table.elements(), table.has_sparse());
  if (!whole_tensors || table.rule() != v1::OPTIMIZER) return size;
  for (const v1::TensorSpec& tensor : table.tensors()) {
    size.tensor_ends.push_back(tensor.offset() + ElementCount(tensor));
  }
  return size;
}

// Returns the shortest time to live of a table's rows. 0: none has one.
int64_t TtlSecondsOf(const std::vector<v1::TableSpec>& tables) {
  int64_t shortest = 0;
  for (const v1::TableSpec& table : tables) {
    const int64_t ttl = table.sparse().ttl_seconds();
    if (ttl > 0 && (shortest == 0 || ttl < shortest)) shortest = ttl;
  }
  return shortest;
}

}  // namespace

absl::StatusOr<std::string> OneName(absl::string_view field, const std::string& folder) {
  std::error_code error;
  std::string name = std::filesystem::weakly_canonical(folder, error).string();
  if (!error) return name;
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", folder, ": ", error.message()));
}

void FillDefaults(v1::JobSpec& spec) {
  if (spec.name().empty()) spec.set_name("job");
  v1::Training& training = *spec.mutable_training();
  v1::Resources& resources = *spec.mutable_resources();
  if (!training.has_slots()) training.set_slots(resources.workers());
  training.set_seed(SeedOf(training));
  if (spec.program().own_pace()) {  // Each task's run counts as a batch of one sample.
    training.set_epochs(1);
    training.set_batch_size(1);
  }
  if (!resources.has_threads()) resources.set_threads(1);
  if (!resources.has_max_restarts()) resources.set_max_restarts(kDefaultMaxRestarts);
  if (!resources.has_worker_wait_seconds()) {
    resources.set_worker_wait_seconds(kDefaultWorkerWaitSeconds);
  }
  if (!resources.has_replicas()) resources.set_replicas(0);
  if (!resources.has_server_wait_seconds()) {
    resources.set_server_wait_seconds(kDefaultServerWaitSeconds);
  }
  const DeviceNeed device = DeviceNeedOf(resources).value_or(DeviceNeed());
  if (resources.device().empty()) {
    resources.set_device(device.kind == DeviceNeed::Kind::kCpu ? "cpu" : "cuda");
  }
  resources.set_gpus(device.gpus);
  v1::Checkpoints& checkpoints = *spec.mutable_checkpoints();
  if (!checkpoints.has_keep()) checkpoints.set_keep(kDefaultCheckpointsKept);
  if (!checkpoints.has_incremental()) checkpoints.set_incremental(true);
  v1::Consistency& consistency = *spec.mutable_consistency();
  if (consistency.mode_case() == v1::Consistency::MODE_NOT_SET) consistency.mutable_bsp();
}

absl::StatusOr<AdmittedJob> AdmitJob(const v1::JobSpec& spec) {
  return AdmitJob(spec, CheckJob(spec));
}

absl::StatusOr<AdmittedJob> AdmitJob(const v1::JobSpec& spec, JobCheck check) {
  if (!check.diagnostics.empty()) {
    const auto append = [](std::string* out, const Diagnostic& diagnostic) {
      absl::StrAppend(out, diagnostic.ToString());
    };
    return absl::InvalidArgumentError(absl::StrJoin(check.diagnostics, "\n", append));
  }
  AdmittedJob job;
  job.submitted = spec;
  job.spec = spec;
  FillDefaults(job.spec);
  // Only this scheduler reads the file of initial weights.
  job.spec.mutable_training()->clear_initial_weights();
  job.spec.mutable_training()->clear_initial_weights_partial();
  WriteBlocks(check, *job.spec.mutable_data());
  job.spec.mutable_data()->mutable_class_names()->Assign(check.class_names.begin(),
                                                         check.class_names.end());
  job.plan = MakePlan(job.spec, check);
  job.tables = check.tables;
  for (const v1::TableSpec& table : job.tables) {
    const absl::string_view optimizer = OptimizerName(OptimizerOf(table, spec.optimizer()));
    job.plan.tables.push_back(SizeOf(table, NeedsWholeTensors(optimizer)));
  }
  job.plan.ttl_seconds = TtlSecondsOf(job.tables);
  // A stored plan that cannot be loaded would keep the scheduler from starting.
  if (const absl::Status status = CheckPlan(job.plan); !status.ok()) {
    return absl::InvalidArgumentError(status.message());
  }
  job.mode = NameOf(job.plan.consistency);
  job.warnings = check.warnings;
  job.initial_values = std::move(check.initial_values);
  if (job.plan.objective == Objective::kUnlabeled) {
    job.warnings.push_back(absl::StrCat(
        "data.columns: ", "no column is a LABEL: all labels are 0, and no accuracy is reported"));
  }
  return job;
}

int64_t ModelBytes(const AdmittedJob& job) {
  int64_t bytes = 0;
  for (const v1::TableSpec& table : job.tables) {
    if (!table.has_sparse()) bytes += table.elements() * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

absl::Status CheckWritable(absl::string_view field, const std::string& folder, int64_t bytes) {
  absl::Status written = MakeDirectories(folder);
  const std::string file = absl::StrCat(folder, "/.capstan-write-test");
  if (written.ok()) written = ReplaceFile(file, "can capstan write here?\n");
  RemovePath(file);
  if (!written.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ": ", written.message(), "; expected a folder that the scheduler can write into"));
  }
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= static_cast<std::uintmax_t>(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", folder, " has ", space.available,
                                                 " bytes free, expected at least ", bytes,
                                                 ", which the model takes"));
}

absl::Status CheckHoldsNoModel(absl::string_view field, const std::string& folder) {
  if (!HoldsModel(folder)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(field, ": ", folder, " holds the model of ",
                                                    OwnerOfModel(folder),
                                                    ", expected a folder without one"));
}

absl::Status NameJob(uint64_t number, const std::string& data_folder, Disk& disk,
                     OldModel old_model, AdmittedJob& job) {
  job.plan.id = absl::StrCat(job.spec.name(), "-", number);
  std::string folder = job.spec.output().directory();
  if (folder.empty()) {
    folder = DefaultFolder(data_folder, job.plan.id);
  } else if (const absl::Status free = CheckHoldsNoModel("output.directory", folder);
             old_model == OldModel::kKeep && !free.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(free.message(),
                     "; name another (--set output.directory=FOLDER), or let this job replace that "
                     "model at its end (--replace)"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(job.output_directory,
                           MakeAbsolute("output.directory", folder, ModelBytes(job)));
  const std::string& checkpoints = job.spec.checkpoints().directory();
  if (checkpoints.empty()) {
    job.plan.checkpoint_folder = absl::StrCat(job.output_directory, "/checkpoints");
  } else {
    CAPSTAN_ASSIGN_OR_RETURN(
        job.plan.checkpoint_folder,
        MakeAbsolute("checkpoints.directory", absl::StrCat(checkpoints, "/", job.plan.id),
                     /*bytes=*/0));
  }
  CAPSTAN_ASSIGN_OR_RETURN(job.plan.checkpoint_floor, NewestId(disk, job.plan.checkpoint_folder));
  CAPSTAN_ASSIGN_OR_RETURN(job.plan.folders.output,
                           OneName("output.directory", job.output_directory));
  CAPSTAN_ASSIGN_OR_RETURN(job.plan.folders.checkpoints,
                           OneName("checkpoints.directory", job.plan.checkpoint_folder));
  job.plan.export_path = job.output_directory;
  job.spec.mutable_output()->set_directory(job.output_directory);
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
