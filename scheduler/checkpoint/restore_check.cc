#include "scheduler/checkpoint/restore_check.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace capstan::scheduler {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

class Comparison {
 public:
  template <typename Value>
  void Same(absl::string_view field, const Value& before, const Value& now, absl::string_view why) {
    if (before == now) return;
    lines_.push_back(absl::StrCat(field, ": ", now, ", the checkpoint has ", before, ": ", why));
  }
  // Adds a line with the first differing field in the message.
  void SameMessage(absl::string_view field, const Message& before, const Message& now,
                   absl::string_view why) {
    std::string report;
    MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&report);
    if (differencer.Compare(before, now)) return;
    const std::string first = report.substr(0, report.find('\n'));
    lines_.push_back(
        absl::StrCat(field, ": it differs from the checkpoint's (", first, "): ", why));
  }
  void Wrong(const std::string& line) { lines_.push_back(line); }
  std::vector<std::string> Take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

std::string NameOf(const v1::Optimizer& optimizer) {
  const auto* kind = optimizer.GetDescriptor()->FindFieldByNumber(optimizer.kind_case());
  return kind == nullptr ? "nothing" : kind->name();
}

std::string NameOf(const v1::Consistency& consistency) {
  const auto* mode = consistency.GetDescriptor()->FindFieldByNumber(consistency.mode_case());
  return mode == nullptr ? "bsp" : mode->name();
}

void CompareTraining(const v1::CheckpointManifest& manifest, const AdmittedJob& job,
                     Comparison& compare) {
  const v1::Training& before = manifest.spec().training();
  const v1::Training& now = job.spec.training();
  compare.Same("training.batch_size", before.batch_size(), now.batch_size(),
               "the position in the data is counted in batches");
  compare.Same("training.iterations_max", before.iterations_max(), now.iterations_max(),
               "the epochs' lengths come from it");
  compare.Same("training.seed", before.seed(), now.seed(),
               "it orders the samples, and the position is one in that order");
  if (job.plan.consistency.synchronous()) {
    compare.Same("training.slots", before.slots(), now.slots(),
                 "an iteration has so many batches, and the position is counted in iterations");
    const auto whole = [](const v1::JobSpec& spec) {
      return std::string(spec.consistency().bsp().backups() > 0 ? "above 0" : "0");
    };
    compare.Same("consistency.bsp.backups", whole(manifest.spec()), whole(job.spec),
                 "with backups an epoch ends with its last whole iteration");
  }
  if (now.epochs() < manifest.epoch()) {
    compare.Wrong(absl::StrCat("training.epochs: ", now.epochs(), ", the checkpoint has trained ",
                               manifest.epoch(), ": expected as many or more"));
  }
  compare.Same("consistency", NameOf(manifest.spec().consistency()), NameOf(job.spec.consistency()),
               "the modes do not count alike what is trained; within one its fields may change");
}

// `field`: where the job has it.
void CompareOptimizer(const std::string& field, const v1::Optimizer& before,
                      const v1::Optimizer& now, Comparison& compare) {
  const absl::string_view why = "its state would not fit; rates and the like may change";
  compare.Same(field, NameOf(before), NameOf(now), why);
  if (before.kind_case() != now.kind_case()) return;
  const float old_momentum = before.rmsprop().momentum(), momentum = now.rmsprop().momentum();
  if ((old_momentum > 0) != (momentum > 0)) {
    compare.Same(absl::StrCat(field, ".rmsprop.momentum"), old_momentum, momentum, why);
  }
  compare.Same(absl::StrCat(field, ".plugin.rule"), before.plugin().rule(), now.plugin().rule(),
               why);
  compare.Same(absl::StrCat(field, ".plugin.digest"), before.plugin().digest(),
               now.plugin().digest(),
               "another file of the plugin may keep another state; start servers with that file");
  const auto text = [](bool value) { return value ? "true" : "false"; };
  compare.Same(absl::StrCat(field, ".adagrad.row_wise"),
               std::string(text(before.adagrad().row_wise())),
               std::string(text(now.adagrad().row_wise())), why);
}

// Returns `data` without the test split, the augmentation and the limits for reading examples. The
// other fields determine the meaning of positions.
v1::Data WhatPositionsMean(v1::Data data) {
  data.clear_test();
  data.clear_augmentation();
  if (data.has_examples()) {
    data.mutable_examples()->clear_max_bad_fraction();
    data.mutable_examples()->clear_memory_mib();
  }
  return data;
}

// Removes the counts that `before` lacks. Older schedulers wrote no counts for images and for
// examples that are held in memory, which are one block.
void RemoveUnknownCounts(const v1::Data& before, v1::Data* now) {
  const auto is_unknown = [](const v1::Split& old_split, const v1::Split& split) {
    return old_split.block_examples().empty() && split.block_examples_size() == 1;
  };
  if (is_unknown(before.train(), now->train())) now->mutable_train()->clear_block_examples();
  if (is_unknown(before.validation(), now->validation())) {
    now->mutable_validation()->clear_block_examples();
  }
}

// Returns `program` without the fields of its start, of its evaluation, and of its optimizers.
v1::Program WhatProgramTrains(v1::Program program) {
  program.clear_command();
  program.clear_directory();
  program.clear_environment();
  program.clear_optimizers();
  program.clear_test_samples();
  return program;
}

}  // namespace

std::vector<std::string> WhyNotRestorable(const v1::CheckpointManifest& manifest,
                                          const AdmittedJob& job) {
  Comparison compare;
  CompareTraining(manifest, job, compare);
  compare.SameMessage("model", manifest.spec().model(), job.spec.model(),
                      "its parameters would not be those of the checkpoint");
  const v1::Data old_data = WhatPositionsMean(manifest.spec().data());
  v1::Data data = WhatPositionsMean(job.spec.data());
  RemoveUnknownCounts(old_data, &data);
  compare.SameMessage("data", old_data, data,
                      "the position is one in the checkpoint's training data, and its keys and "
                      "labels are those that were trained; data.test may change");
  compare.SameMessage("program", WhatProgramTrains(manifest.spec().program()),
                      WhatProgramTrains(job.spec.program()),
                      "its tensors and samples are those of the checkpoint; how it is started may "
                      "change");
  CompareOptimizer("optimizer", manifest.spec().optimizer(), job.spec.optimizer(), compare);
  const auto& before = manifest.spec().program().optimizers();
  const auto& now = job.spec.program().optimizers();
  for (int i = 0; i < std::min(before.size(), now.size()); ++i) {
    CompareOptimizer(absl::StrCat("program.optimizers[", i, "]"), before[i], now[i], compare);
  }
  bool same_tables = static_cast<size_t>(manifest.tables_size()) == job.tables.size();
  for (size_t i = 0; same_tables && i < job.tables.size(); ++i) {
    same_tables = manifest.tables(static_cast<int>(i)).elements() == job.tables[i].elements();
  }
  if (!same_tables) compare.Wrong("model: its tables are not those of the checkpoint");
  return compare.Take();
}

}  // namespace capstan::scheduler
