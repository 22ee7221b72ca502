#include "scheduler/cli/diff/job_differences.h"

#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace capstan::cli {
namespace {

constexpr size_t kLineBytesMax = 200;

// "modified: training.seed: 1 -> 2" becomes "training.seed: 1 -> 2", "added: model.zoo: "mlp""
// becomes "model.zoo: unset -> "mlp"".
std::string LineOf(absl::string_view reported) {
  std::string line(reported);
  if (absl::ConsumePrefix(&reported, "modified: ")) {
    line = std::string(reported);
  } else if (absl::ConsumePrefix(&reported, "added: ")) {
    const size_t value = reported.find(": ");
    line = absl::StrCat(reported.substr(0, value), ": unset -> ", reported.substr(value + 2));
  } else if (absl::ConsumePrefix(&reported, "deleted: ")) {
    line = absl::StrCat(reported, " -> unset");
  }
  if (line.size() > kLineBytesMax) line = absl::StrCat(line.substr(0, kLineBytesMax), "...");
  return line;
}

std::vector<std::string> Compare(const v1::JobSpec& first, const v1::JobSpec& second) {
  google::protobuf::util::MessageDifferencer differencer;
  std::string report;
  differencer.ReportDifferencesToString(&report);
  differencer.Compare(first, second);
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    lines.push_back(LineOf(line));
  }
  return lines;
}

// Removes the fields that have no effect under BSP from `job`, and returns those to be shown.
v1::JobSpec TakeOthers(v1::JobSpec& job) {
  v1::JobSpec others;
  v1::Resources& resources = *others.mutable_resources();
  resources.Swap(job.mutable_resources());
  job.mutable_resources()->set_device(resources.device());
  job.mutable_resources()->set_gpus(resources.gpus());
  job.mutable_resources()->set_threads(resources.threads());
  resources.clear_device();
  resources.clear_gpus();
  resources.clear_threads();
  others.set_durability(job.durability());
  others.mutable_checkpoints()->Swap(job.mutable_checkpoints());
  others.mutable_checkpoints()->clear_directory();
  others.mutable_wire()->set_shared_memory(job.wire().shared_memory());
  others.mutable_wire()->set_data_connections(job.wire().data_connections());
  job.mutable_wire()->clear_shared_memory();
  job.mutable_wire()->clear_data_connections();
  job.clear_durability();
  job.clear_checkpoints();
  job.clear_name();
  job.clear_labels();
  job.clear_note();
  job.clear_output();
  return others;
}

}  // namespace

JobDifferences CompareJobs(const v1::JobSpec& first, const v1::JobSpec& second) {
  v1::JobSpec mine = first;
  v1::JobSpec other = second;
  const v1::JobSpec my_others = TakeOthers(mine);
  const v1::JobSpec other_others = TakeOthers(other);
  return {.of_training = Compare(mine, other), .others = Compare(my_others, other_others)};
}

}  // namespace capstan::cli
