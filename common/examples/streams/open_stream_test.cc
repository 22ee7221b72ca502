#include "common/examples/streams/open_stream.h"

#include <catch2/catch.hpp>

#include "common/data/testing/test_files.h"
#include "common/examples/streams/testing/stream_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::open_stream_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Gzip;
using ::capstan::testing::NoisyBytes;
using ::capstan::testing::ReadStream;
using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::Zstd;

TEST_CASE("Data stream: the name says how a file is compressed", "[common][examples]") {
  CHECK(IsCompressed("a.gz"));
  CHECK(IsCompressed("a.txt.zst"));
  CHECK_FALSE(IsCompressed("a.gz.txt"));
  CHECK_FALSE(IsCompressed("gz"));
  const TemporaryFolder folder;
  const Bytes contents = NoisyBytes(10'000);
  for (const std::string& path : {folder.Write("a", contents), folder.Write("a.gz", Gzip(contents)),
                                  folder.Write("a.zst", Zstd(contents))}) {
    REQUIRE_OK_AND_ASSIGN(const Bytes found, ReadStream(path, 1000));
    CHECK(found == contents);
  }
}

TEST_CASE("Data stream: a plain file is read from the given byte on", "[common][examples]") {
  const TemporaryFolder folder;
  REQUIRE_OK_AND_ASSIGN(const auto stream, OpenStream(folder.Write("a", {1, 2, 3, 4}), 2));
  std::string room(10, '\0');
  REQUIRE_OK_AND_ASSIGN(const size_t got, stream->Read(absl::MakeSpan(room)));
  CHECK(room.substr(0, got) == "\3\4");
}

TEST_CASE("Data stream: a missing file is not found", "[common][examples]") {
  const TemporaryFolder folder;
  for (const char* name : {"none", "none.gz", "none.zst"}) {
    CHECK_STATUS(OpenStream(folder.Path(name), 0), absl::StatusCode::kNotFound, name);
  }
}

}  // namespace
}  // namespace capstan::open_stream_test
