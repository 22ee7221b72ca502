// Stream checks: tests of the properties that every kind of compressed stream has.
//
// Thread safety: pure functions, which fail the test that calls them.
#ifndef CAPSTAN_COMMON_EXAMPLES_STREAMS_TESTING_STREAM_CHECKS_H_
#define CAPSTAN_COMMON_EXAMPLES_STREAMS_TESTING_STREAM_CHECKS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "common/data/testing/test_files.h"

namespace capstan::testing {

// One zstd frame with these contents; //common/data/testing:test_files has the same for gzip.
Bytes Zstd(const Bytes& contents);

// All contents of the file, read `room_bytes` at a time.
absl::StatusOr<Bytes> ReadStream(const std::string& path, size_t room_bytes);

// Checks a format whose files end in `suffix`: contents of all sizes come back in whatever pieces
// they are read; parts may follow one another; a file that is cut off anywhere is truncated; a file
// with a changed byte is corrupt or gives its contents; other data, in front or behind, are
// refused.
void CheckCompression(const std::string& suffix,
                      const std::function<Bytes(const Bytes&)>& compress);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_TESTING_STREAM_CHECKS_H_
