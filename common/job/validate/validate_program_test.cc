#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/job/fields/diagnostic.h"
#include "common/job/spec/program_tables.h"
#include "common/job/validate/validate.h"
#include "proto/job.pb.h"

namespace capstan::validate_program_test {
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

TEST_CASE("ValidateProgram: test samples are what training may decide by") {
  const std::string decides = "training { early_stopping { patience: 2 } metric: ";
  CHECK(ErrorsWith("program { test_samples: -1 }") ==
        Lines{"program.test_samples: got -1, expected 0 to 4294967295"});
  CHECK(ErrorsWith(decides + "ACCURACY }") ==
        Lines{"training.early_stopping: got a value, expected program.test_samples beside it: it "
              "decides by their figures"});
  CHECK(ErrorsWith("program { test_samples: 10 }" + decides + "ACCURACY }") == Lines());
  CHECK(ErrorsWith("program { test_samples: 10 }" + decides + "AUC }") ==
        Lines{"training.metric: got AUC, expected LOSS or ACCURACY"});
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

TEST_CASE("ValidateProgram: rows and optimizers are checked") {
  CHECK(ErrorsWith("program { rows { name: 'ads' dim: 64 optimizer: 1 } "
                   "  optimizers { adagrad { row_wise: true } learning_rate: 0.1 } }") == Lines());
  CHECK(ErrorsWith("program { rows { name: 'parameters-1' dim: 0 } rows { name: 'w' dim: 1 "
                   "  initial_std: -1 buckets: 5000 lifetime { admit_after: 300 ttl_seconds: 1 } "
                   "  optimizer: 2 } "
                   "  averages { name: 'm' optimizer: 1 } }") ==
        Lines{"program.rows[0].name: got \"parameters-1\", expected 1 to 64 letters, digits, '_', "
              "'.' or '-', and not the name of another table: parameters, parameters-N, statistics",
              "program.rows[0].dim: got 0 or nothing, expected 1 to 4096",
              "program.rows[1].name: got \"w\", expected a name that nothing else in the program "
              "has",
              "program.rows[1].initial_std: got -1, expected a finite number of at least 0",
              "program.rows[1].buckets: got 5000, expected 1 to 4096",
              "program.rows[1].lifetime.admit_after: got 300, expected 0 to 255",
              "program.rows[1].lifetime.ttl_seconds: got 1, expected 0 or 60 to 315360000",
              "program.rows[1].optimizer: got 2, expected 0 to 0",
              "program.averages[1].optimizer: got 1, expected nothing: averages have none"});
  CHECK(
      ErrorsWith("program { parameters { name: 'a' optimizer: 1 } rows { name: 'r' dim: 1 } "
                 "  optimizers { adagrad { row_wise: true } clip_norm: 1 } } "
                 "optimizer { lamb {} }") ==
      Lines{
          "program.optimizers[0].learning_rate: got 0 or nothing, expected a finite number above 0",
          "program.optimizers[0].adagrad.row_wise: got true, expected false: only a sparse "
          "model has rows",
          "program.optimizers[0].clip_norm: got 1, expected nothing beside program, which "
          "clips its gradients itself",
          "optimizer: got lamb, expected another: it takes norms over whole tensors, and a "
          "sparse model has rows"});
}

TEST_CASE("ProgramTables: one for each optimizer, then averages and rows") {
  const std::vector<v1::TableSpec> tables =
      ProgramTables(JobWith("program { parameters { name: 'v' shape: 5 optimizer: 1 } "
                            "  parameters { name: 'u' shape: 2 } "
                            "  rows { name: 'ads' dim: 3 optimizer: 1 lifetime { rows_max: 9 "
                            "      ttl_seconds: 60 } } "
                            "  optimizers { adam {} learning_rate: 2 } }")
                        .program());
  REQUIRE(tables.size() == 4);
  for (size_t i = 0; i < tables.size(); ++i) CHECK(tables[i].table() == static_cast<int>(i));
  CHECK(tables[0].elements() == 15);
  CHECK_FALSE(tables[0].has_optimizer());
  CHECK(tables[1].name() == "parameters-1");
  CHECK(tables[1].elements() == 5);
  CHECK(tables[1].tensors(0).offset() == 0);
  CHECK(tables[1].optimizer().learning_rate() == 2);
  CHECK(tables[2].rule() == v1::MOVING_AVERAGE);
  CHECK(tables[3].name() == "ads");
  CHECK(tables[3].optimizer().has_adam());
  CHECK(tables[3].sparse().dim() == 3);
  CHECK(tables[3].sparse().buckets() == 64);
  CHECK(tables[3].sparse().rows_max() == 9);
  CHECK(tables[3].sparse().ttl_seconds() == 60);
  CHECK(tables[3].sparse().initializer().normal_std() == 0.01f);
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

constexpr char kOwnPaceJob[] = R"(
  program {
    command: "python3" own_pace: true
    parameters { name: "w" shape: 3 shape: 4 }
    parameters { name: "scale" optimizer: 1 }
    rows { name: "ads" dim: 2 }
    optimizers { adam {} learning_rate: 2 }
  }
  optimizer { sgd {} learning_rate: 0.1 }
  consistency { asp {} }
  resources { workers: 2 }
)";

TEST_CASE("ValidateProgram: own pace needs no sizes of training, and refuses them") {
  const auto errors_with = [](const std::string& more) {
    v1::JobSpec spec;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(kOwnPaceJob, &spec));
    REQUIRE(google::protobuf::TextFormat::MergeFromString(more, &spec));
    Lines errors;
    for (const Diagnostic& diagnostic : ValidateJob(spec)) errors.push_back(diagnostic.ToString());
    return errors;
  };
  CHECK(errors_with("") == Lines());
  CHECK(errors_with("training { seed: 4 } checkpoints { every_seconds: 9 }") == Lines());
  const std::string nothing =
      ", expected nothing beside program.own_pace: the program itself says what it computes";
  CHECK(errors_with("program { samples: 9 averages { name: 'm' } parameters { name: 'a b' } }") ==
        Lines{"program.samples: got 9" + nothing,
              "program.averages: got 1 tensors, expected nothing beside own_pace: each table has "
              "an optimizer",
              "program.parameters[2].name: got \"a b\", expected 1 to 64 letters, digits, '_', "
              "'.' or '-' beside own_pace: it names a table"});
  CHECK(errors_with("training { epochs: 2 batch_size: 3 iterations_max: 4 } "
                    "checkpoints { every_iterations: 5 }") ==
        Lines{"checkpoints.every_iterations: got 5, expected every_seconds beside "
              "program.own_pace, which has no iterations",
              "training.epochs: got 2" + nothing, "training.batch_size: got 3" + nothing,
              "training.iterations_max: got 4" + nothing});
  CHECK(errors_with("consistency { bsp {} }") ==
        Lines{"consistency: got bsp, expected asp beside program.own_pace"});
}

TEST_CASE("ProgramTables: at its own pace, a table for each of the parameters") {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kOwnPaceJob, &spec));
  const std::vector<v1::TableSpec> tables = ProgramTables(spec.program());
  REQUIRE(tables.size() == 3);
  for (size_t i = 0; i < tables.size(); ++i) CHECK(tables[i].table() == static_cast<int>(i));
  CHECK(tables[0].name() == "w");
  CHECK(tables[0].elements() == 12);
  CHECK_FALSE(tables[0].has_optimizer());
  CHECK(tables[1].name() == "scale");
  CHECK(tables[1].elements() == 1);
  CHECK(tables[1].optimizer().has_adam());
  CHECK(tables[2].has_sparse());
}

}  // namespace
}  // namespace capstan::validate_program_test
