// ScratchFolder: a new folder for what the processes of a benchmark write; removed with it.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_BENCHMARK_SCRATCH_FOLDER_H_
#define CAPSTAN_TESTS_BENCHMARK_SCRATCH_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace capstan::benchmark {

class ScratchFolder {
 public:
  // The folder for scratch files: $TMPDIR, else /var/tmp, which is on a disk.
  static std::string Home();
  // Makes one below `home`; `name` is how its name begins.
  // Errors: kUnavailable  it cannot be made; names it.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> Make(const std::string& home,
                                                             const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

}  // namespace capstan::benchmark

#endif  // CAPSTAN_TESTS_BENCHMARK_SCRATCH_FOLDER_H_
