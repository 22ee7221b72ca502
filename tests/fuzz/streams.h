// Reads a compressed file of any bytes, and compares what comes out however it is asked for.
//
// Thread safety: functions of their arguments.
#ifndef CAPSTAN_TESTS_FUZZ_STREAMS_H_
#define CAPSTAN_TESTS_FUZZ_STREAMS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/examples/streams/byte_stream.h"
#include "common/examples/streams/input_file.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

inline constexpr size_t kContentsBytesMax = 1 << 20;  // So much is read of what may be a bomb.

struct Contents {
  std::string bytes;
  absl::Status status;
};

// `open` is OpenGzipStream or OpenZstdStream. Stops behind kContentsBytesMax.
template <typename Open>
Contents ReadStream(const std::string& path, size_t room_bytes, const Open& open) {
  absl::StatusOr<InputFile> file = InputFile::Open(path);
  FUZZ_CHECK(file.ok());
  absl::StatusOr<std::unique_ptr<ByteStream>> stream = open(*std::move(file));
  FUZZ_CHECK(stream.ok());
  std::string room(room_bytes, '\0');
  Contents contents;
  while (contents.bytes.size() < kContentsBytesMax) {
    const absl::StatusOr<size_t> got = (*stream)->Read(absl::MakeSpan(room));
    contents.status = got.status();
    if (!got.ok() || *got == 0) break;
    FUZZ_CHECK(*got <= room_bytes);
    contents.bytes.append(room, 0, *got);
  }
  if (!contents.status.ok()) {
    FUZZ_CHECK(absl::IsDataLoss(contents.status) || absl::IsResourceExhausted(contents.status));
  }
  return contents;
}

// Reads the file in large and in small pieces: both give the same. Returns it.
template <typename Open>
Contents CheckStream(const std::string& path, size_t room_bytes, const Open& open) {
  Contents large = ReadStream(path, 1 << 16, open);
  const Contents small = ReadStream(path, room_bytes, open);
  const bool whole = large.bytes.size() < kContentsBytesMax;
  // An error may hold back what stands in front of it.
  if (whole) FUZZ_CHECK(large.status.code() == small.status.code());
  if (whole && large.status.ok()) FUZZ_CHECK(large.bytes == small.bytes);
  return large;
}

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_STREAMS_H_
