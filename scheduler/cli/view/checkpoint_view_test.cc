#include "scheduler/cli/view/checkpoint_view.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

namespace capstan::cli::checkpoint_view_test {
namespace {

TEST_CASE("CheckpointTable: a row a checkpoint, and what is damaged in words", "[cli]") {
  setenv("TZ", "UTC", 1);
  CHECK(CheckpointTable({}) == "No checkpoints.\n");
  CheckpointListOutput list;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"(
    checkpoints { checkpoint_id: 12 path: "/c/checkpoint-12" state: "unfinished" }
    checkpoints { checkpoint_id: 11 path: "/c/checkpoint-11" state: "damaged"
                  detail: "/c/checkpoint-11/manifest.pb: bad\x1b" }
    checkpoints { checkpoint_id: 9 path: "/c/checkpoint-9" state: "complete" job_id: "mlp-1"
                  epoch: 2 iteration: 1500 saved_unix_ms: 1700000000000 shards: 16
                  bytes: 3145728 rests_on: 8 }
    checkpoints { checkpoint_id: 8 path: "/c/checkpoint-8" state: "complete" job_id: "mlp-1"
                  epoch: 2 iteration: 1400 saved_unix_ms: 1700000000000 shards: 16
                  bytes: 4194304 rests_on: 8 })",
                                                        &list));
  CHECK(CheckpointTable(list) ==
        "CHECKPOINT  STATE       KIND              JOB    EPOCH  ITERATION  SAVED                "
        "SHARDS     SIZE  PATH\n"
        "        12  unfinished  -                 -          -          -  -                    "
        "     -        -  /c/checkpoint-12\n"
        "        11  damaged     -                 -          -          -  -                    "
        "     -        -  /c/checkpoint-11\n"
        "         9  complete    incremental on 8  mlp-1      2      1,500  2023-11-14 22:13:20  "
        "    16  3.0 MiB  /c/checkpoint-9\n"
        "         8  complete    full              mlp-1      2      1,400  2023-11-14 22:13:20  "
        "    16  4.0 MiB  /c/checkpoint-8\n"
        "checkpoint 11 is damaged: /c/checkpoint-11/manifest.pb: bad\\u001b\n");
}

}  // namespace
}  // namespace capstan::cli::checkpoint_view_test
