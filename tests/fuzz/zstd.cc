// Bytes as a .zst file: ZstdStream gives the same contents in pieces of any size, or refuses it.
#include <cstddef>
#include <cstdint>

#include "common/examples/streams/zstd_stream.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/streams.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t room_bytes = size_t{1} + input.Byte();
  const MemoryFile file(input.Rest());
  CheckStream(file.path(), room_bytes, OpenZstdStream);
  return 0;
}

}  // namespace capstan::fuzz
