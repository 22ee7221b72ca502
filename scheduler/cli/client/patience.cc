#include "scheduler/cli/client/patience.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/duration_text.h"
#include "scheduler/cli/console/console.h"
#include "scheduler/cli/console/interrupts.h"

namespace capstan::cli {
namespace {

Patience::Options Complete(Patience::Options options) {
  if (!options.say) options.say = [](const std::string& line) { Note(line); };
  return options;
}

}  // namespace

Patience::Patience(std::string address, Options options)
    : address_(std::move(address)), options_(Complete(std::move(options))) {}

bool Patience::AsksAgain(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
    if (away_since_) options_.say("the scheduler answers again");
    away_since_.reset();
    return false;
  }
  if (!away_since_) {
    away_since_ = clock_.Now();
    options_.say(absl::StrCat("the scheduler at ", address_, " does not answer; ",
                              options_.meanwhile, options_.meanwhile.empty() ? "" : ", ",
                              "trying for ", DurationText(options_.limit)));
  }
  if (clock_.Now() - *away_since_ >= options_.limit) return false;
  Interrupts::Sleep(options_.interval);
  return true;
}

}  // namespace capstan::cli
