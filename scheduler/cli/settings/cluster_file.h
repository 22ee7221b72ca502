// ClusterFile: RUNDIR/cluster.json, which lists the processes of a local cluster.
//
// Thread safety: functions of their arguments, the file and /proc.
#ifndef CAPSTAN_SCHEDULER_CLI_SETTINGS_CLUSTER_FILE_H_
#define CAPSTAN_SCHEDULER_CLI_SETTINGS_CLUSTER_FILE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/cli/settings/cluster_file.pb.h"

namespace capstan::cli {

std::string ClusterFilePath(const std::string& directory);

// Errors: kNotFound  there is no file. kDataLoss  its content is not valid.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& directory);

// Replaces the file atomically.
absl::Status WriteClusterFile(const std::string& directory, const ClusterFile& cluster);

// A missing file is no error.
absl::Status RemoveClusterFile(const std::string& directory);

// Returns the cluster in `directory`, if its scheduler is alive.
std::optional<ClusterFile> RunningCluster(const std::string& directory);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_SETTINGS_CLUSTER_FILE_H_
