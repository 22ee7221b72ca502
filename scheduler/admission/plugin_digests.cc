#include "scheduler/admission/plugin_digests.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/fields/field_checker.h"
#include "common/status/status_macros.h"
#include "scheduler/core/messages/plugin_rules.h"

namespace capstan::scheduler {
namespace {

// The optimizers of a job that name rules of plugins, each with its field in the job file.
std::vector<std::pair<std::string, v1::Plugin*>> PluginsOf(AdmittedJob& job) {
  std::vector<std::pair<std::string, v1::Plugin*>> all;
  const auto add = [&all](const std::string& field, v1::Optimizer* optimizer) {
    if (optimizer->has_plugin()) all.push_back({field, optimizer->mutable_plugin()});
  };
  if (job.spec.has_optimizer()) add("optimizer", job.spec.mutable_optimizer());
  for (int i = 0; i < job.spec.program().optimizers_size(); ++i) {
    add(absl::StrCat("program.optimizers[", i, "]"),
        job.spec.mutable_program()->mutable_optimizers(i));
  }
  for (v1::TableSpec& table : job.tables) {
    if (table.has_optimizer()) {
      add(absl::StrCat("optimizer of ", table.name()), table.mutable_optimizer());
    }
  }
  return all;
}

struct Server {
  std::string id;
  std::vector<PluginRule> rules;
};

std::vector<Server> LiveServers(const std::vector<NodeView>& nodes) {
  std::vector<Server> servers;
  for (const NodeView& node : nodes) {
    if (!node.alive || node.info.role != Role::kServer) continue;
    servers.push_back({.id = node.id, .rules = node.info.plugin_rules});
  }
  return servers;
}

const PluginRule* FindRule(const Server& server, const std::string& name) {
  const auto it = std::find_if(server.rules.begin(), server.rules.end(),
                               [&name](const PluginRule& rule) { return rule.name == name; });
  return it == server.rules.end() ? nullptr : &*it;
}

// "server-0 has none, server-1 has momentum and signum".
std::string NamesAt(const std::vector<Server>& servers) {
  return absl::StrJoin(servers, ", ", [](std::string* out, const Server& server) {
    const auto name = [](std::string* names, const PluginRule& rule) { *names += rule.name; };
    absl::StrAppend(out, server.id, " has ",
                    server.rules.empty() ? "none" : absl::StrJoin(server.rules, " and ", name));
  });
}

// "server-0 has it with SHA-256 12ab..., server-1 with 34cd...".
std::string DigestsAt(const std::vector<Server>& servers, const std::string& rule) {
  std::vector<std::string> parts;
  for (const Server& server : servers) {
    const PluginRule* const found = FindRule(server, rule);
    if (found == nullptr) continue;
    parts.push_back(absl::StrCat(server.id, " has SHA-256 ", found->digest));
  }
  return absl::StrJoin(parts, ", ");
}

absl::StatusOr<std::string> DigestFor(const std::vector<Server>& servers, const std::string& field,
                                      const v1::Plugin& plugin) {
  std::vector<std::string> digests;
  for (const Server& server : servers) {
    if (const PluginRule* found = FindRule(server, plugin.rule())) digests.push_back(found->digest);
  }
  std::sort(digests.begin(), digests.end());
  digests.erase(std::unique(digests.begin(), digests.end()), digests.end());
  if (digests.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".plugin.rule: got ", Quote(plugin.rule()),
        ", expected a rule that a live server has by --rule-plugin: ", NamesAt(servers)));
  }
  const std::string& wished = plugin.digest();
  if (std::find(digests.begin(), digests.end(), wished) != digests.end()) return wished;
  if (!wished.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, ".plugin.digest: got ", wished, ", expected that of a live server's plugin with ",
        plugin.rule(), ": ", DigestsAt(servers, plugin.rule())));
  }
  if (digests.size() == 1) return digests.front();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ".plugin.rule: got ", Quote(plugin.rule()),
      ", which servers have from different files, expected one file on all of them, or its SHA-256 "
      "in ",
      field, ".plugin.digest: ", DigestsAt(servers, plugin.rule())));
}

}  // namespace

bool NamesPluginRules(const AdmittedJob& job) {
  const auto& others = job.spec.program().optimizers();
  return job.spec.optimizer().has_plugin() ||
         std::any_of(others.begin(), others.end(),
                     [](const v1::Optimizer& optimizer) { return optimizer.has_plugin(); });
}

absl::Status FixPluginDigests(const std::vector<NodeView>& nodes, AdmittedJob& job) {
  const std::vector<Server> servers = LiveServers(nodes);
  for (const auto& [field, named] : PluginsOf(job)) {
    v1::Plugin& plugin = *named;
    if (servers.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(field, ".plugin.rule: got ", Quote(plugin.rule()),
                       ", and no server is alive that could have this rule: expected one"));
    }
    CAPSTAN_ASSIGN_OR_RETURN(*plugin.mutable_digest(), DigestFor(servers, field, plugin));
    const PluginRule rule{.name = plugin.rule(), .digest = plugin.digest()};
    std::vector<PluginRule>& needed = job.plan.plugin_rules;
    if (std::find(needed.begin(), needed.end(), rule) == needed.end()) needed.push_back(rule);
  }
  return absl::OkStatus();
}

}  // namespace capstan::scheduler
