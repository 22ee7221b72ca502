#include "common/storage/crc64.h"

#include <isa-l/crc64.h>

namespace capstan {

uint64_t Crc64Of(absl::string_view bytes) {
  return crc64_ecma_refl(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace capstan
