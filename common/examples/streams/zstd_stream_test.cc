#include "common/examples/streams/zstd_stream.h"

#include <catch2/catch.hpp>

#include "common/data/testing/test_files.h"
#include "common/examples/streams/testing/stream_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::zstd_stream_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::ReadStream;
using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::Zstd;

TEST_CASE("Zstd: contents come back whole or not at all", "[common][examples]") {
  ::capstan::testing::CheckCompression(".zst", Zstd);
}

TEST_CASE("Zstd: frames to be skipped are skipped", "[common][examples]") {
  const TemporaryFolder folder;
  const Bytes skippable = {0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
  const std::string path = folder.Write("a.zst", Concatenate({skippable, Zstd({1, 2}), skippable}));
  REQUIRE_OK_AND_ASSIGN(const Bytes contents, ReadStream(path, 100));
  CHECK(contents == Bytes{1, 2});
}

TEST_CASE("Zstd: a window that needs too much memory is refused by size", "[common][examples]") {
  const TemporaryFolder folder;
  // A frame header without content size: descriptor 0, window 2^(10 + 21), an empty last block.
  const Bytes frame = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 0x01, 0x00, 0x00};
  CHECK_STATUS(ReadStream(folder.Write("a.zst", frame), 100), absl::StatusCode::kResourceExhausted,
               "a.zst: cannot decompress zstd data near byte");
}

}  // namespace
}  // namespace capstan::zstd_stream_test
