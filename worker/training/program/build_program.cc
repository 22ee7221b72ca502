#include "worker/training/program/build_program.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "proto/job.pb.h"
#include "worker/training/program/backward_pass.h"
#include "worker/training/program/forward_pass.h"
#include "worker/training/program/layer_readers.h"
#include "worker/training/program/program_writer.h"

namespace capstan::worker {
namespace {

absl::Status CheckSizes(const ModelPlan& plan, int64_t n) {
  for (const PlannedLayer& layer : plan.layers) {
    const int64_t values = std::max(layer.in.count(), layer.out.count());
    if (values <= kArrayElementsMax / n) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "layer \"", layer.name, "\": a batch of ", n, " needs ", n, " x ", values,
        " values, expected at most ", kArrayElementsMax, ": take a smaller batch_size"));
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const ModelPlan& plan, kernels::DataType tensors) {
  if (tensors == kernels::DataType::kFloat32) return absl::OkStatus();
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.kind != v1::Layer::kEmbedding) continue;
    return absl::UnimplementedError(
        absl::StrCat("layer \"", layer.name,
                     "\": an embedding computes with fp32 or TF32, expected one of them"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> BuildProgram(const ModelPlan& plan, int64_t n, ProgramKind kind,
                                     kernels::DataType tensors) {
  CAPSTAN_RETURN_IF_ERROR(CheckSizes(plan, n));
  CAPSTAN_RETURN_IF_ERROR(CheckTypes(plan, tensors));
  const LayerReaders readers(plan, kind == ProgramKind::kTraining);
  ProgramWriter writer(plan, n, tensors);
  const ForwardValues forward = AddForwardPass(readers, kind, writer);
  CAPSTAN_RETURN_IF_ERROR(writer.status());
  if (kind == ProgramKind::kTraining) AddBackwardPass(readers, forward, writer);
  return writer.Finish(forward.logits(), forward.loss);
}

}  // namespace capstan::worker
