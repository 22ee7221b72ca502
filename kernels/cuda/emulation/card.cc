#include "kernels/cuda/emulation/card.h"

#include <cstdlib>
#include <string_view>

namespace capstan::kernels::cuda::emulation {

const Card& EmulatedCard() {
  const char* const key = std::getenv("CAPSTAN_EMULATED_CARD");
  return key != nullptr && std::string_view(key) == kA100.key ? kA100 : kH100;
}

}  // namespace capstan::kernels::cuda::emulation
