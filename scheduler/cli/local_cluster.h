// Local cluster: a scheduler, servers and workers as processes of this machine.
//
//   <directory>/cluster.json       what runs (cluster_file.h); there while the cluster is
//               logs/<name>.log    what each daemon wrote
//               scheduler/         the scheduler's data
//               <server>/          the server's write-ahead logs
//               <worker>/          specs and logs of the worker's tasks
//
// Thread safety: thread-compatible; an Interrupts object must exist. Two processes that start or
// stop the cluster of one folder exclude each other.
#ifndef CAPSTAN_SCHEDULER_CLI_LOCAL_CLUSTER_H_
#define CAPSTAN_SCHEDULER_CLI_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/cli/binaries.h"
#include "scheduler/cli/cluster_file.pb.h"

namespace capstan::cli {

struct LocalClusterOptions {
  std::string directory;  // Absolute.
  int servers = 2;
  int workers = 2;
  // Every daemon ends when this process does, whatever ends it.
  bool end_with_parent = false;
  absl::Duration start_limit = absl::Seconds(60);
  Binaries binaries;
};

// Starts the daemons on free ports of 127.0.0.1 and waits until all have registered. On any error
// what was started is taken down again.
// Errors: kAlreadyExists     a cluster runs there already; names its scheduler.
//         kAborted           a daemon ended at once; brings the end of its log.
//         kDeadlineExceeded  not all had registered within `start_limit`; names those missing.
//         kCancelled         a signal came.
//         else               folders, files, processes.
absl::StatusOr<ClusterFile> StartLocalCluster(const LocalClusterOptions& options);

struct StopReport {
  int processes = 0;                // That were alive.
  std::vector<std::string> killed;  // Of those, the ones that did not end within the grace.
};

// Ends the cluster of `directory`: SIGTERM to the workers, then the servers, then the scheduler (to
// each once more after a second: servers would move their shards to each other), together at most
// `grace`, then SIGKILL, then whatever they left behind; removes cluster.json.
// Not interrupted by signals.
// Errors: kNotFound  no cluster is written down there; kDataLoss  its file cannot be understood.
absl::StatusOr<StopReport> StopLocalCluster(const std::string& directory, absl::Duration grace);

// Names of the daemons that have ended.
std::vector<std::string> DeadProcesses(const ClusterFile& cluster);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_LOCAL_CLUSTER_H_
