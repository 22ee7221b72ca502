#include "scheduler/cli/view/recover_view.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

// Returns "server-0 (4 shards), server-1 (damaged), server-2 (dead)".
std::string LogsText(const v1::RecoverableJob& job) {
  std::vector<std::string> logs;
  for (const v1::RecoverableLog& log : job.logs()) {
    const std::string state = !log.alive()            ? "dead"
                              : !log.damage().empty() ? "damaged"
                                                      : absl::StrCat(log.shards(), " shards");
    logs.push_back(absl::StrCat(log.node_id(), " (", state, ")"));
  }
  return absl::StrJoin(logs, ", ");
}

}  // namespace

std::string RecoverableTable(const v1::ListRecoverableResponse& list) {
  if (list.jobs_size() == 0) {
    return "No live server has a log of a job that this scheduler does not know.\n"
           "From a checkpoint: capstan job recover --from=FOLDER\n";
  }
  std::map<std::string, int> same_id;
  for (const v1::RecoverableJob& job : list.jobs()) ++same_id[job.job_id()];
  TextTable table({{"JOB"}, {"CLUSTER"}, {"RECORDED"}, {"STOOD"}, {"LOGS"}, {"RECOVERABLE"}});
  std::string details;
  std::string take_up;
  for (const v1::RecoverableJob& job : list.jobs()) {
    const std::string& name = same_id[job.job_id()] > 1 ? job.unique_id() : job.job_id();
    table.AddRow({name, job.cluster_id(), TimeText(job.record_unix_ms()), job.stood(),
                  LogsText(job), job.why_not().empty() ? "yes" : "no"});
    if (job.why_not().empty()) {
      absl::StrAppend(&take_up, "capstan job recover ", Printable(name), "\n");
    } else {
      absl::StrAppend(&details, Printable(name), ": ", Printable(job.why_not()), "\n");
    }
  }
  return absl::StrCat(table.ToString(), details, take_up);
}

}  // namespace capstan::cli
