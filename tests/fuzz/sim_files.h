// Writes whole files to a simulated disk.
//
// Thread safety: a function of its arguments.
#ifndef CAPSTAN_TESTS_FUZZ_SIM_FILES_H_
#define CAPSTAN_TESTS_FUZZ_SIM_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/storage/testing/sim_disk.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

// Replaces the file of that name. The folder is made if it is missing.
inline void WriteFile(SimDisk& disk, const std::string& folder, absl::string_view name,
                      absl::string_view bytes) {
  FUZZ_CHECK(disk.MakeFolder(folder).ok());
  absl::StatusOr<std::unique_ptr<WritableFile>> file = disk.Create(absl::StrCat(folder, "/", name));
  FUZZ_CHECK(file.ok() && (*file)->Append(bytes).ok() && (*file)->Sync().ok());
  FUZZ_CHECK(disk.SyncFolder(folder).ok());
}

}  // namespace capstan::fuzz

#endif  // CAPSTAN_TESTS_FUZZ_SIM_FILES_H_
