#include "common/snapshot/snapshot_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/tables.h"
#include "common/sparse/key_batch.h"
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
constexpr int64_t kAnswerBytes = 1 << 20;                // Bytes of rows in one answer.
constexpr int64_t kTableElementsMax = int64_t{4} << 30;  // 16 GiB.

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

uint64_t RandomName() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

SnapshotReader::Options WithName(SnapshotReader::Options options) {
  while (options.reader == 0) options.reader = RandomName();
  return options;
}

// Calls `ask` until the answer is not "away", or `patience` has passed.
template <typename Ask>
auto AskPatiently(const Clock& clock, absl::Duration patience, SnapshotSource& source,
                  const Ask& ask) -> decltype(ask()) {
  const Instant begin = clock.Now();
  absl::Duration pause = kPauseMin;
  while (true) {
    auto answer = ask();
    if (answer.ok() || !IsAway(answer.status())) return answer;
    if (clock.Now() - begin >= patience) {
      return absl::UnavailableError(absl::StrCat("no answer for ",
                                                 DurationText(clock.Now() - begin),
                                                 ", at last: ", answer.status().ToString()));
    }
    CAPSTAN_RETURN_IF_ERROR(source.Pause(pause));
    pause = std::min(2 * pause, kPauseMax);
  }
}

}  // namespace

// ---------------------------------------------------------------- opening

absl::StatusOr<std::unique_ptr<SnapshotReader>> SnapshotReader::Open(const Options& options,
                                                                     const Clock& clock,
                                                                     SnapshotSource& source) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(WithName(options), clock, source));
  CAPSTAN_ASSIGN_OR_RETURN(const v1::OpenSnapshotResponse opened, reader->AskOpen());
  if (opened.snapshot_id() == 0) {
    return absl::DeadlineExceededError(absl::StrCat("no snapshot of ", options.job_id, " within ",
                                                    DurationText(options.open_limit),
                                                    ": the job did not become quiet"));
  }
  CAPSTAN_RETURN_IF_ERROR(reader->TakeTables(opened));
  reader->iteration_ = opened.iteration();
  reader->id_ = opened.snapshot_id();
  CAPSTAN_RETURN_IF_ERROR(reader->Renew());  // The answers tell the lease.
  return reader;
}

absl::StatusOr<v1::OpenSnapshotResponse> SnapshotReader::AskOpen() {
  v1::OpenSnapshotRequest request;
  request.set_job_id(options_.job_id);
  request.set_reader(options_.reader);
  request.set_wait_limit_ms(static_cast<int32_t>(
      absl::ToInt64Milliseconds(std::min(options_.open_limit, absl::Minutes(1)))));
  auto opened =
      AskPatiently(clock_, options_.patience, source_, [&] { return source_.Open(request); });
  if (!opened.ok()) return Annotate(opened.status(), "opening a snapshot");
  return opened;
}

absl::Status SnapshotReader::TakeTables(const v1::OpenSnapshotResponse& opened) {
  std::map<int32_t, std::string> names;
  for (const v1::TableSpec& spec : opened.tables()) {
    CAPSTAN_RETURN_IF_ERROR(ValidateTable(spec));
    const bool fresh = names.insert({spec.table(), spec.name()}).second;
    if (!fresh || !tables_.insert({spec.name(), {spec, {}, {}}}).second) {
      return absl::DataLossError(
          absl::StrCat("table ", spec.table(), " (", spec.name(), ") is given twice"));
    }
  }
  for (const v1::ServerAddress& server : opened.routing().servers()) {
    servers_.push_back({.address = server, .asked = Instant()});
  }
  for (const v1::ShardRoute& route : opened.routing().shards()) {
    const auto name = names.find(route.table());
    if (name == names.end() || route.server() < 0 ||
        route.server() >= opened.routing().servers_size()) {
      return absl::DataLossError(absl::StrCat(
          "routing table ", opened.routing().generation(), ": shard ", route.shard(), " of table ",
          route.table(), " on server ", route.server(), ": expected a known table and server"));
    }
    Table& table = tables_.at(name->second);
    const auto server = static_cast<size_t>(route.server());
    table.elements.push_back({route.element_begin(), route.element_end()});
    table.servers.push_back(server);
    servers_[server].has_shards = true;
  }
  for (const auto& [name, table] : tables_) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(CheckShards(table), absl::StrCat("table ", name)));
  }
  return absl::OkStatus();
}

// Checks that the shards, in their order, cover the table from its first element (or bucket) to its
// last.
absl::Status SnapshotReader::CheckShards(const Table& table) const {
  int64_t covered = 0;
  for (const Range& range : table.elements) {
    const bool fits = range.begin == covered && range.end > covered &&
                      (!table.spec.has_sparse() || range.size() == 1);
    if (!fits) {
      return absl::DataLossError(absl::StrCat("a shard is [", range.begin, ", ", range.end,
                                              "): expected one from ", covered, " on"));
    }
    covered = range.end;
  }
  if (covered == table.spec.elements()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("shards cover ", covered, " of ", table.spec.elements(),
                                          " elements or buckets"));
}

SnapshotReader::~SnapshotReader() {
  if (id_ == 0) return;
  v1::CloseSnapshotRequest request;
  request.set_job_id(options_.job_id);
  request.set_snapshot_id(id_);
  request.set_reader(options_.reader);
  for (const Server& server : servers_) {
    if (server.has_shards) source_.Close(server.address, request).IgnoreError();
  }
}

// ---------------------------------------------------------------- asking

std::vector<std::string> SnapshotReader::tables() const {
  std::vector<std::string> names;
  for (const auto& [name, table] : tables_) names.push_back(name);
  return names;
}

absl::StatusOr<const v1::TableSpec*> SnapshotReader::SpecOf(const std::string& name) const {
  CAPSTAN_ASSIGN_OR_RETURN(const Table* const table, Find(name));
  return &table->spec;
}

absl::StatusOr<const SnapshotReader::Table*> SnapshotReader::Find(const std::string& name) const {
  const auto table = tables_.find(name);
  if (table != tables_.end()) return &table->second;
  return absl::InvalidArgumentError(absl::StrCat(options_.job_id, " has no table \"", name,
                                                 "\": expected one of ",
                                                 absl::StrJoin(tables(), ", ")));
}

absl::StatusOr<const SnapshotReader::Table*> SnapshotReader::Find(const std::string& name,
                                                                  bool sparse) const {
  CAPSTAN_ASSIGN_OR_RETURN(const Table* const table, Find(name));
  if (table->spec.has_sparse() == sparse) return table;
  return absl::InvalidArgumentError(
      absl::StrCat("table ", name, " is ",
                   sparse ? "dense: expected a sparse one" : "sparse: expected a dense one"));
}

std::string SnapshotReader::NameOf(size_t server) const {
  const v1::ServerAddress& address = servers_[server].address;
  return absl::StrCat("snapshot ", id_, " of ", options_.job_id, ", ", address.node_id(), " at ",
                      address.address());
}

absl::StatusOr<v1::ReadSnapshotResponse> SnapshotReader::Ask(size_t server,
                                                             v1::ReadSnapshotRequest request) {
  request.set_job_id(options_.job_id);
  request.set_snapshot_id(id_);
  request.set_reader(options_.reader);
  const Instant asked = clock_.Now();
  auto answer = AskPatiently(clock_, options_.patience, source_,
                             [&] { return source_.Read(servers_[server].address, request); });
  if (absl::IsNotFound(answer.status())) {  // The snapshot was there before.
    answer = absl::AbortedError(answer.status().message());
  }
  if (!answer.ok()) return Annotate(answer.status(), NameOf(server));
  servers_[server].asked = asked;
  if (answer->lease_ms() > 0) lease_ = absl::Milliseconds(answer->lease_ms());
  return answer;
}

absl::Status SnapshotReader::Renew() { return RenewBefore(Instant::InfiniteFuture()); }

// Renews the lease at each server that was last asked before `asked`.
absl::Status SnapshotReader::RenewBefore(Instant asked) {
  for (size_t server = 0; server < servers_.size(); ++server) {
    if (!servers_[server].has_shards || servers_[server].asked >= asked) continue;
    CAPSTAN_RETURN_IF_ERROR(Ask(server, {}).status());
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- reading

absl::StatusOr<ReadRows> SnapshotReader::Rows(const std::string& name,
                                              absl::Span<const uint64_t> keys) {
  CAPSTAN_ASSIGN_OR_RETURN(const Table* const table, Find(name, /*sparse=*/true));
  const int32_t buckets = table->spec.sparse().buckets();
  ReadRows rows{.dim = table->spec.sparse().dim(), .at = {}, .values = {}};
  // Most keys of one request.
  const int64_t keys_max = std::max<int64_t>(1, kAnswerBytes / (rows.dim * int64_t{sizeof(float)}));
  std::vector<uint32_t> places;
  const KeyBatch batch = MakeKeyBatch(keys, buckets, &places);
  std::vector<int64_t> at(batch.keys.size());
  for (int32_t bucket = 0; bucket < buckets; ++bucket) {
    const Range range = batch.InBucket(bucket);
    for (int64_t begin = range.begin; begin < range.end; begin += keys_max) {
      CAPSTAN_RETURN_IF_ERROR(RenewBefore(clock_.Now() - lease_ / 3));
      const auto asked = absl::MakeConstSpan(batch.keys)
                             .subspan(static_cast<size_t>(begin),
                                      static_cast<size_t>(std::min(keys_max, range.end - begin)));
      v1::ReadSnapshotRequest request;
      request.mutable_rows()->set_table(table->spec.table());
      request.mutable_rows()->set_shard(bucket);
      request.mutable_rows()->set_keys(asked.data(), asked.size() * sizeof(uint64_t));
      const size_t server = table->servers[static_cast<size_t>(bucket)];
      CAPSTAN_ASSIGN_OR_RETURN(const auto response, Ask(server, std::move(request)));
      CAPSTAN_RETURN_IF_ERROR(
          Annotate(TakeRows(response, asked, at.data() + begin, &rows), NameOf(server)));
    }
  }
  for (const uint32_t place : places) rows.at.push_back(at[place]);
  return rows;
}

absl::Status SnapshotReader::TakeRows(const v1::ReadSnapshotResponse& response,
                                      absl::Span<const uint64_t> keys, int64_t* at,
                                      ReadRows* rows) const {
  const std::string& found = response.found();
  const std::string& values = response.values();
  if (found.size() != (keys.size() + 7) / 8) {
    return absl::DataLossError(absl::StrCat(found.size(), " bytes of bits: expected ",
                                            (keys.size() + 7) / 8, " for ", keys.size(), " keys"));
  }
  const int64_t before = std::ssize(rows->values) / rows->dim;
  int64_t count = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    at[i] = (found[i / 8] >> i % 8 & 1) != 0 ? before + count++ : -1;
  }
  const auto bytes = static_cast<size_t>(count * rows->dim) * sizeof(float);
  if (values.size() != bytes) {
    return absl::DataLossError(absl::StrCat(values.size(), " bytes of rows: expected ", bytes,
                                            " of ", count, " that were found"));
  }
  rows->values.resize(static_cast<size_t>((before + count) * rows->dim));
  if (bytes > 0) std::memcpy(rows->values.data() + before * rows->dim, values.data(), bytes);
  return absl::OkStatus();
}

absl::Status SnapshotReader::AllRows(const std::string& name, const RowSink& sink) {
  CAPSTAN_ASSIGN_OR_RETURN(const Table* const table, Find(name, /*sparse=*/true));
  for (int32_t bucket = 0; bucket < table->spec.sparse().buckets(); ++bucket) {
    const size_t server = table->servers[static_cast<size_t>(bucket)];
    uint64_t place = 0;
    do {
      CAPSTAN_RETURN_IF_ERROR(RenewBefore(clock_.Now() - lease_ / 3));
      v1::ReadSnapshotRequest request;
      request.mutable_bucket()->set_table(table->spec.table());
      request.mutable_bucket()->set_shard(bucket);
      request.mutable_bucket()->set_place(place);
      request.mutable_bucket()->set_bytes_max(kAnswerBytes);
      CAPSTAN_ASSIGN_OR_RETURN(const auto response, Ask(server, std::move(request)));
      const auto next = TakeBucket(response, *table, bucket, place, sink);
      if (!next.ok()) return Annotate(next.status(), NameOf(server));
      place = *next;
    } while (place != 0);
  }
  return absl::OkStatus();
}

// Returns the place to go on from; 0 if the bucket is complete.
absl::StatusOr<uint64_t> SnapshotReader::TakeBucket(const v1::ReadSnapshotResponse& response,
                                                    const Table& table, int32_t bucket,
                                                    uint64_t place, const RowSink& sink) const {
  const auto dim = static_cast<size_t>(table.spec.sparse().dim());
  const size_t row_bytes = sizeof(uint64_t) + dim * sizeof(float);
  const std::string& bytes = response.values();
  if (bytes.size() % row_bytes != 0) {
    return absl::DataLossError(absl::StrCat(bytes.size(), " bytes of keys and rows: expected a ",
                                            "multiple of ", row_bytes));
  }
  std::vector<uint64_t> keys(bytes.size() / row_bytes);
  std::vector<float> values(keys.size() * dim);
  if (!keys.empty()) {
    std::memcpy(keys.data(), bytes.data(), keys.size() * sizeof(uint64_t));
    std::memcpy(values.data(), bytes.data() + keys.size() * sizeof(uint64_t),
                values.size() * sizeof(float));
  }
  std::optional<uint64_t> last;
  for (const uint64_t key : keys) {
    const KeyPlace at = PlaceOf(KeyHash(key), table.spec.sparse().buckets());
    if (at.bucket != bucket || at.place < place || (last.has_value() && at.place <= *last)) {
      return absl::DataLossError(absl::StrCat("key ", key, " of bucket ", at.bucket, ", place ",
                                              at.place, ": expected bucket ", bucket,
                                              " and a higher place"));
    }
    last = at.place;
  }
  CAPSTAN_RETURN_IF_ERROR(sink(keys, values));
  if (response.end()) return 0;
  if (response.next_place() > std::max(place, last.value_or(place))) return response.next_place();
  return absl::DataLossError(absl::StrCat("is to be asked from place ", response.next_place(),
                                          " on: expected a higher one"));
}

absl::StatusOr<std::vector<float>> SnapshotReader::Values(const std::string& name) {
  CAPSTAN_ASSIGN_OR_RETURN(const Table* const table, Find(name, /*sparse=*/false));
  if (table->spec.elements() > kTableElementsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("table ", name, " has ", table->spec.elements(),
                     " elements: expected at most ", kTableElementsMax));
  }
  std::vector<float> values(static_cast<size_t>(table->spec.elements()));
  for (size_t shard = 0; shard < table->elements.size(); ++shard) {
    CAPSTAN_RETURN_IF_ERROR(RenewBefore(clock_.Now() - lease_ / 3));
    v1::ReadSnapshotRequest request;
    request.mutable_values()->set_table(table->spec.table());
    request.mutable_values()->set_shard(static_cast<int32_t>(shard));
    const size_t server = table->servers[shard];
    CAPSTAN_ASSIGN_OR_RETURN(const auto response, Ask(server, std::move(request)));
    const Range& range = table->elements[shard];
    const auto bytes = static_cast<size_t>(range.size()) * sizeof(float);
    if (response.values().size() != bytes) {
      return absl::DataLossError(absl::StrCat(NameOf(server), ": table ", name, " shard ", shard,
                                              ": ", response.values().size(), " bytes: expected ",
                                              bytes));
    }
    std::memcpy(values.data() + range.begin, response.values().data(), bytes);
  }
  return values;
}

}  // namespace capstan
