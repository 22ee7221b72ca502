#include "common/process/keep_memory.h"

#include <malloc.h>

namespace capstan {

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc accepts no larger value.
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace capstan
