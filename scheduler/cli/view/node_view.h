// Node views: format a cluster's daemons, and the tables on its servers, as text for users.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_
#define CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_

#include <string>

#include "proto/scheduler.pb.h"
#include "scheduler/cli/view/output.pb.h"

namespace capstan::cli {

// One row for each daemon.
std::string NodeTable(const v1::ListNodesResponse& nodes);

// The whole status of a daemon, with one row for each GPU.
std::string DescribeNode(const v1::NodeStatus& node);

// One row for each table on each server.
std::string HeldTableTable(const TableListOutput& list);

// One row for each called method of each server: the number, bytes and durations of its calls.
std::string TrafficTable(const TrafficOutput& traffic);

// One row for each shard: its primary server, and the servers of its replicas.
std::string PlacementTable(const v1::GetTablesResponse& tables);

// One row for each key of a sparse table.
std::string RowsTable(const TableReadOutput& read);

// One row for each tensor of a dense table, with its first values or the name of the file.
std::string TensorsTable(const TableReadOutput& read);

}  // namespace capstan::cli

#endif  // CAPSTAN_SCHEDULER_CLI_VIEW_NODE_VIEW_H_
