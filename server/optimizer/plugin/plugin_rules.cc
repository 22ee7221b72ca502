#include "server/optimizer/plugin/plugin_rules.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::server {

absl::Status PluginRules::Add(PluginRule rule) {
  const std::string name = rule.rule->name;
  const auto [it, added] = rules_.emplace(name, rule);
  if (added) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rule ", name, " of ", rule.file, ": ", it->second.file,
                   " has a rule of that name, expected another name"));
}

const PluginRule* PluginRules::Find(absl::string_view name) const {
  const auto it = rules_.find(name);
  return it == rules_.end() ? nullptr : &it->second;
}

std::string PluginRules::Names() const {
  if (rules_.empty()) return "none";
  return absl::StrJoin(rules_, ", ",
                       [](std::string* out, const auto& rule) { out->append(rule.first); });
}

}  // namespace capstan::server
