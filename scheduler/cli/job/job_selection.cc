#include "scheduler/cli/job/job_selection.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace capstan::cli {
namespace {

using Before = bool (*)(const v1::JobStatus& a, const v1::JobStatus& b);

int64_t EndOf(const v1::JobStatus& job) {
  return job.ended_unix_ms() == 0 ? std::numeric_limits<int64_t>::max() : job.ended_unix_ms();
}

// Returns the comparison for the order `sort`; null if there is no such order.
Before OrderOf(const std::string& sort) {
  if (sort == "submitted") {
    return [](const v1::JobStatus& a, const v1::JobStatus& b) {
      return a.submitted_unix_ms() < b.submitted_unix_ms();
    };
  }
  if (sort == "ended") {
    return [](const v1::JobStatus& a, const v1::JobStatus& b) { return EndOf(a) < EndOf(b); };
  }
  if (sort == "name") {
    return [](const v1::JobStatus& a, const v1::JobStatus& b) { return a.job_id() < b.job_id(); };
  }
  if (sort == "state") {
    return [](const v1::JobStatus& a, const v1::JobStatus& b) { return a.state() < b.state(); };
  }
  return nullptr;
}

bool HasLabels(const v1::JobStatus& job, const std::vector<std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [&job](const std::string& label) {
    const size_t mark = label.find('=');
    const auto found = job.labels().find(label.substr(0, mark));
    return found != job.labels().end() &&
           (mark == std::string::npos || found->second == label.substr(mark + 1));
  });
}

}  // namespace

absl::Status SelectJobs(const JobSelection& selection, v1::ListJobsResponse& jobs) {
  std::vector<v1::JobState> states;
  for (const std::string& name : selection.states) {
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    if (!v1::JobState_Parse(absl::AsciiStrToUpper(name), &state)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--state: got \"", name, "\", expected PENDING, RUNNING, SUCCEEDED, STOPPED or FAILED"));
    }
    states.push_back(state);
  }
  const Before before = OrderOf(selection.sort);
  if (before == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sort: got \"", selection.sort, "\", expected submitted, ended, name or ", "state"));
  }
  std::vector<v1::JobStatus> kept;
  for (v1::JobStatus& job : *jobs.mutable_jobs()) {
    const bool in_state =
        states.empty() || std::find(states.begin(), states.end(), job.state()) != states.end();
    if (in_state && absl::StrContains(job.job_id(), selection.name) &&
        HasLabels(job, selection.labels)) {
      kept.push_back(job);
    }
  }
  std::stable_sort(kept.begin(), kept.end(), before);
  const size_t last = static_cast<size_t>(std::max(selection.last, 0));
  if (last > 0 && kept.size() > last) kept.erase(kept.begin(), kept.end() - selection.last);
  jobs.mutable_jobs()->Assign(kept.begin(), kept.end());
  return absl::OkStatus();
}

}  // namespace capstan::cli
