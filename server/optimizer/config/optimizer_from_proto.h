// OptimizerFromProto: v1::Optimizer of a job file -> OptimizerConfig, with every range checked and
// every default filled in; both stand in common/job/spec/optimizer_fields.cc.
//
// Thread safety: a pure function.
#ifndef CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_FROM_PROTO_H_
#define CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_FROM_PROTO_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "server/optimizer/config/optimizer_config.h"
#include "server/optimizer/plugin/plugin_rules.h"

namespace capstan::server {

// `clip_norm` is checked too, though it is applied by the worker and has no place in the result.
// `plugins`: the rules that plugin.rule may name. Null: none.
// Errors:
//   kInvalidArgument  no rule chosen, or a value outside its range in job.proto; the message is
//                     "optimizer.<field>: got <value>, expected <range>". Also: no plugin
//                     has the rule, its file has another digest, or the rule refuses its numbers.
absl::StatusOr<OptimizerConfig> OptimizerFromProto(const v1::Optimizer& proto,
                                                   const PluginRules* plugins = nullptr);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_CONFIG_OPTIMIZER_FROM_PROTO_H_
