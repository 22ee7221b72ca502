// The C interface's snapshots (capstan_client.h).
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/snapshot/grpc_snapshot_source.h"
#include "common/snapshot/snapshot_reader.h"
#include "common/time/clock.h"
#include "worker/program/capstan_client.h"
#include "worker/program/client_codes.h"

struct capstan_snapshot {
  capstan::SteadyClock clock;
  std::unique_ptr<capstan::GrpcSnapshotSource> source;
  std::vector<std::string> tables;  // Names, by index.
  std::unique_ptr<capstan::SnapshotReader> reader;
};

namespace {

using capstan::ReadRows;
using capstan::worker::Tell;
using capstan::worker::Wrong;

constexpr double kPatienceMax = 60.0;  // Seconds.

capstan_code CodeOf(const absl::Status& status, char* error) {
  Tell(status.message(), error);
  return absl::IsInvalidArgument(status) ? CAPSTAN_WRONG : CAPSTAN_FAILED;
}

capstan_code ReadDense(capstan_snapshot* snapshot, const std::string& table, float* values,
                       int64_t count, char* error) {
  const absl::StatusOr<std::vector<float>> read = snapshot->reader->Values(table);
  if (!read.ok()) return CodeOf(read.status(), error);
  if (static_cast<int64_t>(read->size()) != count) {
    return Wrong(
        absl::StrCat("\"", table, "\" has ", read->size(), " elements, and got room for ", count),
        error);
  }
  std::copy(read->begin(), read->end(), values);
  return CAPSTAN_OK;
}

capstan_code ReadSparse(capstan_snapshot* snapshot, const std::string& table, const int64_t* keys,
                        int64_t key_count, float* values, int64_t count, unsigned char* found,
                        char* error) {
  const std::vector<uint64_t> named(keys, keys + key_count);
  const absl::StatusOr<ReadRows> rows = snapshot->reader->Rows(table, named);
  if (!rows.ok()) return CodeOf(rows.status(), error);
  if (rows->dim * key_count != count) {
    return Wrong(absl::StrCat("\"", table, "\" has ", rows->dim, " values a key, and got room for ",
                              count, " of ", key_count, " keys"),
                 error);
  }
  for (size_t i = 0; i < named.size(); ++i) {
    float* const to = values + static_cast<int64_t>(i) * rows->dim;
    std::fill_n(to, rows->dim, 0.0f);
    if (rows->has(i)) std::copy(rows->row(i).begin(), rows->row(i).end(), to);
    if (found != nullptr) found[i] = rows->has(i) ? 1 : 0;
  }
  return CAPSTAN_OK;
}

}  // namespace

capstan_snapshot* capstan_task_snapshot(capstan_task* task, double seconds, char* error) {
  if (capstan::worker::CheckSeconds(seconds, error) != CAPSTAN_OK) return nullptr;
  auto snapshot = std::make_unique<capstan_snapshot>();
  snapshot->source = std::make_unique<capstan::GrpcSnapshotSource>(
      capstan::GrpcSnapshotSource::Options{.scheduler = task->task->scheduler(),
                                           .credentials = task->task->credentials(),
                                           .capability = [task] {
                                             return task->task->capability();
                                           }});
  for (const auto& table : task->task->computation().tables()) {
    snapshot->tables.push_back(table.name());
  }
  auto reader =
      capstan::SnapshotReader::Open({.job_id = task->task->assignment().job_id(),
                                     .open_limit = absl::Seconds(std::min(seconds, kPatienceMax))},
                                    snapshot->clock, *snapshot->source);
  if (!reader.ok()) {
    Tell(reader.status().message(), error);
    return nullptr;
  }
  snapshot->reader = *std::move(reader);
  return snapshot.release();
}

capstan_code capstan_snapshot_read(capstan_snapshot* snapshot, int64_t table, const int64_t* keys,
                                   int64_t key_count, float* values, int64_t count,
                                   unsigned char* found, char* error) {
  const capstan_code code = capstan::worker::CheckArrays(keys, key_count, values, count, error);
  if (code != CAPSTAN_OK) return code;
  const auto tables = static_cast<int64_t>(snapshot->tables.size());
  if (table < 0 || table >= tables) {
    return Wrong(absl::StrCat("table ", table, ", expected 0 to ", tables - 1), error);
  }
  const std::string& name = snapshot->tables[static_cast<size_t>(table)];
  if (keys == nullptr) return ReadDense(snapshot, name, values, count, error);
  return ReadSparse(snapshot, name, keys, key_count, values, count, found, error);
}

void capstan_snapshot_close(capstan_snapshot* snapshot) {
  const std::unique_ptr<capstan_snapshot> owned(snapshot);
}
