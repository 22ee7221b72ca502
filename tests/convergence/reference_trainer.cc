// The reference trainer: what a BSP job comes to, in one process, without network, servers or
// scheduler.
//
//   reference_trainer --job=job.textproto --output=folder
//
// It is the definition that the distributed system is compared with bit by bit: model.safetensors
// must have the same sha256. So it is as plain as can be: whole tables in memory, slots computed
// one after the other, their sum written as the recursion that defines it. Shared with the system
// are only the arithmetic (network, update rules), the data, and the initial values.
// Exit codes: 0 done, 1 it failed, 2 usage or a bad job.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/command_line/command.h"
#include "common/job/check/check_job.h"
#include "common/job/parse/job_file.h"
#include "common/job/spec/consistency_of.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/tensor/model_file.h"
#include "kernels/backend_group.h"
#include "server/optimizer/config/optimizer_from_proto.h"
#include "server/optimizer/optimizer.h"
#include "server/optimizer/testing/reference.h"
#include "worker/task/computation/backend.h"
#include "worker/training/trainer/trainer.h"

namespace capstan {
namespace {

using Tables = worker::Trainer::Tables;

// Returns the job's numbers with their defaults filled in.
struct Schedule {
  explicit Schedule(const v1::JobSpec& job)
      : seed(SeedOf(job.training())),
        epochs(job.training().epochs()),
        batch_size(job.training().batch_size()),
        slots(job.training().has_slots() ? job.training().slots() : job.resources().workers()),
        iterations_max(job.training().iterations_max()) {}

  uint64_t seed;
  int epochs;
  int64_t batch_size, slots, iterations_max;  // iterations_max 0: no limit.
};

// An iteration of an epoch: positions [begin, begin + samples), cut into slots of batch_size.
struct IterationSpan {
  Epoch epoch;
  int64_t begin = 0, samples = 0;
};

class ReferenceTrainer {
 public:
  ReferenceTrainer(const v1::JobSpec& job, std::unique_ptr<worker::Trainer> trainer,
                   const server::OptimizerConfig& optimizer)
      : schedule_(job),
        trainer_(std::move(trainer)),
        optimizer_(optimizer),
        specs_(MakeTables(trainer_->plan())),
        values_(worker::MakeTrainerTables(trainer_->plan())) {
    for (size_t t = 0; t < specs_.size(); ++t) {
      FillInitialValues(specs_[t], schedule_.seed, 0, absl::MakeSpan(values_[t]));
    }
    for (int slot = 0; slot < server::StateSlots(optimizer_); ++slot) {
      state_.emplace_back(values_[0].size(), server::InitialState(optimizer_, slot));
    }
  }

  absl::Status Run() {
    for (int e = 0; e < schedule_.epochs && !LimitReached(); ++e) {
      CAPSTAN_RETURN_IF_ERROR(RunEpoch(Epoch(e)));
    }
    return absl::OkStatus();
  }

  absl::Status Write(const std::string& directory, const v1::JobSpec& job) const {
    std::vector<TableValues> tables;
    for (size_t t = 0; t < specs_.size(); ++t) tables.push_back({&specs_[t], version_, values_[t]});
    return WriteModelFiles(directory, /*job_id=*/"", job, tables);
  }

 private:
  bool LimitReached() const {
    return schedule_.iterations_max > 0 && version_ >= schedule_.iterations_max;
  }

  absl::Status RunEpoch(Epoch epoch) {
    const int64_t samples = trainer_->train_samples();
    const int64_t iteration_samples = schedule_.slots * schedule_.batch_size;
    loss_sum_ = 0;
    int64_t seen = 0;
    for (int64_t begin = 0; begin < samples && !LimitReached(); begin += iteration_samples) {
      const IterationSpan span{epoch, begin, std::min(iteration_samples, samples - begin)};
      int64_t tree_slots = 1;  // The root: the smallest power of two that holds every slot.
      while (tree_slots < schedule_.slots) tree_slots *= 2;
      CAPSTAN_ASSIGN_OR_RETURN(const std::optional<Tables> sum, Sum(span, 0, tree_slots));
      Update(*sum);
      seen += span.samples;
    }
    return PrintEpoch(epoch, seen);
  }

  // The sum over the slots of node [begin, begin + size) of the summation tree: left plus right. A
  // node that begins beyond the last slot is absent; its parent is then the left child.
  absl::StatusOr<std::optional<Tables>> Sum(const IterationSpan& span, int64_t begin,
                                            int64_t size) {
    if (begin >= schedule_.slots) return std::optional<Tables>();
    if (size == 1) return Slot(span, begin);
    CAPSTAN_ASSIGN_OR_RETURN(std::optional<Tables> left, Sum(span, begin, size / 2));
    CAPSTAN_ASSIGN_OR_RETURN(const std::optional<Tables> right,
                             Sum(span, begin + size / 2, size / 2));
    if (!right.has_value()) return left;
    for (size_t t = 0; t < left->size(); ++t) {
      for (size_t i = 0; i < (*left)[t].size(); ++i) (*left)[t][i] += (*right)[t][i];
    }
    return left;
  }

  // One slot's gradient and statistics.
  absl::StatusOr<std::optional<Tables>> Slot(const IterationSpan& span, int64_t slot) {
    const int64_t end = span.begin + span.samples;
    const int64_t first = std::min(span.begin + slot * schedule_.batch_size, end);
    const Range positions{first, std::min(first + schedule_.batch_size, end)};
    Tables gradient = worker::MakeTrainerTables(trainer_->plan());
    CAPSTAN_ASSIGN_OR_RETURN(
        const worker::BatchResult result,
        trainer_->Train({span.epoch, positions, span.samples}, values_, &gradient));
    loss_sum_ += result.loss_sum;
    return std::optional<Tables>(std::move(gradient));
  }

  // Applies an iteration's sum: the optimizer to the parameters, moving averages to the statistics.
  void Update(const Tables& sum) {
    if (server::IsLayerWise(optimizer_)) {
      for (const v1::TensorSpec& tensor : specs_[0].tensors()) UpdateWhole(tensor, sum[0]);
    } else {
      server::Apply(optimizer_, version_, static_cast<int64_t>(values_[0].size()),
                    values_[0].data(), sum[0].data(), StateAt(0), values_[0].data());
    }
    for (size_t t = 1; t < specs_.size(); ++t) {
      for (const v1::TensorSpec& tensor : specs_[t].tensors()) {
        server::OptimizerConfig average;
        average.kind = server::OptimizerKind::kMovingAverage;
        average.momentum = tensor.momentum();
        float* values = values_[t].data() + tensor.offset();
        server::Apply(average, version_, ElementCount(tensor), values,
                      sum[t].data() + tensor.offset(), {}, values);
      }
    }
    ++version_;
  }

  // Applies a rule that takes norms of the tensor.
  void UpdateWhole(const v1::TensorSpec& tensor, const std::vector<float>& gradient) {
    server::OptimizerConfig rule = optimizer_;
    rule.has_trust_ratio = tensor.shape_size() > 1;
    float* const values = values_[0].data() + tensor.offset();
    server::ApplyReference(rule, version_, ElementCount(tensor), values,
                           gradient.data() + tensor.offset(), StateAt(tensor.offset()), values);
  }

  std::vector<float*> StateAt(int64_t begin) {
    std::vector<float*> state;
    for (std::vector<float>& slot : state_) state.push_back(slot.data() + begin);
    return state;
  }

  absl::Status PrintEpoch(Epoch epoch, int64_t seen) {
    std::printf("epoch %d iterations %lld training loss %.6f", epoch.value(),
                static_cast<long long>(version_),
                seen > 0 ? loss_sum_ / static_cast<double>(seen) : 0.0);
    if (const int64_t samples = trainer_->test_samples(); samples > 0) {
      CAPSTAN_ASSIGN_OR_RETURN(const worker::BatchResult test,
                               trainer_->Evaluate({0, samples}, values_));
      std::printf(" test loss %.6f accuracy %.4f", test.loss_sum / static_cast<double>(samples),
                  static_cast<double>(test.correct) / static_cast<double>(samples));
    }
    std::printf("\n");
    std::fflush(stdout);
    return absl::OkStatus();
  }

  const Schedule schedule_;
  const std::unique_ptr<worker::Trainer> trainer_;
  const server::OptimizerConfig optimizer_;
  const std::vector<v1::TableSpec> specs_;
  Tables values_;
  std::vector<std::vector<float>> state_;  // The optimizer's state.
  int64_t version_ = 0;                    // Updates applied.
  double loss_sum_ = 0;                    // Sum over the epoch.
};

absl::Status Train(const v1::JobSpec& job, const std::string& output) {
  // A job for GPUs is computed on this machine's.
  const std::vector<int> gpus = worker::GpusAsked(job.resources());
  CAPSTAN_ASSIGN_OR_RETURN(kernels::BackendGroup backends,
                           worker::MakeBackends(worker::DeviceChoiceOf(job, gpus)));
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<worker::Trainer> trainer,
                           worker::Trainer::Create(job, std::move(backends)));
  CAPSTAN_ASSIGN_OR_RETURN(const server::OptimizerConfig optimizer,
                           server::OptimizerFromProto(job.optimizer()));
  ReferenceTrainer reference(job, std::move(trainer), optimizer);
  CAPSTAN_RETURN_IF_ERROR(reference.Run());
  return reference.Write(output, job);
}

// Loads and checks the job; prints what is wrong with it.
std::optional<v1::JobSpec> LoadJob(const std::string& path) {
  const absl::StatusOr<JobFile> file = JobFile::Load(path);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", std::string(file.status().message()).c_str());
    return std::nullopt;
  }
  const JobCheck check = CheckJob(file->spec());
  for (const Diagnostic& diagnostic : check.diagnostics) {
    std::fprintf(stderr, "%s\n", file->Render(diagnostic).c_str());
  }
  if (!check.diagnostics.empty()) return std::nullopt;
  if (!ConsistencyOf(file->spec()).synchronous()) {
    std::fprintf(stderr, "%s: consistency is not bsp, expected bsp\n", path.c_str());
    return std::nullopt;
  }
  return file->spec();
}

int Main(int argc, char** argv) {
  std::string job_path, output;
  Program program(
      "Trains a BSP job in one process: the bits that the distributed system must arrive at.");
  program.AddOption("--job", job_path, "Job file (text protobuf or JSON)").Required();
  program.AddOption("--output", output, "Folder for model.safetensors and model.json").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  const std::optional<v1::JobSpec> job = LoadJob(job_path);
  if (!job.has_value()) return 2;
  const absl::Status status = Train(*job, output);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) { return capstan::Main(argc, argv); }
