// Text as a job file, in JSON or protobuf's text format: it is refused with a place for each error,
// or validated, where each diagnostic can be told; a model that ValidateJob lets through in a job
// that is otherwise good is planned. Lines "#set FIELD=VALUE" override fields.
#include "common/job/parse/job_file.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/validate/validate.h"
#include "common/model/model_plan.h"
#include "common/model/plan_model.h"
#include "proto/job.pb.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

constexpr char kGoodJob[] = R"(
name: "job"
model { zoo: "mlp" }
data { format: IDX train { images: "images" labels: "labels" } }
training { epochs: 1 batch_size: 32 }
optimizer { sgd {} learning_rate: 0.1 }
consistency { bsp {} }
resources { workers: 1 }
)";

v1::JobSpec GoodJob() {
  const absl::StatusOr<JobFile> file = JobFile::Parse("good", kGoodJob, "/folder");
  FUZZ_CHECK(file.ok());
  FUZZ_CHECK(ValidateJob(file->spec()).empty());
  return file->spec();
}

void PlanIn(const v1::Model& model) {
  static const v1::JobSpec good = GoodJob();
  v1::JobSpec job = good;
  *job.mutable_model() = model;
  if (model.has_sparse() || !ValidateJob(job).empty()) return;
  constexpr std::array<SampleShape, 3> kShapes = {
      {{.h = 28, .w = 28, .c = 1}, {.h = 32, .w = 32, .c = 3}, {.h = 1, .w = 1, .c = 16}}};
  for (const SampleShape& shape : kShapes) {
    const absl::StatusOr<ModelPlan> plan =
        PlanModel(model, shape, model.has_classes() ? model.classes() : 10);
    if (!plan.ok()) FUZZ_CHECK(absl::IsInvalidArgument(plan.status()));
    if (plan.ok()) FUZZ_CHECK(!plan->layers.empty() && !plan->parameters.empty());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<JobFile> file = JobFile::Parse("job", text, "/folder");
  if (!file.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(file.status()) && !file.status().message().empty());
    return 0;
  }
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "#set ")) file->Set(std::string(line)).IgnoreError();
  }
  const std::vector<Diagnostic> diagnostics = ValidateJob(file->spec());
  FUZZ_CHECK(diagnostics.size() <= 100);
  FUZZ_CHECK(file->Refusal(diagnostics).ok() == diagnostics.empty());
  PlanIn(file->spec().model());
  return 0;
}

}  // namespace capstan::fuzz
