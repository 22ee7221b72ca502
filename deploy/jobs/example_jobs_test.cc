#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>

#include "common/job/parse/job_file.h"
#include "common/job/validate/validate.h"
#include "common/model/plan_model.h"
#include "common/testing/status_matchers.h"
#include "server/optimizer/config/optimizer_from_proto.h"
#include "server/optimizer/plugin/load_plugin.h"
#include "server/optimizer/plugin/plugin_rules.h"

namespace capstan::example_jobs_test {
namespace {

constexpr const char* kFiles[] = {
    "a9a_ftrl_ssp",           "cifar_resnet20_asp", "clicks_fm_asp",        "criteo_deepfm_asp",
    "fashion_layers_ssp",     "fashion_lenet_lamb", "fashion_lenet_ssp",    "fashion_mlp_backups",
    "fashion_mlp_bsp",        "fashion_mlp_safe",   "fashion_resnet18_ssp", "fashion_softmax_ftrl",
    "fashion_softmax_signum", "folders_lenet_bsp",  "kdd_columns_ssp",      "numbers_mlp_bsp",
    "program_rows_bsp",       "ratings_mf_asp",     "words_skip_gram"};

// The path of an example job. Tests run in the workspace's root.
std::string Path(const std::string& name) { return "deploy/jobs/" + name + ".textproto"; }

v1::JobSpec Load(const std::string& name) {
  const absl::StatusOr<JobFile> file = JobFile::Load(Path(name));
  REQUIRE_OK(file);
  return file->spec();
}

TEST_CASE("Example jobs: each parses as a JobSpec by protobuf's own parser", "[deploy]") {
  for (const char* const name : kFiles) {
    INFO(name);
    std::ostringstream text;
    text << std::ifstream(Path(name)).rdbuf();
    v1::JobSpec spec;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(text.str(), &spec));
    CHECK_FALSE(spec.name().empty());
  }
}

TEST_CASE("Example jobs: each passes the check that a submission makes", "[deploy]") {
  for (const char* const name : kFiles) {
    INFO(name);
    for (const Diagnostic& diagnostic : ValidateJob(Load(name))) FAIL_CHECK(diagnostic.ToString());
  }
}

TEST_CASE("Example jobs: each model fits its images, each optimizer can be built", "[deploy]") {
  server::PluginRules plugins;
  REQUIRE_OK(server::LoadPlugin("server/optimizer/plugin/signum.so", &plugins));
  for (const char* const name : kFiles) {
    INFO(name);
    const v1::JobSpec spec = Load(name);
    REQUIRE_OK(server::OptimizerFromProto(spec.optimizer(), &plugins));
    if (spec.model().has_sparse() || spec.has_program()) continue;
    const bool cifar = spec.data().format() == v1::Data::CIFAR10_BINARY;
    const SampleShape image =
        cifar ? SampleShape{.h = 32, .w = 32, .c = 3} : SampleShape{.h = 28, .w = 28, .c = 1};
    REQUIRE_OK_AND_ASSIGN(const ModelPlan plan, PlanModel(spec.model(), image, 10));
    CHECK(plan.parameter_count > 0);
  }
}

TEST_CASE("Example jobs: each shows the consistency and the schedule that its name says",
          "[deploy]") {
  const v1::JobSpec lenet = Load("fashion_lenet_ssp");
  CHECK(lenet.model().zoo() == "lenet");
  CHECK(lenet.consistency().ssp().staleness_bound() == 2);
  // The cosine ends with the job: one update for each batch of 60,000 images.
  const int64_t batches =
      (60000 + lenet.training().batch_size() - 1) / lenet.training().batch_size();
  CHECK(lenet.optimizer().schedule().cosine().steps() == lenet.training().epochs() * batches);

  const v1::JobSpec mlp = Load("fashion_mlp_bsp");
  CHECK(mlp.consistency().has_bsp());
  CHECK(mlp.training().slots() == 4);
  const int64_t samples = int64_t{mlp.training().slots()} * mlp.training().batch_size();
  const int64_t iterations = (60000 + samples - 1) / samples;
  CHECK(mlp.optimizer().schedule().cosine().steps() == mlp.training().epochs() * iterations);

  const v1::JobSpec safe = Load("fashion_mlp_safe");
  CHECK(safe.resources().replicas() == 1);
  CHECK(safe.durability() == v1::LOG);
  CHECK(safe.checkpoints().every_iterations() > 0);
  CHECK(safe.checkpoints().keep() == 3);
  // Apart from that it is the other: the trained models are the same.
  CHECK(safe.training().SerializeAsString() == mlp.training().SerializeAsString());
  CHECK(safe.optimizer().SerializeAsString() == mlp.optimizer().SerializeAsString());

  const v1::JobSpec resnet = Load("fashion_resnet18_ssp");
  CHECK(resnet.consistency().ssp().staleness_bound() == 1);
  const int64_t pushes =
      resnet.training().epochs() *
      ((60000 + resnet.training().batch_size() - 1) / resnet.training().batch_size());
  CHECK(resnet.optimizer().schedule().cosine().steps() == pushes);

  CHECK(Load("cifar_resnet20_asp").consistency().has_asp());
  CHECK(Load("fashion_layers_ssp").model().zoo().empty());
  CHECK(Load("fashion_softmax_ftrl").optimizer().ftrl().l1() > 0.0f);
}

}  // namespace
}  // namespace capstan::example_jobs_test
