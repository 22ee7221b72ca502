// LogCollector: removes logs of jobs that have ended or that the scheduler does not know: a job
// ended while this server was away, the scheduler has lost its store, or this is another cluster's
// data folder.
//
//   (a log) --not among the living, at a registration--> UNCLAIMED, marked with the date
//      ^---among the living, or its job is assigned here---/   \--for `grace`--> removed
//
// Nothing is removed at once: a scheduler whose store was lost knows nothing, and somebody may want
// to have the job back. The mark is a file, so that the time runs on while the server is away.
// Thread safety: the agent's thread calls it (UnclaimedLogs).
#ifndef CAPSTAN_SERVER_LOG_LOG_COLLECTOR_H_
#define CAPSTAN_SERVER_LOG_LOG_COLLECTOR_H_

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/storage/disk.h"
#include "server/agent/table_source.h"
#include "server/log/server_log.h"

namespace capstan::server {

class LogCollector final : public UnclaimedLogs {
 public:
  static constexpr absl::Duration kGrace = absl::Hours(24);
  // A file in a log's folder: the Unix seconds since when nobody claims the log.
  static constexpr absl::string_view kMark = "unclaimed";

  struct Options {
    Disk* disk = nullptr;  // The disk of the log.
    std::string folder;    // The folder of the log.
    absl::Duration grace = kGrace;
    std::function<absl::Time()> now = absl::Now;  // Calendar time: the mark outlives the process.
  };
  LogCollector(ServerLog* log, Options options);  // The log outlives it.

  void OnLiving(const std::set<std::string>& living) override;
  std::vector<std::string> CollectDue() override;

 private:
  struct Unclaimed {
    std::string unique_id;
    absl::Time since;
  };

  std::string MarkOf(const std::string& log) const;
  absl::Time UnclaimedSince(const std::string& log);

  ServerLog* const log_;
  const Options options_;
  std::map<std::string, Unclaimed> unclaimed_;  // Keyed by the log's name.
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_LOG_LOG_COLLECTOR_H_
