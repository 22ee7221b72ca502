#include "scheduler/cli/view/recover_view.h"

#include <catch2/catch.hpp>

namespace capstan::cli::recover_view_test {
namespace {

v1::RecoverableJob& Add(v1::ListRecoverableResponse& list, const std::string& id,
                        const std::string& unique_id) {
  v1::RecoverableJob& job = *list.add_jobs();
  job.set_job_id(id);
  job.set_unique_id(unique_id);
  job.set_cluster_id(unique_id.substr(0, 2));
  job.set_stood("training epoch 2");
  v1::RecoverableLog& log = *job.add_logs();
  log.set_node_id("server-0");
  log.set_alive(true);
  log.set_shards(8);
  return job;
}

TEST_CASE("Recover view: nothing to recover names the other way", "[cli]") {
  CHECK_THAT(RecoverableTable({}), Catch::Contains("capstan job recover --from=FOLDER"));
}

TEST_CASE("Recover view: each job has a row, and the command that takes it up or why not",
          "[cli]") {
  v1::ListRecoverableResponse list;
  Add(list, "lenet-1", "aa-1");
  v1::RecoverableJob& refused = Add(list, "mlp-2", "aa-2");
  refused.set_why_not("3 of its 8 shards are in no log here");
  v1::RecoverableLog& damaged = *refused.add_logs();
  damaged.set_node_id("server-1");
  damaged.set_alive(true);
  damaged.set_damage("a bit has changed");
  refused.add_logs()->set_node_id("server-2");
  const std::string text = RecoverableTable(list);
  CHECK_THAT(text, Catch::Contains("lenet-1  aa       -         training epoch 2"));
  CHECK_THAT(text, Catch::Contains("server-0 (8 shards), server-1 (damaged), server-2 (dead)"));
  CHECK_THAT(text, Catch::Contains("mlp-2: 3 of its 8 shards are in no log here\n"));
  CHECK_THAT(text, Catch::EndsWith("capstan job recover lenet-1\n"));
}

TEST_CASE("Recover view: jobs of one id are told apart by their unique ids", "[cli]") {
  v1::ListRecoverableResponse list;
  Add(list, "lenet-1", "aa-1");
  Add(list, "lenet-1", "bb-2");
  const std::string text = RecoverableTable(list);
  CHECK_THAT(text, Catch::Contains("capstan job recover aa-1\n"));
  CHECK_THAT(text, Catch::Contains("capstan job recover bb-2\n"));
}

}  // namespace
}  // namespace capstan::cli::recover_view_test
