// Node views: a cluster's daemons, and the tables that its servers hold, as text for people.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"
#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// One row a daemon.
std::string NodeTable(const v1::ListNodesResponse& nodes);

// A daemon in full, with a row a GPU.
std::string DescribeNode(const v1::NodeStatus& node);

// One row a table and server.
std::string HeldTableTable(const TableListOutput& list);

// One row a server and method that was called: how often, how much, how long.
std::string TrafficTable(const TrafficOutput& traffic);

// One row a shard: which server is its primary, and which hold replicas.
std::string PlacementTable(const v1::GetTablesResponse& tables);

// A row a key, of a sparse table.
std::string RowsTable(const TableReadOutput& read);

// A row a tensor, of a dense table, with its first values or where they are.
std::string TensorsTable(const TableReadOutput& read);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_
