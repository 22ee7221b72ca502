// Opens a data file as a stream of its contents; the name says how it is compressed.
//
// ".gz" is gzip and ".zst" zstd, by the name alone: a damaged first byte then still gives a message
// about gzip. Thread safety: pure functions of the file.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_OPEN_STREAM_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_OPEN_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/examples/streams/byte_stream.h"

namespace capstan {

// Returns whether the file can only be read from its begin.
bool IsCompressed(absl::string_view path);

// The contents from byte `offset` on. REQUIRES: offset >= 0; 0 for a compressed file.
// Errors: those of InputFile::Open; kResourceExhausted  no memory to decompress.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenStream(const std::string& path, int64_t offset);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_OPEN_STREAM_H_
