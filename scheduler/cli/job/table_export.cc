#include "scheduler/cli/job/table_export.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/tables.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "common/tensor/model_file.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "values on the wire are little-endian");

constexpr int64_t kTableElementsMax = int64_t{4} << 30;  // 16 GiB.
constexpr int64_t kMessageElementsMax = 4 << 20;         // 16 MiB of values in each message.
constexpr int32_t kWaitLimitMs = 10'000;
constexpr size_t kCopyBytes = 1 << 20;  // Copied at a time.

using Tables = std::map<int32_t, PulledTable>;

// Returns `all` without the sparse tables and their shards.
v1::GetTablesResponse DenseOf(const v1::GetTablesResponse& all) {
  v1::GetTablesResponse dense;
  std::set<int32_t> sparse;
  for (const v1::TableSpec& spec : all.tables()) {
    if (spec.has_sparse()) {
      sparse.insert(spec.table());
    } else {
      *dense.add_tables() = spec;
    }
  }
  dense.mutable_routing()->set_generation(all.routing().generation());
  *dense.mutable_routing()->mutable_servers() = all.routing().servers();
  for (const v1::ShardRoute& route : all.routing().shards()) {
    if (!sparse.contains(route.table())) *dense.mutable_routing()->add_shards() = route;
  }
  return dense;
}

absl::StatusOr<Tables> MakeEmptyTables(const v1::GetTablesResponse& response) {
  Tables tables;
  for (const v1::TableSpec& spec : response.tables()) {
    CAPSTAN_RETURN_IF_ERROR(ValidateTable(spec));
    if (spec.elements() > kTableElementsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("table ", spec.name(), " has ", spec.elements(),
                       " elements, expected at most ", kTableElementsMax));
    }
    PulledTable& table = tables[spec.table()];
    table.spec = spec;
    table.version = std::numeric_limits<int64_t>::max();
    table.values.resize(static_cast<size_t>(spec.elements()));
  }
  return tables;
}

// Checks that the shards, which are ordered by (table, shard), cover each table from its first
// element to its last.
absl::Status CheckRouting(const Tables& tables, const v1::RoutingTable& routing) {
  std::map<int32_t, int64_t> covered;
  for (const v1::ShardRoute& shard : routing.shards()) {
    const auto table = tables.find(shard.table());
    const bool known =
        table != tables.end() && shard.server() >= 0 && shard.server() < routing.servers_size();
    int64_t& begin = covered[shard.table()];
    if (!known || shard.element_begin() != begin || shard.element_end() <= begin ||
        shard.element_end() > table->second.spec.elements()) {
      return absl::DataLossError(absl::StrCat(
          "routing table ", routing.generation(), ": shard ", shard.shard(), " of table ",
          shard.table(), " is [", shard.element_begin(), ", ", shard.element_end(), ") on server ",
          shard.server(), ", expected a known table and server and a range from ", begin));
    }
    begin = shard.element_end();
  }
  for (const auto& [index, table] : tables) {
    if (covered[index] == table.spec.elements()) continue;
    return absl::DataLossError(absl::StrCat("routing table ", routing.generation(), ": covers ",
                                            covered[index], " of ", table.spec.elements(),
                                            " elements of table ", table.spec.name()));
  }
  return absl::OkStatus();
}

absl::Status TakeShard(const v1::ShardRoute& route, const v1::ShardValues& shard, Tables& tables) {
  const int64_t count = route.element_end() - route.element_begin();
  if (shard.outcome() != v1::ShardValues::VALUES || shard.value_type() != v1::FLOAT32 ||
      static_cast<int64_t>(shard.values().size()) != count * int64_t{sizeof(float)}) {
    return absl::DataLossError(absl::StrCat(
        "shard ", route.shard(), " of table ", route.table(), ": got ",
        v1::ShardValues::Outcome_Name(shard.outcome()), " with ", shard.values().size(),
        " bytes, expected VALUES with ", count * int64_t{sizeof(float)}, " bytes of FLOAT32"));
  }
  PulledTable& table = tables[route.table()];
  std::memcpy(table.values.data() + route.element_begin(), shard.values().data(),
              shard.values().size());
  table.version = std::min(table.version, shard.version());
  return absl::OkStatus();
}

// Pulls the shards of `routes`, which are all on one server, in one message.
absl::Status PullShards(const std::string& job_id, uint64_t generation,
                        const std::vector<const v1::ShardRoute*>& routes, const PullFunction& pull,
                        Tables& tables) {
  v1::PullRequest request;
  request.mutable_caller()->set_job_id(job_id);
  request.mutable_caller()->set_rank(-1);
  request.mutable_caller()->set_routing_generation(generation);
  request.set_snapshot(true);
  request.set_wait_limit_ms(kWaitLimitMs);
  for (const v1::ShardRoute* route : routes) {
    v1::ShardPull* shard = request.add_shards();
    shard->set_table(route->table());
    shard->set_shard(route->shard());
    shard->set_held_version(-1);
  }
  CAPSTAN_ASSIGN_OR_RETURN(const v1::PullResponse response, pull(routes[0]->server(), request));
  if (response.shards_size() != request.shards_size()) {
    return absl::DataLossError(
        absl::StrCat("got ", response.shards_size(), " shards, expected ", request.shards_size()));
  }
  for (int i = 0; i < response.shards_size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(TakeShard(*routes[static_cast<size_t>(i)], response.shards(i), tables));
  }
  return absl::OkStatus();
}

// Copies the file beside `target`; Commit puts the copy in its place.
absl::StatusOr<std::unique_ptr<DurableFile>> CopyBeside(const std::string& target,
                                                        const std::string& source) {
  CAPSTAN_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(source));
  CAPSTAN_ASSIGN_OR_RETURN(auto copy, DurableFile::Create(target));
  std::string piece(kCopyBytes, '\0');
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got,
                             ReadFileAt(file, source, copy->bytes(), absl::MakeSpan(piece)));
    if (got == 0) return copy;
    CAPSTAN_RETURN_IF_ERROR(copy->Append(absl::string_view(piece).substr(0, got)));
  }
}

absl::Status NoModel(absl::string_view missing) {
  return absl::NotFoundError(
      absl::StrCat(missing, "; the job exported no model there, or it lies on another machine"));
}

}  // namespace

absl::StatusOr<std::vector<PulledTable>> PullTables(const std::string& job_id,
                                                    const v1::GetTablesResponse& all,
                                                    const PullFunction& pull) {
  if (all.tables_size() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(job_id, " has no tables: it has not been placed on servers yet"));
  }
  const v1::GetTablesResponse response = DenseOf(all);
  CAPSTAN_ASSIGN_OR_RETURN(Tables tables, MakeEmptyTables(response));
  const v1::RoutingTable& routing = response.routing();
  CAPSTAN_RETURN_IF_ERROR(CheckRouting(tables, routing));
  for (int server = 0; server < routing.servers_size(); ++server) {
    std::vector<const v1::ShardRoute*> batch;
    int64_t elements = 0;
    for (const v1::ShardRoute& route : routing.shards()) {
      if (route.server() != server) continue;
      const int64_t count = route.element_end() - route.element_begin();
      if (!batch.empty() && elements + count > kMessageElementsMax) {
        CAPSTAN_RETURN_IF_ERROR(PullShards(job_id, routing.generation(), batch, pull, tables));
        batch.clear();
        elements = 0;
      }
      batch.push_back(&route);
      elements += count;
    }
    if (batch.empty()) continue;
    CAPSTAN_RETURN_IF_ERROR(PullShards(job_id, routing.generation(), batch, pull, tables));
  }
  std::vector<PulledTable> pulled;
  for (auto& [index, table] : tables) pulled.push_back(std::move(table));
  return pulled;
}

absl::StatusOr<std::vector<std::string>> CopyModelFiles(const std::string& from,
                                                        const std::string& to) {
  namespace fs = std::filesystem;
  absl::StatusOr<std::vector<std::string>> files = ModelFilesIn(from);
  if (absl::IsNotFound(files.status())) return NoModel(files.status().message());
  if (!files.ok()) return files.status();
  CAPSTAN_RETURN_IF_ERROR(MakeDirectories(to));
  std::vector<std::unique_ptr<DurableFile>> copies;
  for (const std::string& file : *files) {
    const fs::path source = fs::path(from) / file;
    std::error_code error;
    if (!fs::exists(source, error)) {
      return NoModel(absl::StrCat(source.string(), ": no such file"));
    }
    const fs::path target = fs::path(to) / file;
    if (fs::equivalent(source, target, error)) continue;
    CAPSTAN_ASSIGN_OR_RETURN(copies.emplace_back(), CopyBeside(target.string(), source.string()));
  }
  for (const std::unique_ptr<DurableFile>& copy : copies) CAPSTAN_RETURN_IF_ERROR(copy->Commit());
  return files;
}

}  // namespace capstan::cli
