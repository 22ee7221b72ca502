#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/job/diagnostic.h"
#include "common/job/program_tables.h"
#include "common/job/validate.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr char kJob[] = R"(
  program {
    command: "python3" command: "train.py" samples: 1000
    parameters { name: "w" shape: 3 shape: 4 }
    parameters { name: "scale" }
    averages { name: "mean" shape: 4 }
  }
  training { epochs: 1 batch_size: 10 }
  optimizer { sgd {} learning_rate: 0.1 }
  resources { workers: 2 }
)";

v1::JobSpec JobWith(const std::string& more) {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kJob, &spec));
  REQUIRE(google::protobuf::TextFormat::MergeFromString(more, &spec));
  return spec;
}

std::vector<std::string> ErrorsWith(const std::string& more) {
  std::vector<std::string> errors;
  for (const Diagnostic& diagnostic : ValidateJob(JobWith(more))) {
    errors.push_back(diagnostic.ToString());
  }
  return errors;
}

using Lines = std::vector<std::string>;

TEST_CASE("ValidateProgram: a job with a program needs neither model nor data") {
  CHECK(ErrorsWith("") == Lines());
}

TEST_CASE("ValidateProgram: what belongs to a model is refused") {
  CHECK(ErrorsWith("model { zoo: 'lenet' } data { format: IDX }") ==
        Lines{"model: got a value, expected nothing beside program, which has its own",
              "data: got a value, expected nothing beside program, which has its own"});
  CHECK(ErrorsWith("optimizer { clip_norm: 2 } resources { device: 'cuda' }") ==
        Lines{"optimizer.clip_norm: got 2, expected nothing beside program, which clips its "
              "gradients itself",
              "resources.device: got \"cuda\", expected \"cpu\": no GPUs are given to programs"});
}

TEST_CASE("ValidateProgram: names and shapes are checked") {
  CHECK(ErrorsWith("program { parameters { name: 'mean' } averages { shape: 0 } }") ==
        Lines{"program.averages[0].name: got \"mean\", expected a name that no other tensor has",
              "program.averages[1].name: got \"\", expected 1 to 256 bytes",
              "program.averages[1].shape[0]: got 0, expected 1 to 1099511627776"});
  CHECK(ErrorsWith("program { parameters { name: 'a' shape: 1099511627776 } }") ==
        Lines{"program.parameters[2].shape: got 1099511627776 elements, expected at most "
              "1099511627776 in all tensors together"});
}

TEST_CASE("ValidateProgram: paths and variables are checked") {
  CHECK(ErrorsWith("program { directory: 'here' environment { key: 'A=B' value: '' } }") ==
        Lines{"program.directory: got \"here\", expected an absolute path",
              "program.environment: got \"A=B\", expected a name without '=', and no NUL in name "
              "or value"});
}

TEST_CASE("ProgramTables: tensors lie end to end, averages in a table of their own") {
  const std::vector<v1::TableSpec> tables = ProgramTables(JobWith("").program());
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].name() == "parameters");
  CHECK(tables[0].elements() == 13);
  CHECK(tables[0].tensors(1).offset() == 12);
  CHECK(tables[0].rule() == v1::OPTIMIZER);
  CHECK(tables[1].elements() == 4);
  CHECK(tables[1].rule() == v1::MOVING_AVERAGE);
  CHECK(tables[1].tensors(0).momentum() == 1.0f);
}

}  // namespace
}  // namespace capstan
