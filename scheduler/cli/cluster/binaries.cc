#include "scheduler/cli/cluster/binaries.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

BinarySearch BinarySearch::OfProcess() {
  std::error_code error;
  BinarySearch search;
  search.self = fs::read_symlink("/proc/self/exe", error).string();
  search.working_directory = fs::current_path(error).string();
  const char* path = std::getenv("PATH");
  search.path = path == nullptr ? "" : path;
  search.is_executable = [](const std::string& place) {
    std::error_code ignored;
    return fs::is_regular_file(place, ignored) && access(place.c_str(), X_OK) == 0;
  };
  return search;
}

absl::StatusOr<std::string> FindBinary(const BinarySearch& search, const std::string& role) {
  const std::string name = absl::StrCat("capstan-", role);
  const fs::path here = fs::path(search.self).parent_path();
  // The role is also the folder of the program in the source tree.
  const std::string in_tree = absl::StrCat(role, "/", name);
  std::vector<std::string> places = {
      (here / name).string(),
      // bazel-bin/scheduler/cli/capstan
      (here.parent_path().parent_path() / in_tree).string(),
      (fs::path(search.working_directory) / "bazel-bin" / in_tree).string(),
  };
  for (const absl::string_view folder : absl::StrSplit(search.path, ':', absl::SkipEmpty())) {
    places.push_back(absl::StrCat(folder, "/", name));
  }
  for (const std::string& place : places) {
    if (search.is_executable(place)) return place;
  }
  return absl::NotFoundError(absl::StrCat("the program ", name, " was not found; tried ",
                                          absl::StrJoin(places, ", "), ". Build it: bazel build //",
                                          role, ":", name));
}

absl::StatusOr<Binaries> FindBinaries(const BinarySearch& search) {
  Binaries binaries;
  CAPSTAN_ASSIGN_OR_RETURN(binaries.scheduler, FindBinary(search, "scheduler"));
  CAPSTAN_ASSIGN_OR_RETURN(binaries.server, FindBinary(search, "server"));
  CAPSTAN_ASSIGN_OR_RETURN(binaries.worker, FindBinary(search, "worker"));
  return binaries;
}

}  // namespace capstan::cli
