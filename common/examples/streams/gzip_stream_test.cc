#include "common/examples/streams/gzip_stream.h"

#include <catch2/catch.hpp>

#include "common/data/testing/test_files.h"
#include "common/examples/streams/testing/stream_checks.h"
#include "common/testing/status_matchers.h"

namespace capstan::gzip_stream_test {
namespace {

using ::capstan::testing::Bytes;
using ::capstan::testing::Concatenate;
using ::capstan::testing::Gzip;
using ::capstan::testing::NoisyBytes;
using ::capstan::testing::ReadStream;
using ::capstan::testing::TemporaryFolder;

TEST_CASE("Gzip: contents come back whole or not at all", "[common][examples]") {
  ::capstan::testing::CheckCompression(".gz", Gzip);
}

TEST_CASE("Gzip: a wrong checksum and bytes behind the data are told apart", "[common][examples]") {
  const TemporaryFolder folder;
  Bytes wrong_crc = Gzip(NoisyBytes(2000));
  wrong_crc[wrong_crc.size() - 5] ^= 1;
  CHECK_STATUS(ReadStream(folder.Write("a.gz", wrong_crc), 100), absl::StatusCode::kDataLoss,
               "a.gz: corrupt gzip data near byte");
  const Bytes followed = Concatenate({Gzip({1}), {'x'}});
  CHECK_STATUS(ReadStream(folder.Write("a.gz", followed), 100), absl::StatusCode::kDataLoss,
               "a.gz: bytes that are no gzip data follow the compressed data at byte " +
                   std::to_string(followed.size() - 1));
}

}  // namespace
}  // namespace capstan::gzip_stream_test
