#include "common/examples/streams/testing/stream_checks.h"

#include <zstd.h>

#include <catch2/catch.hpp>
#include <vector>

#include "absl/types/span.h"
#include "common/examples/streams/open_stream.h"
#include "common/status/status_macros.h"
#include "common/testing/status_matchers.h"

namespace capstan::testing {
namespace {

constexpr size_t kRoomBytes = 4096;

Bytes FrontOf(Bytes bytes, size_t count) {
  bytes.resize(count);
  return bytes;
}

// Returns bytes that compress well, so that one byte of input makes much output.
Bytes RepeatingBytes(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i / 1000);
  return bytes;
}

}  // namespace

Bytes Zstd(const Bytes& contents) {
  Bytes compressed(ZSTD_compressBound(contents.size()));
  const size_t bytes = ZSTD_compress(compressed.data(), compressed.size(), contents.data(),
                                     contents.size(), /*compressionLevel=*/1);
  REQUIRE_FALSE(ZSTD_isError(bytes));
  compressed.resize(bytes);
  return compressed;
}

absl::StatusOr<Bytes> ReadStream(const std::string& path, size_t room_bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto stream, OpenStream(path, /*offset=*/0));
  Bytes contents;
  std::vector<char> room(room_bytes);
  while (true) {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t got, stream->Read(absl::MakeSpan(room)));
    if (got == 0) return contents;
    contents.insert(contents.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(got));
  }
}

void CheckCompression(const std::string& suffix,
                      const std::function<Bytes(const Bytes&)>& compress) {
  const TemporaryFolder folder;
  const auto read = [&](const Bytes& file) {
    return ReadStream(folder.Write("data" + suffix, file), kRoomBytes);
  };
  for (const Bytes& contents :
       {Bytes{}, NoisyBytes(1), NoisyBytes(4096), NoisyBytes(700'001), RepeatingBytes(3'000'000)}) {
    const std::string path = folder.Write("data" + suffix, compress(contents));
    for (const size_t room : {size_t{1000}, size_t{1} << 20}) {
      REQUIRE_OK_AND_ASSIGN(const Bytes found, ReadStream(path, room));
      CHECK(found == contents);
    }
  }
  const Bytes first = NoisyBytes(300'000, 1);
  const Bytes second = NoisyBytes(5, 2);
  REQUIRE_OK_AND_ASSIGN(const Bytes both,
                        read(Concatenate({compress(first), compress({}), compress(second)})));
  CHECK(both == Concatenate({first, second}));
  REQUIRE_OK_AND_ASSIGN(
      const Bytes tiny,
      ReadStream(folder.Write("tiny" + suffix, Concatenate({compress(second), compress(second)})),
                 /*room_bytes=*/1));
  CHECK(tiny == Concatenate({second, second}));

  const Bytes contents = NoisyBytes(150, 3);
  const Bytes whole = compress(contents);
  const std::string name = "data" + suffix;
  for (size_t count = 0; count < whole.size(); ++count) {
    CHECK_STATUS(read(FrontOf(whole, count)), absl::StatusCode::kDataLoss, name + ": truncated");
    if (count == 0) continue;
    CHECK_STATUS(read(Concatenate({whole, FrontOf(whole, count)})), absl::StatusCode::kDataLoss,
                 name + ": truncated");
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    Bytes changed = whole;
    changed[i] ^= 0x10;
    const absl::StatusOr<Bytes> found = read(changed);
    INFO("byte " << i << ": " << found.status().ToString());
    // Some fields (the time in gzip's header) say nothing about the contents.
    if (found.ok()) continue;
    CHECK((found.status().code() == absl::StatusCode::kDataLoss ||
           found.status().code() == absl::StatusCode::kResourceExhausted));
    CHECK_THAT(std::string(found.status().message()), Catch::Contains(name));
  }
  CHECK_STATUS(read(NoisyBytes(50)), absl::StatusCode::kDataLoss, name + ": corrupt");
  CHECK_STATUS(read(Concatenate({whole, Bytes(20, 'x')})), absl::StatusCode::kDataLoss, name);
}

}  // namespace capstan::testing
