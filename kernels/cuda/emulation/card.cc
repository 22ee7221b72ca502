#include "kernels/cuda/emulation/card.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace capstan::kernels::cuda::emulation {

const Card& EmulatedCard() {
  const char* const key = std::getenv("CAPSTAN_EMULATED_CARD");
  if (key == nullptr || std::string_view(key) == kH100.key) return kH100;
  if (std::string_view(key) == kA100.key) return kA100;
  std::fprintf(stderr, "CAPSTAN_EMULATED_CARD is \"%s\", expected %s or %s\n", key, kH100.key,
               kA100.key);
  std::abort();
}

}  // namespace capstan::kernels::cuda::emulation
