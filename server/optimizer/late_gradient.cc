#include "server/optimizer/late_gradient.h"

namespace capstan::server {
namespace {

float Clipped(float gradient, float clip) {
  if (gradient < -clip) return -clip;
  if (gradient > clip) return clip;
  return gradient;
}

}  // namespace

void CorrectLateGradient(const LateGradient& rule, int64_t n, const UnalignedFloat* gradient,
                         const float* now, const float* pulled, float* out) {
  const float divisor = static_cast<float>(rule.divisor);
  for (int64_t i = 0; i < n; ++i) {
    float g = gradient[i];
    if (rule.delay_compensation > 0.0f) {
      g = g + ((rule.delay_compensation * g) * g) * (now[i] - pulled[i]);
    }
    // The division lowers the learning rate of the clipped gradient, so it comes after clipping.
    // The optimizer clips again, which then changes nothing.
    if (rule.clip_value > 0.0f) g = Clipped(g, rule.clip_value);
    out[i] = g / divisor;
  }
}

}  // namespace capstan::server
