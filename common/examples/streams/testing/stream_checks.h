// Stream checks: what holds for every kind of compressed stream. For tests.
//
// Thread safety: pure functions; each fails the test.
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

// Checks a format whose files end in `suffix`: contents of all sizes come back however they are
// read; parts may follow one another; cut off anywhere it is truncated; changed anywhere it is
// corrupt or gives its contents; what is no such data, in front or behind, is refused.
void CheckCompression(const std::string& suffix,
                      const std::function<Bytes(const Bytes&)>& compress);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_EXAMPLES_STREAMS_TESTING_STREAM_CHECKS_H_
