#include "common/storage/files/allowed_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr absl::string_view kUserStep = "{user}";

// Errors: kInvalidArgument  the path is relative, or has a step "..".
absl::StatusOr<std::vector<std::string>> StepsOf(absl::string_view path) {
  if (path.empty() || path.front() != '/') {
    return absl::InvalidArgumentError("is relative, expected an absolute path");
  }
  if (path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("has a zero byte, expected a path");
  }
  std::vector<std::string> steps;
  for (const absl::string_view step : absl::StrSplit(path, '/')) {
    if (step == "..") {
      return absl::InvalidArgumentError("has a step \"..\", expected a path without");
    }
    if (!step.empty() && step != ".") steps.emplace_back(step);
  }
  return steps;
}

std::string PathOf(absl::Span<const std::string> steps) {
  return absl::StrCat("/", absl::StrJoin(steps, "/"));
}

// Cuts a text at the commas that begin a rule: the names of folders may have commas, too.
std::vector<std::string> RulesIn(const std::string& text) {
  std::vector<std::string> rules;
  for (const absl::string_view piece : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const size_t equals = piece.find('=');
    const size_t path = equals == absl::string_view::npos || piece.front() == '/' ? 0 : equals + 1;
    if (rules.empty() || (path < piece.size() && piece[path] == '/')) {
      rules.emplace_back(piece);
    } else {
      absl::StrAppend(&rules.back(), ",", piece);
    }
  }
  return rules;
}

// Whether `path` begins with `root`. Without a `user` its step stands for any name.
bool Begins(const std::vector<std::string>& path, const std::vector<std::string>& root,
            std::optional<absl::string_view> user) {
  if (path.size() < root.size()) return false;
  for (size_t i = 0; i < root.size(); ++i) {
    if (root[i] == kUserStep && (!user || path[i] == *user)) continue;
    if (root[i] == kUserStep || path[i] != root[i]) return false;
  }
  return true;
}

// Returns the steps with the links in front of kUserStep resolved.
std::vector<std::string> Resolved(const std::vector<std::string>& steps) {
  const auto user = std::find(steps.begin(), steps.end(), kUserStep);
  const std::vector<std::string> front(steps.begin(), user);
  std::error_code error;
  const std::string canonical = std::filesystem::canonical(PathOf(front), error).string();
  if (error) return steps;
  std::vector<std::string> resolved = absl::StrSplit(canonical, '/', absl::SkipEmpty());
  resolved.insert(resolved.end(), user, steps.end());
  return resolved;
}

}  // namespace

absl::StatusOr<AllowedPaths> AllowedPaths::Parse(absl::Span<const std::string> rules) {
  AllowedPaths allowed;
  for (const std::string& text : rules) {
    for (const std::string& rule : RulesIn(text)) CAPSTAN_RETURN_IF_ERROR(allowed.Add(rule));
  }
  return allowed;
}

absl::Status AllowedPaths::Add(absl::string_view rule) {
  Root root;
  absl::string_view path = rule;
  const size_t equals = rule.find('=');
  if (!rule.empty() && rule.front() != '/' && equals != absl::string_view::npos) {
    root.whose = Whose::kUser;
    root.user = std::string(rule.substr(0, equals));
    path = rule.substr(equals + 1);
  }
  absl::StatusOr<std::vector<std::string>> steps = StepsOf(path);
  if (!steps.ok() || (root.whose == Whose::kUser && root.user.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--allow-path: got \"", absl::CHexEscape(rule),
                     "\", expected PATH or USER=PATH with an absolute PATH without \"..\""));
  }
  root.steps = *std::move(steps);
  rules_.emplace_back(rule);
  std::vector<std::string> resolved = Resolved(root.steps);
  roots_.push_back(root);
  if (resolved == root.steps) return absl::OkStatus();
  root.steps = std::move(resolved);
  roots_.push_back(std::move(root));
  return absl::OkStatus();
}

void AllowedPaths::AddOwn(const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> steps = StepsOf(folder);
  if (steps.ok()) roots_.push_back({.whose = Whose::kOwn, .user = "", .steps = *steps});
}

absl::Status AllowedPaths::Check(absl::string_view user, absl::string_view path) const {
  const absl::StatusOr<std::vector<std::string>> steps = StepsOf(path);
  const auto refused = [&](absl::string_view why) {
    return absl::PermissionDeniedError(
        absl::StrCat("\"", absl::CHexEscape(path), "\" ", why, "; allowed ",
                     user.empty() ? "" : absl::StrCat("to ", user, " "), "are ", ListFor(user)));
  };
  if (!steps.ok()) return refused(steps.status().message());
  for (const Root& root : roots_) {
    if (root.whose == Whose::kOwn) continue;
    if (root.whose == Whose::kUser && root.user != user) continue;
    if (Begins(*steps, root.steps, user)) return absl::OkStatus();
  }
  return refused("lies below no folder that is allowed to jobs");
}

std::optional<AllowedPaths::Place> AllowedPaths::Find(absl::string_view path) const {
  const absl::StatusOr<std::vector<std::string>> steps = StepsOf(path);
  if (!steps.ok()) return std::nullopt;
  const Root* longest = nullptr;
  for (const Root& root : roots_) {
    if (!Begins(*steps, root.steps, std::nullopt)) continue;
    if (longest == nullptr || longest->steps.size() < root.steps.size()) longest = &root;
  }
  if (longest == nullptr) return std::nullopt;
  const auto end = steps->begin() + static_cast<std::ptrdiff_t>(longest->steps.size());
  return Place{.root = PathOf(std::vector<std::string>(steps->begin(), end)),
               .steps = {end, steps->end()}};
}

std::string AllowedPaths::ListFor(absl::string_view user) const {
  std::vector<std::string> paths;
  for (const Root& root : roots_) {
    if (root.whose == Whose::kOwn || (root.whose == Whose::kUser && root.user != user)) continue;
    std::vector<std::string> steps = root.steps;
    for (std::string& step : steps) {
      if (step == kUserStep && !user.empty()) step = std::string(user);
    }
    paths.push_back(PathOf(steps));
  }
  return paths.empty() ? "no folders (--allow-path)"
                       : absl::StrCat(absl::StrJoin(paths, ", "), " (--allow-path)");
}

}  // namespace capstan
