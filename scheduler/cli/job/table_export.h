// Table export: pulls the dense tables of a running job from its servers, and copies the model
// files of an ended job.
//
// Training goes on while shards are read, so shards may have different versions. The manifest names
// each table's lowest version. common/row_export exports the rows of sparse tables.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CLI_JOB_TABLE_EXPORT_H_
#define CAPSTAN_SCHEDULER_CLI_JOB_TABLE_EXPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

// All values of a table.
struct PulledTable {
  v1::TableSpec spec;
  int64_t version = 0;  // The lowest version of its shards.
  std::vector<float> values;
};

// Sends the request to server number `server` of the routing table.
using PullFunction =
    std::function<absl::StatusOr<v1::PullResponse>(int server, const v1::PullRequest& request)>;

// Pulls all shards of the dense tables in `tables`, as many in one message as fit.
// Errors: kFailedPrecondition  the job has no tables (it has not started).
//         kDataLoss   the routing table has gaps or overlaps, or a server's answer does not match
//                     the request.
//         kResourceExhausted  a table larger than 16 GiB.
//         else        those of `pull`.
absl::StatusOr<std::vector<PulledTable>> PullTables(const std::string& job_id,
                                                    const v1::GetTablesResponse& tables,
                                                    const PullFunction& pull);

// Copies the model files of an ended job (ModelFilesIn) from `from` to `to`, which is created if
// missing. Returns their names. Files of an earlier export are replaced once all are copied, the
// manifest last; a symbolic link among them is replaced, not followed.
// Errors: kNotFound  there are no files, or one is missing; kDataLoss  as ModelFilesIn;
//         else an error of the operating system.
absl::StatusOr<std::vector<std::string>> CopyModelFiles(const std::string& from,
                                                        const std::string& to);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_JOB_TABLE_EXPORT_H_
