#include "common/job/validate/validate.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/devices/devices_codec.h"
#include "common/job/fields/field_checker.h"
#include "common/job/spec/consistency_of.h"
#include "common/job/spec/labels.h"
#include "common/job/spec/program_tables.h"
#include "common/job/validate/validate_data.h"
#include "common/job/validate/validate_model.h"
#include "common/job/validate/validate_optimizer.h"
#include "common/job/validate/validate_program.h"
#include "common/job/validate/validate_training.h"
#include "common/model/plan_model.h"
#include "common/types/job_limits.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr int kExamplesABatchMax = 1 << 22;  // Their keys are counted in 32 bits.
constexpr int kTraceBatchesMax = 1000;

void ValidateName(const std::string& name, FieldChecker check) {
  if (name.empty()) return;  // The default applies.
  const bool charset = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
  if (charset && name.size() <= kNameBytesMax) return;
  check.Wrong("name", Quote(name),
              absl::StrCat("1 to ", kNameBytesMax, " letters, digits, '-' or '_'"));
}

void ValidateCompute(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training::Compute compute = spec.training().compute();
  if (compute == v1::Training::FP32) return;
  const std::string& name = v1::Training::Compute_Name(compute);
  const auto need = DeviceNeedOf(spec.resources());
  if (!need) return;  // ValidateDevice reports it.
  if (need->kind != DeviceNeed::Kind::kGpu) {
    check.Wrong("compute", name, "FP32, since resources.device may be a CPU");
    return;
  }
  if (compute == v1::Training::TF32) return;
  for (const v1::Layer& layer : spec.model().layers()) {
    if (!layer.has_embedding()) continue;
    check.Wrong("compute", name,
                absl::StrCat("FP32 or TF32, since layer ", Quote(layer.name()),
                             " is an embedding, whose row numbers ", name, " does not hold"));
    return;
  }
}

void ValidateInitialWeights(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training& training = spec.training();
  const std::string weights = Quote(training.initial_weights());
  if (training.initial_weights().empty()) {
    if (!training.initial_weights_partial()) return;
    check.Wrong("initial_weights_partial", "true", "nothing without initial_weights");
  } else if (spec.model().has_sparse()) {
    check.Wrong("initial_weights", weights,
                "nothing: only models of layers begin with the tensors of a file; rows come back "
                "from a checkpoint (capstan checkpoint restore)");
  } else if (spec.optimizer().has_ftrl()) {
    check.Wrong("initial_weights", weights,
                "nothing with optimizer.ftrl, which makes each weight from its gradients alone");
  }
}

void ValidateSizes(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training& training = spec.training();
  check.IntegerAtLeast("epochs", training.epochs(), 1, Presence::kImplicit);
  if (spec.model().has_sparse()) {
    check.IntegerBetween("batch_size", training.batch_size(), 1, kExamplesABatchMax,
                         Presence::kImplicit);
  } else {
    check.IntegerAtLeast("batch_size", training.batch_size(), 1, Presence::kImplicit);
  }
}

void ValidateTraining(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Training& training = spec.training();
  if (!spec.program().own_pace()) ValidateSizes(spec, check);
  if (training.has_slots()) {
    if (const ConsistencyRule rule = ConsistencyOf(spec); !rule.synchronous()) {
      check.Wrong(
          "slots", absl::StrCat(training.slots()),
          absl::StrCat("nothing: only bsp has slots, and consistency is ", NameOf(rule.mode)));
    } else {
      check.IntegerBetween("slots", training.slots(), 1, kSlotsMax, Presence::kExplicit);
    }
  }
  check.IntegerAtLeast("iterations_max", training.iterations_max(), 0, Presence::kExplicit);
  ValidateCompute(spec, check);
  ValidateInitialWeights(spec, check);
  ValidateLossWeights(spec, check);
  ValidateDecisions(spec, check);
}

void ValidateReplicas(const v1::Resources& resources, FieldChecker check) {
  const int replicas = resources.replicas();
  if (!check.IntegerBetween("replicas", replicas, 0, kReplicasMax, Presence::kExplicit)) return;
  // If resources.servers is 0, the limit depends on how many servers are alive at the start.
  if (resources.servers() <= 0 || resources.servers() > replicas) return;
  check.Wrong("replicas", absl::StrCat(replicas),
              absl::StrCat("at most ", resources.servers() - 1,
                           ", as each copy is on a server of its own and resources.servers is ",
                           resources.servers()));
}

void ValidateDevice(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Resources& resources = spec.resources();
  const std::string device = Quote(resources.device());
  const auto need = DeviceNeedOf(resources);
  if (!need) {
    check.Wrong("device", device,
                absl::StrCat("\"auto\", \"cpu\", \"cuda\" or \"cuda:<index>\", index 0 to ",
                             kGpusPerWorkerMax - 1));
    return;
  }
  const int gpus = resources.gpus();
  if (!check.IntegerBetween("gpus", gpus, 0, kGpusPerTaskMax, Presence::kExplicit)) return;
  const bool cpu = need->kind == DeviceNeed::Kind::kCpu;
  if (cpu && gpus > 0) {
    check.Wrong("gpus", absl::StrCat(gpus), absl::StrCat("0, since device is ", device));
  }
  if (need->index >= 0 && gpus > 1) {
    check.Wrong("gpus", absl::StrCat(gpus), absl::StrCat("1, since device is ", device));
  }
  const int64_t batch = spec.training().batch_size();
  if (gpus > 1 && batch > 0 && batch < gpus) {
    check.Wrong(
        "gpus", absl::StrCat(gpus),
        absl::StrCat("at most ", batch, ", training.batch_size: each computes a part of it"));
  }
  const auto only_cpu = [&](const std::string& what) {
    check.Wrong(resources.device().empty() ? "gpus" : "device",
                resources.device().empty() ? absl::StrCat(gpus) : device,
                absl::StrCat("the CPU: no ", what, " is computed on GPUs"));
  };
  if (cpu) return;
  if (spec.model().has_sparse()) return only_cpu("model.sparse");
  if (LabelsOf(spec.model()) != LabelKind::kClasses) {
    return only_cpu(absl::StrCat("loss ", LossName(spec.model())));
  }
  for (const v1::Layer& layer : spec.model().layers()) {
    const auto* const kind = LayerKindField(layer);
    if (kind == nullptr || !kind->options().GetExtension(v1::cpu_only)) continue;
    return only_cpu(absl::StrCat("layer ", kind->name()));
  }
  if (spec.training().class_weights_size() > 0) only_cpu("loss with class_weights");
}

void ValidateResources(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Resources& resources = spec.resources();
  const bool workers =
      check.IntegerBetween("workers", resources.workers(), 1, kWorkersMax, Presence::kImplicit);
  const bool bsp = ConsistencyOf(spec).synchronous();
  if (workers && bsp && !spec.training().has_slots() && resources.workers() > kSlotsMax) {
    check.Wrong(
        "workers", absl::StrCat(resources.workers()),
        absl::StrCat("at most ", kSlotsMax, " under bsp, since training.slots defaults to it"));
  }
  check.IntegerAtLeast("servers", resources.servers(), 0, Presence::kExplicit);
  if (resources.has_threads()) {
    check.IntegerAtLeast("threads", resources.threads(), 1, Presence::kExplicit);
  }
  if (resources.has_max_restarts()) {
    check.IntegerAtLeast("max_restarts", resources.max_restarts(), 0, Presence::kExplicit);
  }
  if (resources.has_worker_wait_seconds()) {
    check.IntegerAtLeast("worker_wait_seconds", resources.worker_wait_seconds(), 0,
                         Presence::kExplicit);
  }
  if (resources.has_server_wait_seconds()) {
    check.IntegerAtLeast("server_wait_seconds", resources.server_wait_seconds(), 0,
                         Presence::kExplicit);
  }
  ValidateReplicas(resources, check);
  ValidateDevice(spec, check);
}

void ValidateWire(const v1::Wire& wire, FieldChecker check) {
  const auto is_format = [&check](const char* field, v1::NumberFormat format) {
    if (v1::NumberFormat_IsValid(format)) return;
    check.Wrong(field, absl::StrCat(static_cast<int>(format)), "FP32, BF16 or FP16");
  };
  is_format("gradients", wire.gradients());
  is_format("parameters", wire.parameters());
  const auto is_use = [&check](const char* field, v1::TransportUse use) {
    if (v1::TransportUse_IsValid(use)) return;
    check.Wrong(field, absl::StrCat(static_cast<int>(use)), "AUTO or OFF");
  };
  is_use("shared_memory", wire.shared_memory());
  is_use("data_connections", wire.data_connections());
}

void ValidateDurability(const v1::JobSpec& spec, FieldChecker check) {
  if (!v1::Durability_IsValid(spec.durability())) {
    check.Wrong("durability", absl::StrCat(static_cast<int>(spec.durability())), "NONE or LOG");
  }
  const v1::Checkpoints& checkpoints = spec.checkpoints();
  FieldChecker in = check.In("checkpoints");
  in.IntegerAtLeast("every_iterations", checkpoints.every_iterations(), 0, Presence::kExplicit);
  in.IntegerAtLeast("every_seconds", checkpoints.every_seconds(), 0, Presence::kExplicit);
  if (checkpoints.has_keep()) {
    in.IntegerAtLeast("keep", checkpoints.keep(), 1, Presence::kExplicit);
  }
}

void ValidateOutput(const v1::JobSpec& spec, FieldChecker check) {
  const v1::Output& output = spec.output();
  check.IntegerBetween("trace_batches", output.trace_batches(), 0, kTraceBatchesMax,
                       Presence::kExplicit);
  const ConsistencyRule rule = ConsistencyOf(spec);
  if (!output.record_updates() || (rule.synchronous() && rule.backups == 0)) return;
  check.Wrong("record_updates", "true",
              absl::StrCat("nothing: updates can be compared only under bsp without backups, and "
                           "consistency is ",
                           NameOf(rule.mode), rule.synchronous() ? " with backups" : ""));
}

// Checks what the workers compute: a program, or a model on its data.
void ValidateWork(const v1::JobSpec& spec, FieldChecker check) {
  if (spec.has_program()) return ValidateProgram(spec, check);
  ValidateModel(spec.model(), check.In("model"));
  ValidateModelFitsData(spec, check);
  if (spec.has_data()) {
    ValidateData(spec.data(), check.In("data"));
  } else {
    check.Missing("data", "a format and the files to train on");
  }
}

}  // namespace

std::vector<Diagnostic> ValidateJob(const v1::JobSpec& spec) {
  std::vector<Diagnostic> diagnostics;
  FieldChecker check("", &diagnostics);
  ValidateName(spec.name(), check);
  ValidateLabels(spec.labels(), spec.note(), check);
  ValidateWork(spec, check);
  if (spec.has_training() || spec.program().own_pace()) {
    ValidateTraining(spec, check.In("training"));
  } else {
    check.Missing("training", "epochs and batch_size");
  }
  if (spec.has_optimizer()) {
    ValidateOptimizer(spec.optimizer(), UpdatesRows(spec, 0), check.In("optimizer"));
  } else {
    check.Missing("optimizer", "a kind, such as sgd {}, and learning_rate");
  }
  ValidateConsistency(spec, check.In("consistency"));
  if (spec.has_resources()) {
    ValidateResources(spec, check.In("resources"));
  } else {
    check.Missing("resources", "workers");
  }
  ValidateDurability(spec, check);
  ValidateWire(spec.wire(), check.In("wire"));
  ValidateOutput(spec, check.In("output"));
  return diagnostics;
}

}  // namespace capstan
