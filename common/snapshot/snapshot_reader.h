// SnapshotReader: reads a running job's tables as they were at one moment, while training goes on.
// For serving, roll-outs, audits: all that must not see one half of an update.
//
//   GrpcSnapshotSource source({.scheduler = "host:7070"});
//   ASSIGN_OR_RETURN(auto reader, SnapshotReader::Open({.job_id = "ctr-1"}, clock, source));
//   ASSIGN_OR_RETURN(ReadRows rows, reader->Rows("features", keys));
//   if (rows.has(i)) Use(rows.row(i));      // The row of keys[i].
//   // Closed when `reader` goes.
//
// The servers keep the snapshot for as long as its reader reads: every call renews the lease at all
// of them, and a reader that has nothing to read calls Renew now and then (lease() / 3). The
// snapshot ends, with an error of all later calls, when a server dies, begins a new incarnation or
// gives up one of its shards, when the job ends, or when the job's memory has no room for what
// updates have changed since. Then another one must be opened. Any number of readers may read at a
// time; those that open one at the same time read the same moment.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_READER_H_
#define CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/snapshot/snapshot_source.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// The rows of one table for some keys.
struct ReadRows {
  int64_t dim = 0;
  std::vector<int64_t> at;    // [keys] Its row in `values`; -1: there was none.
  std::vector<float> values;  // [rows, dim]

  bool has(size_t key) const { return at[key] >= 0; }
  // REQUIRES: has(key).
  absl::Span<const float> row(size_t key) const {
    return absl::MakeConstSpan(values).subspan(static_cast<size_t>(at[key] * dim),
                                               static_cast<size_t>(dim));
  }
};

class SnapshotReader {
 public:
  struct Options {
    std::string job_id;
    uint64_t reader = 0;  // Its number, which no other reader has; 0: a random one.
    // Limit of the wait until the job is quiet, at most 60 s.
    absl::Duration open_limit = absl::Seconds(30);
    // How long a server or the scheduler may fail to answer. Well below a lease.
    absl::Duration patience = absl::Seconds(5);
  };
  // Keys and their rows; `values` [keys, dim]. An error ends the reading.
  using RowSink =
      std::function<absl::Status(absl::Span<const uint64_t> keys, absl::Span<const float> values)>;

  // `clock` and `source` outlive the reader.
  // Errors: kNotFound  no such job. kFailedPrecondition  it does not train, or a server cannot keep
  //         a snapshot; says why. kDeadlineExceeded  the job was not quiet within open_limit.
  //         kUnavailable  the scheduler does not answer. kDataLoss  its answer is invalid.
  static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(const Options& options,
                                                              const Clock& clock,
                                                              SnapshotSource& source);
  SnapshotReader(const SnapshotReader&) = delete;
  SnapshotReader& operator=(const SnapshotReader&) = delete;
  ~SnapshotReader();  // Closes it; servers that are not reached wait for the lease to end.

  // Errors of these: kInvalidArgument  no such table, or of the other kind. kAborted,
  // kResourceExhausted  the snapshot has ended; names server and reason. kUnavailable  a server
  // does not answer. kDataLoss  an answer is invalid; names the server and what is wrong.

  // Rows of a sparse table; `keys` in any order, repeated or not.
  absl::StatusOr<ReadRows> Rows(const std::string& table, absl::Span<const uint64_t> keys);
  // All rows of a sparse table, some megabyte at a time, in ascending order of the keys' hashes.
  absl::Status AllRows(const std::string& table, const RowSink& sink);
  // All values of a dense table.
  absl::StatusOr<std::vector<float>> Values(const std::string& table);
  absl::Status Renew();

  uint64_t id() const { return id_; }
  int64_t iteration() const { return iteration_; }  // JobStatus.iteration at that moment.
  absl::Duration lease() const { return lease_; }
  std::vector<std::string> tables() const;
  // A table's specification, valid as long as the reader. Errors: kInvalidArgument  no such table.
  absl::StatusOr<const v1::TableSpec*> SpecOf(const std::string& table) const;

 private:
  struct Table {
    v1::TableSpec spec;
    std::vector<Range> elements;  // The range of each shard.
    std::vector<size_t> servers;  // The server of each shard.
  };
  struct Server {
    v1::ServerAddress address;
    Instant asked;
    bool has_shards = false;
  };

  SnapshotReader(Options options, const Clock& clock, SnapshotSource& source)
      : options_(std::move(options)), clock_(clock), source_(source) {}

  absl::StatusOr<v1::OpenSnapshotResponse> AskOpen();
  absl::Status TakeTables(const v1::OpenSnapshotResponse& opened);
  absl::Status CheckShards(const Table& table) const;
  absl::StatusOr<const Table*> Find(const std::string& name) const;
  absl::StatusOr<const Table*> Find(const std::string& name, bool sparse) const;
  absl::StatusOr<v1::ReadSnapshotResponse> Ask(size_t server, v1::ReadSnapshotRequest request);
  absl::Status RenewBefore(Instant asked);
  absl::Status TakeRows(const v1::ReadSnapshotResponse& response, absl::Span<const uint64_t> keys,
                        int64_t* at, ReadRows* rows) const;
  absl::StatusOr<uint64_t> TakeBucket(const v1::ReadSnapshotResponse& response, const Table& table,
                                      int32_t bucket, uint64_t place, const RowSink& sink) const;
  std::string NameOf(size_t server) const;

  const Options options_;
  const Clock& clock_;
  SnapshotSource& source_;
  uint64_t id_ = 0;  // 0: none is open.
  int64_t iteration_ = 0;
  absl::Duration lease_ = absl::Seconds(1);  // The value until a server has told it.
  std::map<std::string, Table> tables_;
  std::vector<Server> servers_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SNAPSHOT_SNAPSHOT_READER_H_
