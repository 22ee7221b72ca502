// CheckRule: whether a rule of a plugin is one that servers can use.
//
// It looks at the rule's table, then tries the rule: updates of some hundred elements in one piece
// must give the same bits as in pieces, at other places in memory, in place or to another array,
// and when they are repeated. This detects a dependence on the range or on an earlier call; it
// cannot detect what a rule does only with other numbers.
// Thread safety: a pure function, if the rule is.
#ifndef CAPSTAN_SERVER_OPTIMIZER_PLUGIN_RULE_CHECK_H_
#define CAPSTAN_SERVER_OPTIMIZER_PLUGIN_RULE_CHECK_H_

#include "absl/status/status.h"
#include "server/optimizer/plugin/capstan_rule.h"

namespace capstan::server {

// Errors: kInvalidArgument  the table has a wrong value, the rule's default numbers are refused by
//         its own check, or its updates are not those of single elements; says which and what was
//         expected.
absl::Status CheckRule(const CapstanRule& rule);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_OPTIMIZER_PLUGIN_RULE_CHECK_H_
