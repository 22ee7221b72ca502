#include "scheduler/cli/view/node_view.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace capstan::cli::node_view_test {
namespace {

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

TEST_CASE("NodeTable: servers show shards, workers show tasks", "[cli]") {
  CHECK(NodeTable({}) == "No servers and no workers have registered.\n");
  CHECK(NodeTable(Parse<v1::ListNodesResponse>(R"(
          nodes { node_id: "server-1" role: SERVER address: "127.0.0.1:1" hostname: "h" pid: 10
                  alive: true last_seen_ms: 100 shards: 4 version: "0.1.0" }
          nodes { node_id: "worker-1" role: WORKER address: "127.0.0.1:2" hostname: "h" pid: 11
                  last_seen_ms: 65000 task_capacity: 2 tasks: 1 version: "0.1.0" })")) ==
        "NODE      ROLE    STATE  ADDRESS      TASKS  SHARDS  LAST SEEN  VERSION  HOST  PID\n"
        "server-1  server  alive  127.0.0.1:1      -       4      0.1 s  0.1.0    h      10\n"
        "worker-1  worker  dead   127.0.0.1:2    1/2       -  1 min 5 s  0.1.0    h      11\n");
}

TEST_CASE("NodeTable: a node that is drained says so, unless it is dead", "[cli]") {
  const std::string table = NodeTable(Parse<v1::ListNodesResponse>(R"(
      nodes { node_id: "server-1" role: SERVER alive: true draining: true }
      nodes { node_id: "server-2" role: SERVER draining: true })"));
  CHECK_THAT(table, Catch::Contains("server-1  server  draining"));
  CHECK_THAT(table, Catch::Contains("server-2  server  dead"));
}

TEST_CASE("NodeTable: refused calls have a column where there are some", "[cli]") {
  const auto nodes = Parse<v1::ListNodesResponse>(R"(
      nodes { node_id: "server-1" role: SERVER alive: true shards: 4
              calls { method: "/a/Pull" outcome: "allowed" calls: 50 }
              calls { method: "/a/Push" outcome: "gate" calls: 3 }
              calls { outcome: "handshake" calls: 4 } }
      nodes { node_id: "worker-1" role: WORKER alive: true task_capacity: 2 }
      scheduler_calls { method: "/a/SubmitJob" outcome: "allowed" calls: 7 }
      scheduler_calls { method: "/a/SubmitJob" outcome: "handler" calls: 2 })");
  const std::string table = NodeTable(nodes);
  CHECK_THAT(table, Catch::Contains("SHARDS  REFUSED  LAST SEEN"));
  CHECK_THAT(table, Catch::Contains("     4        7  "));
  CHECK_THAT(table, Catch::EndsWith("The scheduler has refused 2 calls.\n"));
  CHECK_THAT(DescribeNode(nodes.nodes(0)), Catch::EndsWith("\n"
                                                           "REFUSED CALLS OF  BY         CALLS\n"
                                                           "/a/Push           gate           3\n"
                                                           "(none)            handshake      4\n"));
  CHECK_THAT(DescribeNode(nodes.nodes(1)), !Catch::Contains("REFUSED"));
}

constexpr char kGpuWorker[] = R"(
    node_id: "worker-1" role: WORKER address: "h:2" hostname: "h" pid: 11 alive: true
    last_seen_ms: 100 task_capacity: 2 tasks: 1 version: "0.1.0"
    gpus_taken: 0 gpus_lost: 2
    devices { driver_version: "580.82.07" cuda_version: "13.0"
              gpus { index: 0 name: "NVIDIA L4" memory_bytes: 25769803776
                     memory_free_bytes: 24696061952 compute_capability: "8.9" }
              gpus { index: 1 name: "NVIDIA L4" memory_bytes: 25769803776
                     compute_capability: "8.9" }
              gpus { index: 2 name: "NVIDIA L4" memory_bytes: 25769803776
                     compute_capability: "8.9" } })";

TEST_CASE("NodeTable: GPUs have a column where a worker has some", "[cli]") {
  const std::string table =
      NodeTable(Parse<v1::ListNodesResponse>(absl::StrCat("nodes { ", kGpuWorker, "}", R"(
      nodes { node_id: "worker-2" role: WORKER alive: true task_capacity: 1
              devices { unusable: "no CUDA driver" } }
      nodes { node_id: "server-1" role: SERVER alive: true })")));
  CHECK_THAT(table, Catch::Contains("TASKS  GPUS  SHARDS"));
  CHECK_THAT(table, Catch::Contains("h:2        1/2   1/3       -"));
  CHECK_THAT(table, Catch::Contains("0/1     0       -"));
  CHECK_THAT(table, Catch::Contains("-     -       0"));
}

TEST_CASE("DescribeNode: a worker with its GPUs, or with the reason why it has none", "[cli]") {
  CHECK(DescribeNode(Parse<v1::NodeStatus>(kGpuWorker)) ==
        "worker-1: worker, alive\n"
        "address    h:2\n"
        "process    11 on h\n"
        "version    0.1.0\n"
        "last seen  0.1 s\n"
        "tasks      1 in 2 slots\n"
        "driver     580.82.07\n"
        "CUDA       13.0\n"
        "\n"
        "GPU  NAME         MEMORY  FREE AT START  COMPUTE  STATE\n"
        "  0  NVIDIA L4  24.0 GiB       23.0 GiB  8.9      taken\n"
        "  1  NVIDIA L4  24.0 GiB              -  8.9      free\n"
        "  2  NVIDIA L4  24.0 GiB              -  8.9      lost\n");
  CHECK_THAT(DescribeNode(Parse<v1::NodeStatus>(
                 "role: WORKER devices { unusable: 'no CUDA driver (libcuda.so.1)' }")),
             Catch::EndsWith("GPUs       none: no CUDA driver (libcuda.so.1)\n"));
  CHECK_THAT(DescribeNode(Parse<v1::NodeStatus>(
                 "role: WORKER devices { unusable: 'no backend' gpus { name: 'A' } }")),
             Catch::Contains("GPUs       unusable: no backend\n") && Catch::Contains("unusable\n"));
  CHECK_THAT(DescribeNode(Parse<v1::NodeStatus>("role: SERVER shards: 7")),
             Catch::EndsWith("shards     7\n"));
  CHECK_THAT(DescribeNode(Parse<v1::NodeStatus>(
                 "role: SERVER plugin_rules { name: 'signum' digest: '12ab' }")),
             Catch::EndsWith("rule       signum, plugin SHA-256 12ab\n"));
}

TEST_CASE("HeldTableTable: a row a table and server, versions as a range where they differ",
          "[cli]") {
  CHECK(HeldTableTable({}) == "No tables.\n");
  CHECK(HeldTableTable(Parse<TableListOutput>(R"(
          servers { server: "server-1"
                    tables { job_id: "a-1" name: "parameters" shards: 2 elements: 1000 bytes: 4096
                             version_min: 7 version_max: 9 pushes_applied: 20
                             pushes_duplicate: 1 } }
          servers { server: "server-2"
                    tables { job_id: "a-1" name: "parameters" shards: 1 elements: 500 bytes: 2048
                             version_min: 9 version_max: 9 pushes_applied: 10 } })")) ==
        "JOB  TABLE       SERVER    SHARDS  ELEMENTS   MEMORY  VERSION  PUSHES  DUPLICATES\n"
        "a-1  parameters  server-1       2     1,000  4.0 KiB     7..9      20           1\n"
        "a-1  parameters  server-2       1       500  2.0 KiB        9      10           0\n");
}

TEST_CASE("HeldTableTable: pushes that came too late are shown where there were any", "[cli]") {
  CHECK(HeldTableTable(Parse<TableListOutput>(R"(
          servers { server: "server-1"
                    tables { job_id: "a-1" name: "w" shards: 2 pushes_applied: 20
                             pushes_late: 3 } })")) ==
        "JOB  TABLE  SERVER    SHARDS  ELEMENTS  MEMORY  VERSION  PUSHES  DUPLICATES  LATE\n"
        "a-1  w      server-1       2         0     0 B        0      20           0     3\n");
}

TEST_CASE("HeldTableTable: sparse tables say how many rows have come and gone", "[cli]") {
  CHECK(HeldTableTable(Parse<TableListOutput>(R"(
          servers { server: "server-1"
                    tables { job_id: "a-1" name: "dense" shards: 2 elements: 10 }
                    tables { job_id: "a-1" name: "rows" shards: 1 elements: 160 bytes: 2048
                             version_min: 9 version_max: 9 pushes_applied: 10
                             rows { held: 10 admitted: 1030 refused: 7 evicted_by_age: 20
                                    evicted_by_limit: 1000 }
                             rows_on_disk: 6 } })")) ==
        "JOB  TABLE  SERVER    SHARDS  ELEMENTS   MEMORY  VERSION  PUSHES  DUPLICATES  ROWS  "
        "ADMITTED  REFUSED  TOO OLD  TOO MANY  ON DISK\n"
        "a-1  dense  server-1       2        10      0 B        0       0           0     -  "
        "       -        -        -         -        -\n"
        "a-1  rows   server-1       1       160  2.0 KiB        9      10           0    10  "
        "   1,030        7       20     1,000        6\n");
}

TEST_CASE("TrafficTable: a row a method that was called, times as bounds", "[cli]") {
  CHECK(TrafficTable({}) == "No calls.\n");
  CHECK(TrafficTable(Parse<TrafficOutput>(R"(
          servers { server: "server-1" path {
            methods { name: "Push" calls: 1200 refused: 2 open: 1 open_max: 9 bytes: 4194304
                      shared_bytes: 2097152 data_calls: 1150
                      apply { counts: [0, 0, 98, 0, 1, 1] sum: 230 } }
            methods { name: "Pull" } } })")) ==
        "SERVER    METHOD  CALLS  BY GRPC  REFUSED  OPEN  MOST   VALUES  SHARED MEMORY    WORK P50 "
        "        P99  ANSWER P50  P99\n"
        "server-1  Push    1,200       51        2     1     9  4.0 MiB        2.0 MiB  < 0.004 ms "
        " < 0.016 ms           -    -\n");
}

TEST_CASE("TrafficTable: servers whose jobs name lists of keys, below", "[cli]") {
  const std::string text = TrafficTable(Parse<TrafficOutput>(R"(
          servers { server: "server-1" path {
            methods { name: "Pull" calls: 5 }
            key_lists { kept: 12 bytes: 2097152 named: 1300 used: 2599 unknown: 1 } } }
          servers { server: "server-2" path { methods { name: "Pull" calls: 5 } } })"));
  const std::string expected =
      "\nSERVER    KEY LISTS   MEMORY  NAMED   USED  UNKNOWN\n"
      "server-1         12  2.0 MiB  1,300  2,599        1\n";
  REQUIRE(text.size() > expected.size());
  CHECK(text.substr(text.size() - expected.size()) == expected);
}

TEST_CASE("RowsTable: a row a key, and a word where there is none", "[cli]") {
  CHECK(RowsTable(Parse<TableReadOutput>(R"(
      job_id: "ctr-1" snapshot_id: 3 iteration: 40
      rows { key: 17 found: true values: 0.5 values: -0.100000001 }
      rows { key: 4 }
  )")) ==
        "KEY  ROW\n"
        " 17  0.5 -0.100000001\n"
        "  4  (no row)\n"
        "Snapshot 3 of ctr-1, at iteration 40.\n");
}

TEST_CASE("TensorsTable: a row a tensor, with its first values or where they are", "[cli]") {
  auto read = Parse<TableReadOutput>(R"(
      job_id: "lenet-1" snapshot_id: 3 iteration: 40
      tensors { name: "fc.weight" shape: 2 shape: 3 values: 1 values: -0.100000001 values: 3
                values: 4 values: 5 values: 6 }
      tensors { name: "fc.bias" shape: 2 values: 0.5 values: 0 })");
  CHECK(TensorsTable(read) ==
        "TENSOR     SHAPE   VALUES\n"
        "fc.weight  [2, 3]  1 -0.100000001 3 4 ... of 6\n"
        "fc.bias    [2]     0.5 0\n"
        "Snapshot 3 of lenet-1, at iteration 40.\n");
  for (TableTensor& tensor : *read.mutable_tensors()) tensor.clear_values();
  read.set_file("/tmp/parameters.safetensors");
  CHECK_THAT(TensorsTable(read), Catch::Contains("fc.bias    [2]") &&
                                     Catch::Contains("\n/tmp/parameters.safetensors\nSnapshot 3"));
}

TEST_CASE("PlacementTable: a row a shard, with the replicas that are still being filled marked",
          "[cli]") {
  CHECK(PlacementTable(Parse<v1::GetTablesResponse>(R"(
          tables { table: 0 name: "parameters" }
          routing { servers { node_id: "server-1" } servers { node_id: "server-2" }
                    shards { element_end: 65536 server: 0 term: 1
                             replicas { server: 1 in_sync: true } }
                    shards { shard: 1 element_begin: 65536 element_end: 65636 server: 1 term: 3
                             replicas { server: 0 } } })")) ==
        "TABLE       SHARD  ELEMENTS  PRIMARY   TERM  REPLICAS\n"
        "parameters      0    65,536  server-1     1  server-2\n"
        "parameters      1       100  server-2     3  server-1 (being filled)\n");
}

}  // namespace
}  // namespace capstan::cli::node_view_test
