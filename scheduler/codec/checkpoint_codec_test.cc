// Tests the servers' reports on checkpoints and snapshots, and the answers to requests for them.
#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/testing/status_matchers.h"
#include "scheduler/codec/node_codec.h"
#include "scheduler/codec/shared_codec.h"
#include "scheduler/codec/status_codec.h"

namespace capstan::scheduler::checkpoint_codec_test {
namespace {

TEST_CASE("Codec: what a server says of checkpoints", "[scheduler]") {
  v1::SyncNodeRequest request;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        tables {
          job_id: "job-1"
          checkpoints { checkpoint_id: 3 state: CAPTURED not_kept: "no room" }
          checkpoints { checkpoint_id: 4 state: FAILED error: "disk full" }
          checkpoints { checkpoint_id: 5 }
          checkpoints {
            checkpoint_id: 6
            state: WRITTEN
            parts {
              table: 1
              shard: 2
              element_begin: 10
              element_end: 20
              version: 7
              file: "table-1-shard-2.part"
              bytes: 99
              crc32c: 12345
            }
          }
        })pb",
      &request));
  REQUIRE_OK_AND_ASSIGN(const NodeReport report, DecodeNodeReport(request));
  const std::vector<CheckpointReport>& checkpoints = report.tables.at(0).checkpoints;
  REQUIRE(checkpoints.size() == 3);  // One has an unknown state.
  CHECK(checkpoints[0].id == CheckpointId(3));
  CHECK(checkpoints[0].state == CheckpointReport::State::kCaptured);
  CHECK(checkpoints[0].not_kept == "no room");
  CHECK(checkpoints[1].state == CheckpointReport::State::kFailed);
  CHECK(checkpoints[1].error == "disk full");
  CHECK(checkpoints[2].state == CheckpointReport::State::kWritten);
  REQUIRE(checkpoints[2].parts.size() == 1);
  v1::CheckpointPart part;
  EncodePart(checkpoints[2].parts[0], part);
  // Decoding and encoding keep all fields.
  CHECK(part.SerializeAsString() == request.tables(0).checkpoints(3).parts(0).SerializeAsString());
}

TEST_CASE("Codec: a snapshot that can be read", "[scheduler]") {
  AdmittedJob job;
  job.tables.emplace_back().set_name("features");
  const auto routing =
      std::make_shared<const Routing>(Routing{"job-1",
                                              Generation(4),
                                              {{{TableId(0), ShardId(0)}, {0, 1}, 0, Term(1), {}}},
                                              {{"server-1", "h:1", Incarnation(5)}}});
  v1::OpenSnapshotResponse response;
  EncodeSnapshotReply({.ticket = Ticket(1),
                       .status = absl::OkStatus(),
                       .job = "job-1",
                       .id = CheckpointId(3),
                       .iteration = 40,
                       .routing = routing},
                      job, response);
  CHECK(response.snapshot_id() == 3);
  CHECK(response.iteration() == 40);
  REQUIRE(response.tables_size() == 1);
  CHECK(response.tables(0).name() == "features");
  CHECK(response.routing().generation() == 4);
  CHECK(response.routing().servers(0).address() == "h:1");
}

}  // namespace
}  // namespace capstan::scheduler::checkpoint_codec_test
