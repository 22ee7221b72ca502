// PluginRule: an update rule that a plugin adds to servers, and whether a server has given rules.
//
// Two files of a plugin may compute different bits, so a rule is identified by its name and the
// digest of its file: all servers of a job have the same rules.
// Thread safety: values, and functions of their arguments.
#ifndef CAPSTAN_SCHEDULER_CORE_MESSAGES_PLUGIN_RULES_H_
#define CAPSTAN_SCHEDULER_CORE_MESSAGES_PLUGIN_RULES_H_

#include <string>
#include <vector>

namespace capstan::scheduler {

struct PluginRule {
  std::string name;    // As in Plugin.rule of job.proto.
  std::string digest;  // SHA-256 of the plugin's file in hexadecimal.
  friend auto operator<=>(const PluginRule&, const PluginRule&) = default;
  template <typename Archive>
  void serialize(Archive& archive) {
    archive(name, digest);
  }
};

// Whether a server that has the rules `has` can hold a job that needs the rules `needs`.
bool HasRules(const std::vector<PluginRule>& has, const std::vector<PluginRule>& needs);

// "update rule signum of the plugin with SHA-256 12ab... and ..."; empty for no rules.
std::string TextOf(const std::vector<PluginRule>& rules);

}  // namespace capstan::scheduler

#endif  // CAPSTAN_SCHEDULER_CORE_MESSAGES_PLUGIN_RULES_H_
