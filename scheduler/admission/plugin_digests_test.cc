#include "scheduler/admission/plugin_digests.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::scheduler::plugin_digests_test {
namespace {

const std::string kOne(64, '1');
const std::string kTwo(64, '2');

NodeView Server(const std::string& id, std::vector<PluginRule> rules) {
  NodeView view{.id = id, .alive = true};
  view.info.plugin_rules = std::move(rules);
  return view;
}

AdmittedJob Job(const std::string& rule, const std::string& digest = "") {
  AdmittedJob job;
  job.spec.mutable_optimizer()->mutable_plugin()->set_rule(rule);
  job.spec.mutable_optimizer()->mutable_plugin()->set_digest(digest);
  return job;
}

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

TEST_CASE("Plugin digests: a job without such rules needs nothing", "[scheduler]") {
  AdmittedJob job;
  job.spec.mutable_optimizer()->mutable_sgd();
  CHECK_FALSE(NamesPluginRules(job));
  REQUIRE_OK(FixPluginDigests({}, job));
  CHECK(job.plan.plugin_rules.empty());
}

TEST_CASE("Plugin digests: each optimizer and table gets that of the servers", "[scheduler]") {
  AdmittedJob job = Job("signum");
  job.spec.mutable_program()->add_optimizers()->mutable_plugin()->set_rule("prox");
  job.spec.mutable_program()->add_optimizers()->mutable_sgd();
  job.tables.emplace_back().mutable_optimizer()->mutable_plugin()->set_rule("prox");
  job.tables.emplace_back();
  CHECK(NamesPluginRules(job));
  REQUIRE_OK(FixPluginDigests(
      {Server("s-0", {{"signum", kOne}, {"prox", kTwo}}), Server("s-1", {{"prox", kTwo}})}, job));
  CHECK(job.spec.optimizer().plugin().digest() == kOne);
  CHECK(job.spec.program().optimizers(0).plugin().digest() == kTwo);
  CHECK(job.tables[0].optimizer().plugin().digest() == kTwo);
  CHECK(job.plan.plugin_rules == std::vector<PluginRule>{{"signum", kOne}, {"prox", kTwo}});
}

TEST_CASE("Plugin digests: a rule that no live server has is refused with what each has",
          "[scheduler]") {
  AdmittedJob job = Job("sigmun");
  NodeView dead = Server("s-2", {{"sigmun", kOne}});
  dead.alive = false;
  CHECK_STATUS(
      FixPluginDigests({Server("s-0", {}), Server("s-1", {{"prox", kOne}, {"signum", kOne}}), dead},
                       job),
      kBad,
      "optimizer.plugin.rule: got \"sigmun\", expected a rule that a live server has by "
      "--rule-plugin: s-0 has none, s-1 has prox and signum");
  CHECK_STATUS(FixPluginDigests({dead}, job), absl::StatusCode::kFailedPrecondition,
               "no server is alive that could have this rule");
}

TEST_CASE("Plugin digests: servers with different files are refused unless the job names one",
          "[scheduler]") {
  const std::vector<NodeView> nodes = {Server("s-0", {{"signum", kOne}}),
                                       Server("s-1", {{"signum", kTwo}})};
  AdmittedJob job = Job("signum");
  CHECK_STATUS(FixPluginDigests(nodes, job), kBad,
               "which servers have from different files, expected one file on all of them, or its "
               "SHA-256 in optimizer.plugin.digest: s-0 has SHA-256 " +
                   kOne + ", s-1 has SHA-256 " + kTwo);
  job = Job("signum", kTwo);
  REQUIRE_OK(FixPluginDigests(nodes, job));
  CHECK(job.plan.plugin_rules == std::vector<PluginRule>{{"signum", kTwo}});
  CHECK_FALSE(job.spec.has_program());
  job = Job("signum", std::string(64, '3'));
  CHECK_STATUS(FixPluginDigests(nodes, job), kBad,
               "expected that of a live server's plugin with signum: s-0 has SHA-256 " + kOne);
}

}  // namespace
}  // namespace capstan::scheduler::plugin_digests_test
