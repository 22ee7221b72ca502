// LoadPlugin: loads a library of update rules that the operator has named.
//
// Only the operator's flag leads here: nothing that a job, a user or a peer says names a file that
// is loaded. What is loaded runs with all rights of the server and stays until the process ends.
// Thread safety: for the main thread, before others run.
#ifndef CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOAD_PLUGIN_H_
#define CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOAD_PLUGIN_H_

#include <string>

#include "absl/status/status.h"
#include "server/optimizer/plugin/plugin_rules.h"

namespace capstan::server {

// Adds the rules of the plugin in `path` to `rules`, each with the digest of the bytes that were
// loaded.
// Errors (each message begins with the path; rules may have been added, and nobody may use them):
//   kNotFound, kPermissionDenied  no such file, or not readable, or no regular file.
//   kPermissionDenied   it belongs neither to root nor to this process's user, or others may write
//                       it.
//   kInvalidArgument    no shared library, or without capstan_rule_plugin, or of another interface;
//                       or it changes how the process computes with floats, or has a rule that
//                       CheckRule or PluginRules refuses.
absl::Status LoadPlugin(const std::string& path, PluginRules* rules);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_PLUGIN_LOAD_PLUGIN_H_
