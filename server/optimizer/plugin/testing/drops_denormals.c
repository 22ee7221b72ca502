// A plugin that is refused: it sets the processor to drop denormals when it is loaded, as a library
// does that GCC has linked with -ffast-math.
#include <xmmintrin.h>

#include "server/optimizer/plugin/capstan_rule.h"

__attribute__((constructor)) static void DropDenormals(void) {
  const unsigned int kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
}

static void Apply(const double* numbers, uint64_t step, double learning_rate, int64_t n,
                  const float* in, const float* gradient, float* const* state, float* out) {
  (void)numbers, (void)step, (void)learning_rate, (void)gradient, (void)state;
  for (int64_t i = 0; i < n; ++i) out[i] = in[i];
}
static const CapstanRule kRules[] = {{"drops_denormals", 0, {0}, 0, 0, 0, 0, Apply}};
static const CapstanRulePlugin kPlugin = {CAPSTAN_RULE_INTERFACE, 1, kRules};

const CapstanRulePlugin* capstan_rule_plugin(void) { return &kPlugin; }
