// Local cluster: runs a scheduler, servers and workers as processes of this machine.
//
//   <directory>/cluster.json       the processes (ClusterFile); exists while the cluster runs
//               logs/<name>.log    the output of each daemon
//               tls/               certificates (local_certificates.h)
//               scheduler/         the scheduler's data
//               <server>/          the server's write-ahead logs
//               <worker>/          specs and logs of the worker's tasks
//
// Thread safety: thread-compatible; an Interrupts object must exist. Two processes that start or
// stop the cluster of one folder exclude each other.
#ifndef CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CLUSTER_H_
#define CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/cli/cluster/binaries.h"
#include "scheduler/cli/settings/cluster_file.pb.h"

namespace capstan::cli {

struct LocalClusterOptions {
  std::string directory;  // Absolute path.
  int servers = 2;
  int workers = 2;
  // --allow-path of all daemons: the paths that jobs may name in addition to `directory`.
  std::vector<std::string> allow_path;
  std::vector<std::string> rule_plugins;  // --rule-plugin of the servers: absolute paths.
  // Every daemon ends when this process ends for any reason.
  bool end_with_parent = false;
  absl::Duration start_limit = absl::Seconds(60);
  Binaries binaries;
};

// Starts the daemons on free ports of 127.0.0.1 and waits until all have registered. After an error
// it stops all daemons that it has started.
// Errors: kAlreadyExists     a cluster runs there already (names its scheduler), or another process
//                            starts or stops one there.
//         kAborted           a daemon ended at once; has the end of its log.
//         kDeadlineExceeded  not all had registered within `start_limit`; names those missing.
//         kCancelled         a signal came.
//         else               an error of folders, files or processes.
absl::StatusOr<ClusterFile> StartLocalCluster(const LocalClusterOptions& options);

struct StopReport {
  std::vector<std::string> killed;  // Names of the daemons that did not end within the grace time.
};

// Stops the cluster of `directory`. It sends SIGTERM to the workers, then to the servers, then to
// the scheduler. Daemons that still run after a second get SIGTERM again, because servers would
// move their shards to each other. After `grace` for all together it sends SIGKILL. Finally it
// kills the processes that the daemons left behind, and removes cluster.json. Signals do not
// interrupt it.
// Errors: kNotFound  there is no cluster file; kDataLoss  its content is not valid.
//         kAlreadyExists  another process starts or stops the cluster there.
absl::StatusOr<StopReport> StopLocalCluster(const std::string& directory, absl::Duration grace);

// Returns the names of the daemons that have ended.
std::vector<std::string> DeadProcesses(const ClusterFile& cluster);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_CLUSTER_LOCAL_CLUSTER_H_
