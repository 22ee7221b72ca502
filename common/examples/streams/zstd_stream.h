// ZstdStream: the contents of a .zst file, decompressed piece by piece in bounded memory.
//
// Frames that follow one another give their contents in order. Memory: 256 KiB and the frame's
// window, which may be 128 MiB at most. Thread safety: thread-compatible. Reference: RFC 8878.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_ZSTD_STREAM_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_ZSTD_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/examples/streams/byte_stream.h"
#include "common/examples/streams/input_file.h"

namespace capstan {

// Errors: kResourceExhausted  no memory for zstd.
// Errors of Read: those of InputFile::ReadAt;
//                 kDataLoss           truncated, corrupt, or bytes follow the compressed data;
//                 kResourceExhausted  no memory for zstd, or a window above 128 MiB.
// Every message begins with the path.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenZstdStream(InputFile file);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_ZSTD_STREAM_H_
