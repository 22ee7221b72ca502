#include "scheduler/cli/diff/job_differences.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace capstan::cli::job_differences_test {
namespace {

using Lines = std::vector<std::string>;

v1::JobSpec JobOf(const std::string& text) {
  v1::JobSpec job;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

TEST_CASE("Job differences: a field that differs is named with both values", "[cli]") {
  const JobDifferences differences =
      CompareJobs(JobOf("training { seed: 1 batch_size: 16 } model { zoo: \"lenet\" }"),
                  JobOf("training { seed: 2 batch_size: 16 } program { samples: 8 }"));
  CHECK(differences.of_training == Lines{"model: { zoo: \"lenet\" } -> unset",
                                         "training.seed: 1 -> 2",
                                         "program: unset -> { samples: 8 }"});
  CHECK(differences.others.empty());
}

TEST_CASE("Job differences: a program's environment and command are compared", "[cli]") {
  const auto job = [](const std::string& script, const std::string& value) {
    return JobOf("program { command: \"python3\" command: \"" + script +
                 "\" environment { key: \"A\" value: \"" + value + "\" } }");
  };
  CHECK(CompareJobs(job("a.py", "1"), job("a.py", "1")).of_training.empty());
  const Lines lines = CompareJobs(job("a.py", "1"), job("b.py", "2")).of_training;
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Catch::Contains("command[1]: \"a.py\" -> \"b.py\""));
  CHECK_THAT(lines[1], Catch::Contains("environment") && Catch::Contains("\"1\" -> \"2\""));
}

TEST_CASE("Job differences: what BSP promises to be without effect is apart", "[cli]") {
  const JobDifferences differences =
      CompareJobs(JobOf("resources { workers: 1 threads: 1 } wire { shared_memory: OFF }"),
                  JobOf("resources { workers: 3 threads: 2 } wire { gradients: BF16 } "
                        "durability: LOG checkpoints { every_seconds: 5 directory: \"/b\" }"));
  CHECK(differences.of_training ==
        Lines{"resources.threads: 1 -> 2", "wire.gradients: unset -> BF16"});
  CHECK_THAT(differences.others,
             Catch::VectorContains(std::string("resources.workers: 1 -> 3")) &&
                 Catch::VectorContains(std::string("checkpoints.every_seconds: unset -> 5")));
}

TEST_CASE("Job differences: names, notes and folders of jobs do not count", "[cli]") {
  const JobDifferences differences =
      CompareJobs(JobOf("name: \"a\" note: \"x\" output { directory: \"/a\" }"),
                  JobOf("name: \"b\" labels { key: \"k\" value: \"v\" } "
                        "output { directory: \"/b\" record_updates: true }"));
  CHECK(differences.of_training.empty());
  CHECK(differences.others.empty());
}

TEST_CASE("Job differences: a long value is cut", "[cli]") {
  const JobDifferences differences =
      CompareJobs(JobOf("program { command: \"" + std::string(5000, 'x') + "\" }"),
                  JobOf("program { command: \"y\" }"));
  REQUIRE(differences.of_training.size() == 1);
  CHECK(differences.of_training[0].size() < 250);
}

}  // namespace
}  // namespace capstan::cli::job_differences_test
