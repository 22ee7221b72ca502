// Test files: a temporary folder, gzip, and small IDX and CIFAR-10 contents, for tests.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_DATA_TESTING_TEST_FILES_H_
#define CAPSTAN_COMMON_DATA_TESTING_TEST_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace capstan::testing {

using Bytes = std::vector<uint8_t>;

// A folder of the test's own, removed with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, const Bytes& contents) const;

 private:
  std::string path_;
};

// One gzip member with these contents.
Bytes Gzip(const Bytes& contents);

// Deterministic bytes that do not compress well.
Bytes NoisyBytes(size_t count, uint64_t key = 1);

Bytes Concatenate(const std::vector<Bytes>& parts);

// An IDX file: big-endian magic and sizes, then the body.
Bytes IdxFile(uint32_t magic, const std::vector<uint32_t>& sizes, const Bytes& body);
Bytes IdxImagesFile(uint32_t count, uint32_t h, uint32_t w);  // Noisy pixels.
Bytes IdxLabelsFile(const Bytes& labels);

}  // namespace capstan::testing

#endif  // CAPSTAN_COMMON_DATA_TESTING_TEST_FILES_H_
