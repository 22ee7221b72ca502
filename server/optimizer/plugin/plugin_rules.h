// PluginRules: the update rules that the plugins of this server have, by name.
//
// Filled when the server starts (load_plugin.h), then only read.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_OPTIMIZER_PLUGIN_PLUGIN_RULES_H_
#define CAPSTAN_SERVER_OPTIMIZER_PLUGIN_PLUGIN_RULES_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/optimizer/plugin/capstan_rule.h"

namespace capstan::server {

struct PluginRule {
  const CapstanRule* rule = nullptr;  // The plugin's, for as long as the process lives.
  // SHA-256 of the plugin's file in hexadecimal. Servers of a job have the same one.
  std::string digest;
  std::string file;  // The path that the operator gave, for messages.
};

class PluginRules {
 public:
  // REQUIRES: the rule has passed CheckRule (rule_check.h).
  // Errors: kInvalidArgument  another plugin has a rule of that name; names both files.
  absl::Status Add(PluginRule rule);
  const PluginRule* Find(absl::string_view name) const;  // Null: there is none.
  // Such as "signum, proximal"; "none" if there is none.
  std::string Names() const;
  const std::map<std::string, PluginRule, std::less<>>& all() const { return rules_; }

 private:
  std::map<std::string, PluginRule, std::less<>> rules_;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_PLUGIN_PLUGIN_RULES_H_
