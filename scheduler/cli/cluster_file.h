// ClusterFile: RUNDIR/cluster.json, which says what a local cluster consists of.
//
// Thread safety: pure but for the file and /proc.
#ifndef CAPSTAN_SCHEDULER_CLI_CLUSTER_FILE_H_
#define CAPSTAN_SCHEDULER_CLI_CLUSTER_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/cli/cluster_file.pb.h"

namespace capstan::cli {

std::string ClusterFilePath(const std::string& directory);

// Errors: kNotFound  there is none. kDataLoss  it cannot be understood.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& directory);

// The file is replaced whole or not at all.
absl::Status WriteClusterFile(const std::string& directory, const ClusterFile& cluster);

// No file is no error.
absl::Status RemoveClusterFile(const std::string& directory);

// Address of the scheduler of the cluster in `directory`, if that process is alive.
std::optional<std::string> RunningScheduler(const std::string& directory);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLUSTER_FILE_H_
