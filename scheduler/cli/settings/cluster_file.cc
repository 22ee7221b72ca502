#include "scheduler/cli/settings/cluster_file.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/tensor/safetensors/durable_file.h"
#include "scheduler/cli/settings/process.h"

namespace capstan::cli {
namespace {

constexpr int kFormat = 1;

}  // namespace

std::string ClusterFilePath(const std::string& directory) {
  return absl::StrCat(directory, "/cluster.json");
}

absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& directory) {
  const std::string path = ClusterFilePath(directory);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": no local cluster is written down"));
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ClusterFile cluster;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &cluster);
  if (!status.ok()) {
    return absl::DataLossError(
        absl::StrCat(path, ": is no cluster file, expected what `capstan cluster up` writes"));
  }
  if (cluster.format() != kFormat) {
    return absl::DataLossError(absl::StrCat(path, ": got format ", cluster.format(), ", expected ",
                                            kFormat, "; was it written by another version?"));
  }
  for (const LocalProcess& process : cluster.processes()) {
    if (process.pid() > 1) continue;  // A signal to pid 0 or below would reach process groups.
    return absl::DataLossError(
        absl::StrCat(path, ": ", process.name(), " has pid ", process.pid(), ", expected above 1"));
  }
  return cluster;
}

absl::Status WriteClusterFile(const std::string& directory, const ClusterFile& cluster) {
  ClusterFile file = cluster;
  file.set_format(kFormat);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(file, &json, options);
  if (!status.ok()) return absl::InternalError("a cluster file cannot be made");
  return WriteFileDurably(ClusterFilePath(directory), {json});
}

absl::Status RemoveClusterFile(const std::string& directory) {
  const std::string path = ClusterFilePath(directory);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be removed"));
}

std::optional<ClusterFile> RunningCluster(const std::string& directory) {
  absl::StatusOr<ClusterFile> cluster = ReadClusterFile(directory);
  if (!cluster.ok() || cluster->processes_size() == 0) return std::nullopt;
  const LocalProcess& scheduler = cluster->processes(0);
  if (!IsAlive({scheduler.pid(), scheduler.start_time()})) return std::nullopt;
  return *std::move(cluster);
}

}  // namespace capstan::cli
