#include "common/data/testing/test_files.h"

#include <stdlib.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "common/random/philox.h"
#include "common/testing/test_paths.h"

namespace capstan::testing {

TemporaryFolder::TemporaryFolder() {
  path_ = TestPath("files.XXXXXX");
  REQUIRE(mkdtemp(path_.data()) != nullptr);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Write(const std::string& name, const Bytes& contents) const {
  std::ofstream file(Path(name), std::ios::binary);
  file.write(reinterpret_cast<const char*>(contents.data()),
             static_cast<std::streamsize>(contents.size()));
  file.close();
  REQUIRE(file.good());
  return Path(name);
}

Bytes Gzip(const Bytes& contents) {
  z_stream stream = {};
  constexpr int kWindowBits = 15 + 16;
  REQUIRE(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes compressed(deflateBound(&stream, contents.size()));
  stream.next_in = const_cast<Bytef*>(contents.data());
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = compressed.data();
  stream.avail_out = static_cast<uInt>(compressed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

Bytes NoisyBytes(size_t count, uint64_t key) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(PhiloxWord(key, i));
  return bytes;
}

Bytes Concatenate(const std::vector<Bytes>& parts) {
  Bytes whole;
  for (const Bytes& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

Bytes IdxFile(uint32_t magic, const std::vector<uint32_t>& sizes, const Bytes& body) {
  Bytes bytes;
  const auto append = [&bytes](uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<uint8_t>(word >> shift));
  };
  append(magic);
  for (const uint32_t size : sizes) append(size);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

Bytes IdxImagesFile(uint32_t count, uint32_t h, uint32_t w) {
  return IdxFile(0x803, {count, h, w}, NoisyBytes(size_t{count} * h * w));
}

Bytes IdxLabelsFile(const Bytes& labels) {
  return IdxFile(0x801, {static_cast<uint32_t>(labels.size())}, labels);
}

}  // namespace capstan::testing
