#include "tests/simulation/checkers/evaluation.h"

#include <cmath>
#include <limits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"

namespace capstan::sim {
namespace {

constexpr uint64_t kTestStream = 0x54455354;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

Evaluated Evaluate(const JobOptions& job, Epoch epoch, const Range& positions) {
  Evaluated sum;
  const auto key = kTestStream + (static_cast<uint64_t>(epoch.value()) << 32) +
                   (static_cast<uint64_t>(job.number - 1) << 48);
  for (int64_t p = positions.begin; p < positions.end; ++p) {
    const auto words = Philox4x32(key, static_cast<uint64_t>(p));
    sum.loss_sum += words[0] % 1000;
    sum.correct += words[1] % 2;
    sum.scores.Add(static_cast<float>(words[2] % 32) - 16, words[3] % 3 == 0);  // Some are equal.
  }
  return sum;
}

void Evaluation::Happened(const scheduler::Event& event) {
  const auto* done = std::get_if<scheduler::EpochDone>(&event);
  if (done == nullptr || job_.test_count == 0) return;
  const scheduler::EpochResult& got = done->result;
  const Evaluated all = Evaluate(job_, got.epoch, {0, job_.test_count});
  const auto count = static_cast<double>(job_.test_count);
  const double accuracy = static_cast<double>(all.correct) / count;
  const double auc = got.test_auc.value_or(kNan);
  if (got.test_samples == job_.test_count && got.test_loss == all.loss_sum / count &&
      got.test_accuracy == accuracy && Same(auc, all.scores.Auc())) {
    return;
  }
  Fail(absl::StrCat("evaluation: epoch ", got.epoch.value(), " has ", got.test_samples,
                    " samples, loss ", got.test_loss, ", accuracy ", got.test_accuracy, ", AUC ",
                    auc, "; each of the ", job_.test_count, " counted once gives ",
                    all.loss_sum / count, ", ", accuracy, ", ", all.scores.Auc()));
}

}  // namespace capstan::sim
