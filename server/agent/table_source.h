// TableSource, CheckpointSink: where shards that are restored come from, and where captured ones
// go: checkpoints and logs in the daemon, simulated ones in tests.
//
// Thread safety: thread-safe. TableSource is called by the agent's maker, one call at a time.
#ifndef CAPSTAN_SERVER_AGENT_TABLE_SOURCE_H_
#define CAPSTAN_SERVER_AGENT_TABLE_SOURCE_H_

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "proto/scheduler.pb.h"
#include "server/store/tables/captured_shard.h"

namespace capstan::server {

// The parts of a log, in the order in which they are read.
class ShardReader {
 public:
  virtual ~ShardReader() = default;
  // Errors: kDataLoss  it does not fit the shard, or does not follow; say so and stop reading.
  virtual absl::Status Install(const v1::ShardSnapshot& snapshot) = 0;
  virtual absl::Status Replay(const v1::ShardRecord& record) = 0;
};

class TableSource {
 public:
  virtual ~TableSource() = default;

  // A job's shards are to be made: by now a folder may hold another checkpoint than the last time.
  virtual void BeginMaking() {}
  // The part of one shard in the checkpoint in `folder`. It may keep what the other shards need of
  // the checkpoint, until BeginMaking.
  // Errors: kNotFound  no such checkpoint or shard. kDataLoss  a checksum or format is wrong.
  virtual absl::StatusOr<v1::ShardSnapshot> FromCheckpoint(const std::string& folder,
                                                           const ShardKey& shard) = 0;
  // Reads the newest whole state of the shard from this server's own log, including all that was
  // passed to the log before: one Install, then records.
  // Errors: kNotFound  the log does not hold the shard. kDataLoss  as above. Those of the reader.
  virtual absl::Status FromLog(const JobId& job, const ShardKey& shard, ShardReader& reader) = 0;
};

class CheckpointSink {
 public:
  using Done = std::function<void(const absl::StatusOr<std::vector<v1::CheckpointPart>>&)>;

  virtual ~CheckpointSink() = default;

  // Writes a part for each shard into order.folder() and makes it durable, in the background.
  // `done` is called once, later, from any thread; never before Write has returned.
  virtual void Write(const JobId& job, const v1::CheckpointOrder& order,
                     std::vector<CapturedShard> shards, Done done) = 0;
};

// UnclaimedLogs: the logs here of jobs that have ended or that the scheduler does not know.
// Thread safety: the agent's thread calls it.
class UnclaimedLogs {
 public:
  virtual ~UnclaimedLogs() = default;
  // `living`: the unique ids of all jobs that may need their logs. Called at the beginning of an
  // incarnation.
  virtual void OnLiving(const std::set<std::string>& living) = 0;
  // Called after each answered sync: removes the logs whose time is over, and returns the unique
  // ids of their jobs. Must not wait.
  virtual std::vector<std::string> CollectDue() = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_AGENT_TABLE_SOURCE_H_
