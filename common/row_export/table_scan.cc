#include "common/row_export/table_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/model/tables.h"
#include "common/sparse/key_hash.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/time/duration_text.h"

namespace capstan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "keys and values on the wire are little-endian");

constexpr absl::Duration kPauseMin = absl::Milliseconds(20);
constexpr absl::Duration kPauseMax = absl::Milliseconds(500);

// Returns whether a newer routing table, or a little time, may end the error.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status) || absl::IsDeadlineExceeded(status);
}

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Asks for a newer routing table; waits for `pause` if there is none.
absl::Status FindServer(TableScan& scan, RowSource& source, absl::Duration pause) {
  const absl::StatusOr<v1::RoutingTable> routing = source.NewestRouting();
  if (!routing.ok() && !IsAway(routing.status())) {
    return Annotate(routing.status(), "fetching the routing table");
  }
  if (routing.ok()) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool newer, scan.SetRouting(*routing));
    if (newer) return absl::OkStatus();
  }
  return source.Pause(pause);
}

}  // namespace

absl::StatusOr<TableScan> TableScan::Make(Options options, const v1::TableSpec& table,
                                          const v1::RoutingTable& routing) {
  CAPSTAN_RETURN_IF_ERROR(ValidateTable(table));
  if (!table.has_sparse()) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name(), " is dense: expected a sparse one"));
  }
  const auto buckets = static_cast<size_t>(table.sparse().buckets());
  if (options.since.has_value() &&
      (options.since->versions.size() != buckets || options.since->timelines.size() != buckets)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name(), ": what changed since versions of ", options.since->versions.size(),
        " buckets and timelines of ", options.since->timelines.size(), ": expected ", buckets));
  }
  TableScan scan(std::move(options), table);
  CAPSTAN_ASSIGN_OR_RETURN(const bool taken, scan.SetRouting(routing));
  if (!taken) {
    return absl::DataLossError(
        absl::StrCat("table ", table.name(), ": a routing table of generation 0"));
  }
  return scan;
}

absl::StatusOr<bool> TableScan::SetRouting(const v1::RoutingTable& routing) {
  if (routing.generation() <= generation_) return false;
  std::vector<v1::ServerAddress> servers(static_cast<size_t>(buckets_));
  int32_t routed = 0;
  for (const v1::ShardRoute& route : routing.shards()) {
    if (route.table() != table_) continue;
    if (route.shard() != routed || route.element_begin() != routed ||
        route.element_end() != routed + 1 || routed == buckets_ || route.server() < 0 ||
        route.server() >= routing.servers_size()) {
      return absl::DataLossError(absl::StrCat(
          "routing table ", routing.generation(), ": shard ", route.shard(), " of table ", name_,
          " is [", route.element_begin(), ", ", route.element_end(), ") on server ", route.server(),
          ", expected bucket ", routed, " of ", buckets_, " on one of ", routing.servers_size()));
    }
    servers[static_cast<size_t>(routed++)] = routing.servers(route.server());
  }
  if (routed != buckets_) {
    return absl::DataLossError(absl::StrCat("routing table ", routing.generation(), ": has ",
                                            routed, " of ", buckets_, " buckets of table ", name_));
  }
  generation_ = routing.generation();
  servers_ = std::move(servers);
  return true;
}

TableScan::Question TableScan::Next() const {
  Question question{.server = servers_[static_cast<size_t>(bucket_)], .request = {}};
  *question.request.mutable_caller() = options_.caller;
  question.request.mutable_caller()->set_routing_generation(generation_);
  question.request.set_table(table_);
  question.request.set_shard(bucket_);
  question.request.set_place(place_);
  question.request.set_bytes_max(options_.bytes_max);
  if (options_.since.has_value()) {
    v1::ScanSince& since = *question.request.mutable_since();
    since.set_version(options_.since->versions[static_cast<size_t>(bucket_)]);
    since.set_timeline(options_.since->timelines[static_cast<size_t>(bucket_)]);
    since.set_unchanged_keys(options_.since->unchanged_keys);
  }
  return question;
}

std::string TableScan::Where() const {
  const v1::ServerAddress& server = servers_[static_cast<size_t>(bucket_)];
  return absl::StrCat("table ", name_, ", bucket ", bucket_, " of ", buckets_, ", server ",
                      server.node_id(), " at ", server.address());
}

absl::StatusOr<RowBatch> TableScan::Take(const v1::ScanRowsResponse& response) {
  const size_t values_of_row = static_cast<size_t>(dim_);
  const size_t row_bytes = sizeof(uint64_t) + values_of_row * sizeof(float);
  const std::string& bytes = response.rows();
  if (bytes.size() % row_bytes != 0) {
    return absl::DataLossError(absl::StrCat(Where(), ": got ", bytes.size(),
                                            " bytes of keys and rows, expected a multiple of ",
                                            row_bytes));
  }
  RowBatch rows;
  rows.keys.resize(bytes.size() / row_bytes);
  rows.values.resize(rows.keys.size() * values_of_row);
  if (!rows.keys.empty()) {
    const size_t key_bytes = rows.keys.size() * sizeof(uint64_t);
    std::memcpy(rows.keys.data(), bytes.data(), key_bytes);
    std::memcpy(rows.values.data(), bytes.data() + key_bytes, bytes.size() - key_bytes);
  }
  const std::string& unchanged = response.unchanged();
  if (unchanged.size() % sizeof(uint64_t) != 0) {
    return absl::DataLossError(absl::StrCat(Where(), ": got ", unchanged.size(),
                                            " bytes of keys, expected a multiple of ",
                                            sizeof(uint64_t)));
  }
  rows.unchanged.resize(unchanged.size() / sizeof(uint64_t));
  if (!unchanged.empty()) std::memcpy(rows.unchanged.data(), unchanged.data(), unchanged.size());
  CAPSTAN_RETURN_IF_ERROR(Annotate(CheckPlaces(rows, response), Where()));
  failing_since_.reset();
  NoteVersion(response);
  rows_ += static_cast<int64_t>(rows.keys.size());
  place_ = response.end() ? 0 : response.next_place();
  if (response.end()) ++bucket_;
  return rows;
}

// Keeps the lowest version of the answers, which decides what a later scan has to read again.
void TableScan::NoteVersion(const v1::ScanRowsResponse& response) {
  version_ = std::min(version_.value_or(response.version()), response.version());
  if (versions_.size() == static_cast<size_t>(bucket_)) {
    versions_.push_back(response.version());
    timelines_.push_back(response.timeline());
  }
  versions_.back() = std::min(versions_.back(), response.version());
}

absl::StatusOr<uint64_t> TableScan::CheckPlaces(absl::Span<const uint64_t> keys) const {
  std::optional<uint64_t> last;
  for (const uint64_t key : keys) {
    const KeyPlace at = PlaceOf(KeyHash(key), buckets_);
    if (at.bucket != bucket_ || at.place < place_ || (last.has_value() && at.place <= *last)) {
      return absl::DataLossError(absl::StrCat(
          "got key ", key, " of bucket ", at.bucket, ", place ", at.place, ": expected bucket ",
          bucket_, " and a place ",
          last.has_value() ? absl::StrCat("above ", *last) : absl::StrCat("from ", place_, " on")));
    }
    last = at.place;
  }
  return last.value_or(place_);
}

absl::Status TableScan::CheckPlaces(const RowBatch& rows,
                                    const v1::ScanRowsResponse& response) const {
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t changed, CheckPlaces(rows.keys));
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t unchanged, CheckPlaces(rows.unchanged));
  const uint64_t above = std::max(changed, unchanged);
  if (response.end() || response.next_place() > above) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("is to be asked from place ", response.next_place(),
                                          " on: expected one above ", above));
}

absl::Status TableScan::Failed(const absl::Status& status, Instant now) {
  if (!MayPass(status)) return Annotate(status, Where());
  if (!failing_since_.has_value()) failing_since_ = now;
  if (now - *failing_since_ < options_.patience) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(Where(), ": no rows for ",
                                             DurationText(now - *failing_since_),
                                             ", at last: ", status.ToString()));
}

absl::StatusOr<ScannedTable> ScanTable(const TableScan::Options& options,
                                       const v1::TableSpec& table, const v1::RoutingTable& routing,
                                       const Clock& clock, RowSource& source, const RowSink& sink) {
  CAPSTAN_ASSIGN_OR_RETURN(TableScan scan, TableScan::Make(options, table, routing));
  absl::Duration pause = kPauseMin;
  while (!scan.done()) {
    const TableScan::Question question = scan.Next();
    const absl::StatusOr<v1::ScanRowsResponse> answer =
        source.ScanRows(question.server, question.request);
    if (!answer.ok()) {
      CAPSTAN_RETURN_IF_ERROR(scan.Failed(answer.status(), clock.Now()));
      CAPSTAN_RETURN_IF_ERROR(FindServer(scan, source, pause));
      pause = std::min(2 * pause, kPauseMax);
      continue;
    }
    pause = kPauseMin;
    CAPSTAN_ASSIGN_OR_RETURN(const RowBatch rows, scan.Take(*answer));
    if (!rows.keys.empty() || !rows.unchanged.empty()) CAPSTAN_RETURN_IF_ERROR(sink(rows));
  }
  return ScannedTable{.version = scan.version(),
                      .rows = scan.rows(),
                      .versions = scan.versions(),
                      .timelines = scan.timelines()};
}

}  // namespace capstan
