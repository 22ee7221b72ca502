// TableScan: goes over all rows of a sparse table while its servers train on: bucket after bucket,
// in each by ascending place. It says which server to ask for what; RowSource asks; ScanTable is
// the loop.
//
//   Next() --> ask the server --answer--> Take(): rows --> ... the next place, the next bucket
//                             --error---> Failed(): ask again, by a newer routing table
//
// Every row that is there all the time comes exactly once, also over failovers: a row's place never
// changes, so another server is asked from where the last answer ended.
// Pure: no clock, threads or sockets. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_ROW_EXPORT_TABLE_SCAN_H_
#define CAPSTAN_COMMON_ROW_EXPORT_TABLE_SCAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/time/clock.h"
#include "common/time/instant.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

// Rows as they came; `values` [keys, dim].
struct RowBatch {
  std::vector<uint64_t> keys;
  std::vector<float> values;
  std::vector<uint64_t> unchanged;  // Keys of rows that were not asked for; Since::unchanged_keys.
};

class TableScan {
 public:
  // The state of an earlier scan, by bucket, as ScannedTable gave it.
  struct Since {
    std::vector<int64_t> versions;
    std::vector<uint64_t> timelines;
    bool unchanged_keys = false;
  };
  struct Options {
    // The caller: a reader (rank -1), or a task. The routing generation is filled in.
    v1::Caller caller;
    int32_t bytes_max = 1 << 20;  // Limit of rows in one answer, 1 to 4 MiB.
    // How long a bucket is asked for in vain before the scan gives up.
    absl::Duration patience = absl::Seconds(60);
    std::optional<Since> since = {};  // Only rows that have changed. None: all.
  };
  struct Question {
    v1::ServerAddress server;
    v1::ScanRowsRequest request;
  };

  // Errors: kInvalidArgument  the table is not sparse, or cannot be (ValidateTable); `since` is of
  //                           another number of buckets.
  //         kDataLoss         as SetRouting.
  static absl::StatusOr<TableScan> Make(Options options, const v1::TableSpec& table,
                                        const v1::RoutingTable& routing);

  bool done() const { return bucket_ == buckets_; }
  Question Next() const;  // REQUIRES: not done.

  // The answer to Next(). Errors: kDataLoss  it cannot be one; names the server and what is wrong.
  absl::StatusOr<RowBatch> Take(const v1::ScanRowsResponse& response);

  // The answer to Next() was the error `status`. OK: ask again.
  // Errors: those that another try cannot change, and after options.patience kUnavailable; both
  //         name the server.
  absl::Status Failed(const absl::Status& status, Instant now);

  // Accepts a newer routing table; ignores one that is not newer. Returns whether it was newer.
  // Errors: kDataLoss  it does not give each bucket of the table one server.
  absl::StatusOr<bool> SetRouting(const v1::RoutingTable& routing);

  int64_t version() const { return version_.value_or(0); }  // The lowest of all answers.
  int64_t rows() const { return rows_; }                    // Rows that were taken.
  // For each bucket that was read: the lowest version and the first timeline of its answers.
  const std::vector<int64_t>& versions() const { return versions_; }
  const std::vector<uint64_t>& timelines() const { return timelines_; }

 private:
  TableScan(Options options, const v1::TableSpec& table)
      : options_(std::move(options)),
        table_(table.table()),
        name_(table.name()),
        dim_(table.sparse().dim()),
        buckets_(table.sparse().buckets()) {}

  std::string Where() const;  // Table, bucket and server, for messages.
  // The place of the last one; `place_` if there is none.
  absl::StatusOr<uint64_t> CheckPlaces(absl::Span<const uint64_t> keys) const;
  absl::Status CheckPlaces(const RowBatch& rows, const v1::ScanRowsResponse& response) const;
  void NoteVersion(const v1::ScanRowsResponse& response);

  Options options_;
  int32_t table_;
  std::string name_;
  int64_t dim_;
  int32_t buckets_;
  uint64_t generation_ = 0;                 // Generation of the routing table; 0: none yet.
  std::vector<v1::ServerAddress> servers_;  // Indexed by bucket.
  int32_t bucket_ = 0;                      // The bucket that is being read, from place_ on.
  uint64_t place_ = 0;
  std::optional<Instant> failing_since_;
  std::optional<int64_t> version_;
  std::vector<int64_t> versions_;
  std::vector<uint64_t> timelines_;
  int64_t rows_ = 0;
};

// RowSource: asks the questions of a scan; GrpcRowSource does it over gRPC.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual absl::StatusOr<v1::ScanRowsResponse> ScanRows(const v1::ServerAddress& server,
                                                        const v1::ScanRowsRequest& request) = 0;
  // The newest routing table that can be had; perhaps the same as before.
  // Errors: kUnavailable, kDeadlineExceeded  tried again later; others end the scan.
  virtual absl::StatusOr<v1::RoutingTable> NewestRouting() = 0;
  // Returns after this time. Errors: end the scan.
  virtual absl::Status Pause(absl::Duration time) = 0;
};

// Receives the rows as they come. Errors: end the scan.
using RowSink = std::function<absl::Status(const RowBatch& rows)>;

struct ScannedTable {
  int64_t version = 0;  // The lowest of the buckets'.
  int64_t rows = 0;
  std::vector<int64_t> versions = {};  // TableScan's.
  std::vector<uint64_t> timelines = {};
};

// Hands all rows of `table` to `sink`, or those that have changed, in the order of buckets and
// places.
// Errors: those of TableScan, RowSource and the sink; kOutOfRange  the job has gone back to a
// checkpoint since `since`.
absl::StatusOr<ScannedTable> ScanTable(const TableScan::Options& options,
                                       const v1::TableSpec& table, const v1::RoutingTable& routing,
                                       const Clock& clock, RowSource& source, const RowSink& sink);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_TABLE_SCAN_H_
