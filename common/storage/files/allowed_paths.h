// AllowedPaths: the folders below which jobs may name files, as the operator of a daemon gives them
// with --allow-path.
//
// A rule is PATH, for the jobs of everybody, or USER=PATH. `{user}` as a step of PATH stands for
// the name of the job's user. What no rule allows is refused. The names are compared here, without
// a look at the disk; path_access.h opens what is allowed, and follows no link out of it.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_ALLOWED_PATHS_H_
#define CAPSTAN_COMMON_STORAGE_FILES_ALLOWED_PATHS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace capstan {

class AllowedPaths {
 public:
  // A path as a root and what lies below it.
  struct Place {
    std::string root;
    std::vector<std::string> steps;  // Empty: the root itself. None is "", "." or "..".
  };

  // Reads rules; one text may hold several, between commas. A root that is a link, or lies behind
  // one, is also allowed by the name that it leads to.
  // Errors: kInvalidArgument  a rule that is neither; names it.
  static absl::StatusOr<AllowedPaths> Parse(absl::Span<const std::string> rules);

  // Adds a folder of this process, which it may open and jobs may not name.
  // REQUIRES: `folder` is absolute.
  void AddOwn(const std::string& folder);

  // Whether a job of `user` may name `path`. Without a name ("") only the rules for everybody hold.
  // Errors: kPermissionDenied  it may not; the message says why and which folders are allowed.
  absl::Status Check(absl::string_view user, absl::string_view path) const;

  // Finds the root that `path` lies below: a folder that is allowed to any user, or an own one. The
  // longest of several roots is taken.
  std::optional<Place> Find(absl::string_view path) const;

  // The rules that Parse has read, for the flags of another process.
  const std::vector<std::string>& rules() const { return rules_; }

 private:
  enum class Whose { kEverybody, kUser, kOwn };
  struct Root {
    Whose whose = Whose::kEverybody;
    std::string user;
    std::vector<std::string> steps;
  };

  absl::Status Add(absl::string_view rule);
  std::string ListFor(absl::string_view user) const;

  std::vector<std::string> rules_;
  std::vector<Root> roots_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_ALLOWED_PATHS_H_
