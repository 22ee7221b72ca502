// MemoryFile: a regular file in memory, for decoders that open a path.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_TESTS_FUZZ_MEMORY_FILE_H_
#define CAPSTAN_TESTS_FUZZ_MEMORY_FILE_H_

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/storage/files/descriptor.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(absl::string_view bytes) : file_(memfd_create("input", MFD_CLOEXEC)) {
    FUZZ_CHECK(file_.ok());
    while (!bytes.empty()) {
      const ssize_t written = write(file_.get(), bytes.data(), bytes.size());
      FUZZ_CHECK(written > 0);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }

  // It names the file as long as this object lives.
  std::string path() const { return absl::StrCat("/proc/self/fd/", file_.get()); }

 private:
  const Descriptor file_;
};

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_MEMORY_FILE_H_
