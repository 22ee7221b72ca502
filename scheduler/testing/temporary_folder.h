// TemporaryFolder: an empty folder for one test, which the destructor removes with its content.
#ifndef CAPSTAN_SCHEDULER_TESTING_TEMPORARY_FOLDER_H_
#define CAPSTAN_SCHEDULER_TESTING_TEMPORARY_FOLDER_H_

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace capstan::scheduler::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = std::string(base == nullptr ? "/tmp" : base) + "/scheduler-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace capstan::scheduler::testing

#endif  // CAPSTAN_SCHEDULER_TESTING_TEMPORARY_FOLDER_H_
