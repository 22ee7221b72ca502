// A running job's model, read from its servers and written as model files; an ended job's, copied.
//
// Each shard is read as it is at that moment, while training goes on: shards may be of different
// versions. The manifest names each table's lowest. Rows of sparse tables: common/row_export.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SCHEDULER_CLI_TABLE_EXPORT_H_
#define CAPSTAN_SCHEDULER_CLI_TABLE_EXPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"

namespace capstan::cli {

// A table's values, whole.
struct PulledTable {
  v1::TableSpec spec;
  int64_t version = 0;  // The lowest over its shards.
  std::vector<float> values;
};

// Asks server number `server` of the routing table.
using PullFunction =
    std::function<absl::StatusOr<v1::PullResponse>(int server, const v1::PullRequest& request)>;

// Pulls every shard of the dense ones of `tables`, as many in one message as fit its size.
// Errors: kFailedPrecondition  the job has no tables (it has not started).
//         kDataLoss   the routing table has gaps or overlaps, or a server sent something else than
//                     was asked for.
//         kResourceExhausted  a table larger than 16 GiB.
//         else        those of `pull`.
absl::StatusOr<std::vector<PulledTable>> PullTables(const std::string& job_id,
                                                    const v1::GetTablesResponse& tables,
                                                    const PullFunction& pull);

// Copies the model files that an ended job left in `from` to `to`, which is made if missing: those
// of ModelFilesIn, whose names are returned.
// Errors: kNotFound  there are none, or one is missing; kDataLoss  as ModelFilesIn;
//         else the operating system's.
absl::StatusOr<std::vector<std::string>> CopyModelFiles(const std::string& from,
                                                        const std::string& to);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_TABLE_EXPORT_H_
