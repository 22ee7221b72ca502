// A plugin that is refused: it was built for another interface.
#include "server/optimizer/plugin/capstan_rule.h"

static const CapstanRulePlugin kPlugin = {CAPSTAN_RULE_INTERFACE + 1, 1, 0};

const CapstanRulePlugin* capstan_rule_plugin(void) { return &kPlugin; }
