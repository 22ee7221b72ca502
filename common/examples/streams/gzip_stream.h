// GzipStream: the contents of a .gz file, decompressed piece by piece in bounded memory.
//
// Members that follow one another give their contents in order, as RFC 1952 says. Memory: 256 KiB
// and zlib's window, for any file. Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_GZIP_STREAM_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_GZIP_STREAM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/examples/streams/byte_stream.h"
#include "common/examples/streams/input_file.h"

namespace capstan {

// Errors: kResourceExhausted  no memory for zlib.
// Errors of Read: those of InputFile::ReadAt;
//                 kDataLoss           truncated, corrupt, or bytes follow the compressed data;
//                 kResourceExhausted  no memory for zlib.
// Every message begins with the path.
absl::StatusOr<std::unique_ptr<ByteStream>> OpenGzipStream(InputFile file);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_GZIP_STREAM_H_
