// Bytes as a .gz file: GzipStream gives the same contents in pieces of any size, and ReadDataFile
// the same once more, or both refuse the file.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/data/file_reader.h"
#include "common/examples/streams/gzip_stream.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/streams.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

// A name that ends in .gz, for a file in memory.
class GzipName {
 public:
  explicit GzipName(const MemoryFile& file) {
    const char* folder = std::getenv("TEST_TMPDIR");
    path_ = absl::StrCat(folder == nullptr ? "/tmp" : folder, "/fuzz-", getpid(), ".gz");
    unlink(path_.c_str());
    FUZZ_CHECK(symlink(file.path().c_str(), path_.c_str()) == 0);
  }
  ~GzipName() { unlink(path_.c_str()); }
  GzipName(const GzipName&) = delete;
  GzipName& operator=(const GzipName&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const size_t room_bytes = size_t{1} + input.Byte();
  const MemoryFile file(input.Rest());
  const Contents stream = CheckStream(file.path(), room_bytes, OpenGzipStream);
  const GzipName name(file);
  const absl::StatusOr<std::vector<uint8_t>> whole =
      ReadDataFile(name.path(), static_cast<int64_t>(kContentsBytesMax));
  if (stream.bytes.size() >= kContentsBytesMax) return 0;
  FUZZ_CHECK(whole.ok() == stream.status.ok());
  if (whole.ok()) FUZZ_CHECK(std::string(whole->begin(), whole->end()) == stream.bytes);
  return 0;
}

}  // namespace capstan::fuzz
