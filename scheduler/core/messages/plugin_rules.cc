#include "scheduler/core/messages/plugin_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan::scheduler {

bool HasRules(const std::vector<PluginRule>& has, const std::vector<PluginRule>& needs) {
  return std::all_of(needs.begin(), needs.end(), [&has](const PluginRule& rule) {
    return std::find(has.begin(), has.end(), rule) != has.end();
  });
}

std::string TextOf(const std::vector<PluginRule>& rules) {
  if (rules.empty()) return "";
  const auto text = [](std::string* out, const PluginRule& rule) {
    absl::StrAppend(out, rule.name, " of the plugin with SHA-256 ", rule.digest);
  };
  return absl::StrCat("update rule ", absl::StrJoin(rules, " and ", text));
}

}  // namespace capstan::scheduler
