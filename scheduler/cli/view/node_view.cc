#include "scheduler/cli/view/node_view.h"

#include <google/protobuf/repeated_field.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/observability/log_histogram.h"
#include "common/time/duration_text.h"
#include "scheduler/cli/view/text/format.h"
#include "scheduler/cli/view/text/text_table.h"

namespace capstan::cli {
namespace {

using Align = TextTable::Align;

constexpr size_t kValuesShown = 4;  // Limit for each tensor.

std::string Versions(const v1::HeldTable& table) {
  if (table.version_min() == table.version_max()) return FormatCount(table.version_min());
  return absl::StrCat(FormatCount(table.version_min()), "..", FormatCount(table.version_max()));
}

template <typename Is>
bool AnyTable(const TableListOutput& list, const Is& is) {
  return std::any_of(list.servers().begin(), list.servers().end(), [&](const ServerTables& server) {
    return std::any_of(server.tables().begin(), server.tables().end(), is);
  });
}

bool IsSparse(const v1::HeldTable& held) { return held.has_rows(); }
bool HadLate(const v1::HeldTable& held) { return held.pushes_late() > 0; }

// Adds the row counts of a sparse table; a dense table gets empty cells.
void AddRowCounts(const v1::HeldTable& held, std::vector<std::string>* row) {
  const v1::RowCounts& rows = held.rows();
  for (const int64_t count : {rows.held(), rows.admitted(), rows.refused(), rows.evicted_by_age(),
                              rows.evicted_by_limit(), held.rows_on_disk()}) {
    row->push_back(held.has_rows() ? FormatCount(count) : "");
  }
}

std::string StateOf(const v1::NodeStatus& node) {
  if (!node.alive()) return "dead";
  return node.draining() ? "draining" : "alive";
}

// Returns "2/8" (taken/all). Returns "0" if tasks can use no GPU; DescribeNode() names the reason.
std::string GpusText(const v1::NodeStatus& node) {
  if (node.role() != v1::WORKER) return "";
  const v1::Devices& devices = node.devices();
  if (!devices.unusable().empty() || devices.gpus_size() == 0) return "0";
  return absl::StrCat(node.gpus_taken_size(), "/", devices.gpus_size());
}

bool AnyGpus(const v1::ListNodesResponse& nodes) {
  return std::any_of(nodes.nodes().begin(), nodes.nodes().end(),
                     [](const auto& node) { return node.devices().gpus_size() > 0; });
}

using CountedCalls = google::protobuf::RepeatedPtrField<v1::CallCount>;

bool IsRefusal(const v1::CallCount& count) { return count.outcome() != "allowed"; }

int64_t RefusedCalls(const CountedCalls& counts) {
  int64_t calls = 0;
  for (const v1::CallCount& count : counts) calls += IsRefusal(count) ? count.calls() : 0;
  return calls;
}

bool AnyRefused(const v1::ListNodesResponse& nodes) {
  return std::any_of(nodes.nodes().begin(), nodes.nodes().end(),
                     [](const auto& node) { return RefusedCalls(node.calls()) > 0; });
}

// One row for each method and what refused its calls. Empty: no call was refused.
std::string RefusedTable(const CountedCalls& counts) {
  TextTable table({{"REFUSED CALLS OF"}, {"BY"}, {"CALLS", Align::kRight}});
  for (const v1::CallCount& count : counts) {
    if (!IsRefusal(count)) continue;
    table.AddRow({count.method().empty() ? "(none)" : count.method(), count.outcome(),
                  FormatCount(count.calls())});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString());
}

std::string StateOfGpu(const v1::NodeStatus& node, int index) {
  const auto among = [index](const auto& gpus) {
    return std::find(gpus.begin(), gpus.end(), index) != gpus.end();
  };
  if (!node.devices().unusable().empty()) return "unusable";
  if (among(node.gpus_lost())) return "lost";
  return among(node.gpus_taken()) ? "taken" : "free";
}

std::string GpuTable(const v1::NodeStatus& node) {
  TextTable table({{"GPU", Align::kRight},
                   {"NAME"},
                   {"MEMORY", Align::kRight},
                   {"FREE AT START", Align::kRight},
                   {"COMPUTE"},
                   {"STATE"}});
  for (const v1::Gpu& gpu : node.devices().gpus()) {
    table.AddRow({absl::StrCat(gpu.index()), gpu.name(), FormatBytes(gpu.memory_bytes()),
                  gpu.memory_free_bytes() == 0 ? "" : FormatBytes(gpu.memory_free_bytes()),
                  gpu.compute_capability(), StateOfGpu(node, gpu.index())});
  }
  return table.ToString();
}

std::string ServerName(const v1::RoutingTable& routing, int server) {
  const bool known = server >= 0 && server < routing.servers_size();
  return known ? routing.servers(server).node_id() : absl::StrCat("server ", server);
}

// Returns "< 1.0 ms", or "-" if nothing was recorded.
std::string Percentile(const v1::TrafficHistogram& histogram, double share) {
  const int64_t bound = PercentileBound(histogram.counts(), share);
  return bound == 0 ? "-" : absl::StrFormat("< %.3g ms", static_cast<double>(bound) / 1000);
}

// Prints enough digits that each number, when read back, is the same float.
template <typename Floats>
std::string Values(const Floats& values) {
  return absl::StrJoin(values, " ", [](std::string* out, float value) {
    absl::StrAppend(out, absl::StrFormat("%.9g", value));
  });
}

std::string Moment(const TableReadOutput& read) {
  return absl::StrCat("Snapshot ", read.snapshot_id(), " of ", read.job_id(), ", at iteration ",
                      read.iteration(), ".\n");
}

}  // namespace

std::string NodeTable(const v1::ListNodesResponse& nodes) {
  const int64_t by_scheduler = RefusedCalls(nodes.scheduler_calls());
  const std::string end = by_scheduler == 0 ? ""
                                            : absl::StrCat("The scheduler has refused ",
                                                           FormatCount(by_scheduler), " calls.\n");
  if (nodes.nodes_size() == 0) {
    return absl::StrCat("No servers and no workers have registered.\n", end);
  }
  const bool gpus = AnyGpus(nodes);
  const bool refused = AnyRefused(nodes);
  std::vector<TextTable::Column> columns = {
      {"NODE"}, {"ROLE"}, {"STATE"}, {"ADDRESS"}, {"TASKS", Align::kRight}};
  if (gpus) columns.push_back({"GPUS", Align::kRight});
  columns.push_back({"SHARDS", Align::kRight});
  if (refused) columns.push_back({"REFUSED", Align::kRight});
  columns.insert(columns.end(),
                 {{"LAST SEEN", Align::kRight}, {"VERSION"}, {"HOST"}, {"PID", Align::kRight}});
  TextTable table(columns);
  for (const v1::NodeStatus& node : nodes.nodes()) {
    const bool worker = node.role() == v1::WORKER;
    std::vector<std::string> row = {
        node.node_id(), RoleName(node.role()), StateOf(node), node.address(),
        worker ? absl::StrCat(node.tasks(), "/", node.task_capacity()) : ""};
    if (gpus) row.push_back(GpusText(node));
    row.push_back(worker ? "" : FormatCount(node.shards()));
    if (refused) row.push_back(FormatCount(RefusedCalls(node.calls())));
    row.insert(row.end(), {DurationText(absl::Milliseconds(node.last_seen_ms())), node.version(),
                           node.hostname(), absl::StrCat(node.pid())});
    table.AddRow(row);
  }
  return absl::StrCat(table.ToString(), end);
}

std::string DescribeNode(const v1::NodeStatus& node) {
  const v1::Devices& devices = node.devices();
  const bool worker = node.role() == v1::WORKER;
  std::string text = absl::StrCat(Printable(node.node_id()), ": ", RoleName(node.role()), ", ",
                                  StateOf(node), "\n");
  AddField(&text, "address", node.address());
  AddField(&text, "process", absl::StrCat(node.pid(), " on ", node.hostname()));
  AddField(&text, "version", node.version());
  AddField(&text, "last seen", DurationText(absl::Milliseconds(node.last_seen_ms())));
  if (!worker) {
    AddField(&text, "shards", FormatCount(node.shards()));
    for (const v1::PluginRule& rule : node.plugin_rules()) {
      AddField(&text, "rule", absl::StrCat(rule.name(), ", plugin SHA-256 ", rule.digest()));
    }
    return absl::StrCat(text, RefusedTable(node.calls()));
  }
  AddField(&text, "tasks", absl::StrCat(node.tasks(), " in ", node.task_capacity(), " slots"));
  AddField(&text, "driver", devices.driver_version());
  AddField(&text, "CUDA", devices.cuda_version());
  const std::string none = devices.unusable().empty() ? "no GPU" : devices.unusable();
  if (devices.gpus_size() == 0) {
    AddField(&text, "GPUs", absl::StrCat("none: ", none));
  } else {
    if (!devices.unusable().empty()) AddField(&text, "GPUs", absl::StrCat("unusable: ", none));
    absl::StrAppend(&text, "\n", GpuTable(node));
  }
  return absl::StrCat(text, RefusedTable(node.calls()));
}

std::string HeldTableTable(const TableListOutput& list) {
  std::vector<TextTable::Column> columns = {{"JOB"},
                                            {"TABLE"},
                                            {"SERVER"},
                                            {"SHARDS", Align::kRight},
                                            {"ELEMENTS", Align::kRight},
                                            {"MEMORY", Align::kRight},
                                            {"VERSION", Align::kRight},
                                            {"PUSHES", Align::kRight},
                                            {"DUPLICATES", Align::kRight}};
  const bool late = AnyTable(list, HadLate);
  if (late) columns.push_back({"LATE", Align::kRight});
  const bool sparse = AnyTable(list, IsSparse);
  if (sparse) {
    for (const char* name : {"ROWS", "ADMITTED", "REFUSED", "TOO OLD", "TOO MANY", "ON DISK"}) {
      columns.push_back({name, Align::kRight});
    }
  }
  TextTable table(columns);
  for (const ServerTables& server : list.servers()) {
    for (const v1::HeldTable& held : server.tables()) {
      std::vector<std::string> row = {held.job_id(),
                                      held.name(),
                                      server.server(),
                                      FormatCount(held.shards()),
                                      FormatCount(held.elements()),
                                      FormatBytes(held.bytes()),
                                      Versions(held),
                                      FormatCount(held.pushes_applied()),
                                      FormatCount(held.pushes_duplicate())};
      if (late) row.push_back(FormatCount(held.pushes_late()));
      if (sparse) AddRowCounts(held, &row);
      table.AddRow(row);
    }
  }
  return table.empty() ? "No tables.\n" : table.ToString();
}

namespace {

// One row for each server with calls that name lists of keys. Empty: there is no such server.
std::string KeyListTable(const TrafficOutput& traffic) {
  TextTable table({{"SERVER"},
                   {"KEY LISTS", Align::kRight},
                   {"MEMORY", Align::kRight},
                   {"NAMED", Align::kRight},
                   {"USED", Align::kRight},
                   {"UNKNOWN", Align::kRight}});
  for (const ServerTraffic& server : traffic.servers()) {
    const v1::KeyListCounts& lists = server.path().key_lists();
    if (lists.named() == 0 && lists.unknown() == 0) continue;
    table.AddRow({server.server(), FormatCount(lists.kept()), FormatBytes(lists.bytes()),
                  FormatCount(lists.named()), FormatCount(lists.used()),
                  FormatCount(lists.unknown())});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString());
}

}  // namespace

std::string TrafficTable(const TrafficOutput& traffic) {
  TextTable table({{"SERVER"},
                   {"METHOD"},
                   {"CALLS", Align::kRight},
                   {"BY GRPC", Align::kRight},
                   {"REFUSED", Align::kRight},
                   {"OPEN", Align::kRight},
                   {"MOST", Align::kRight},
                   {"VALUES", Align::kRight},
                   {"SHARED MEMORY", Align::kRight},
                   {"WORK P50", Align::kRight},
                   {"P99", Align::kRight},
                   {"ANSWER P50", Align::kRight},
                   {"P99", Align::kRight}});
  for (const ServerTraffic& server : traffic.servers()) {
    for (const v1::MethodTraffic& method : server.path().methods()) {
      if (method.calls() == 0 && method.open() == 0) continue;
      const int64_t by_grpc = method.calls() + method.open() - method.data_calls();
      table.AddRow({server.server(), method.name(), FormatCount(method.calls()),
                    FormatCount(std::max<int64_t>(by_grpc, 0)), FormatCount(method.refused()),
                    FormatCount(method.open()), FormatCount(method.open_max()),
                    FormatBytes(method.bytes()), FormatBytes(method.shared_bytes()),
                    Percentile(method.apply(), 0.5), Percentile(method.apply(), 0.99),
                    Percentile(method.answer(), 0.5), Percentile(method.answer(), 0.99)});
    }
  }
  return table.empty() ? "No calls.\n" : absl::StrCat(table.ToString(), KeyListTable(traffic));
}

std::string PlacementTable(const v1::GetTablesResponse& tables) {
  const v1::RoutingTable& routing = tables.routing();
  TextTable table({{"TABLE"},
                   {"SHARD", Align::kRight},
                   {"ELEMENTS", Align::kRight},
                   {"PRIMARY"},
                   {"TERM", Align::kRight},
                   {"REPLICAS"}});
  for (const v1::ShardRoute& shard : routing.shards()) {
    std::vector<std::string> replicas;
    for (const v1::ShardReplica& replica : shard.replicas()) {
      replicas.push_back(absl::StrCat(ServerName(routing, replica.server()),
                                      replica.in_sync() ? "" : " (being filled)"));
    }
    const bool named = shard.table() >= 0 && shard.table() < tables.tables_size();
    table.AddRow({named ? tables.tables(shard.table()).name() : absl::StrCat(shard.table()),
                  absl::StrCat(shard.shard()),
                  FormatCount(shard.element_end() - shard.element_begin()),
                  ServerName(routing, shard.server()), absl::StrCat(shard.term()),
                  absl::StrJoin(replicas, ", ")});
  }
  return table.ToString();
}

std::string RowsTable(const TableReadOutput& read) {
  TextTable table({{"KEY", Align::kRight}, {"ROW"}});
  for (const TableRow& row : read.rows()) {
    table.AddRow({absl::StrCat(row.key()), row.found() ? Values(row.values()) : "(no row)"});
  }
  return absl::StrCat(table.ToString(), Moment(read));
}

std::string TensorsTable(const TableReadOutput& read) {
  const bool in_file = !read.file().empty();
  TextTable table({{"TENSOR"}, {"SHAPE"}, {in_file ? "" : "VALUES"}});
  for (const TableTensor& tensor : read.tensors()) {
    std::string values;
    if (!in_file) {
      const auto all = absl::MakeConstSpan(tensor.values());
      values = Values(all.first(std::min(all.size(), kValuesShown)));
      if (all.size() > kValuesShown) {
        absl::StrAppend(&values, " ... of ", FormatCount(std::ssize(all)));
      }
    }
    table.AddRow(
        {tensor.name(), absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "]"), values});
  }
  return absl::StrCat(table.ToString(), in_file ? absl::StrCat(read.file(), "\n") : "",
                      Moment(read));
}

}  // namespace capstan::cli
