#include "scheduler/cli/command_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/fields/field_names.h"

namespace capstan::cli {
namespace {

// Pairs of a command's name in other programs and its name here.
constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"ls", "list"},       {"ps", "list"},      {"get", "list"},      {"show", "describe"},
    {"info", "describe"}, {"kill", "stop"},    {"rm", "delete"},     {"cancel", "stop"},
    {"run", "submit"},    {"tail", "logs"},    {"start", "up"},      {"stop", "down"},
    {"create", "save"},   {"load", "restore"}, {"remove", "delete"}, {"annotate", "label"},
    {"note", "label"}};

bool Has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the command of `group` that the user probably meant by `name`; empty if none is similar.
std::string Meant(Command group, const std::string& name) {
  const std::vector<std::string> names = group.CommandNames();
  std::string nearest = Nearest(name, names);
  if (!nearest.empty()) return nearest;
  for (const auto& [word, here] : kSynonyms) {
    if (name == word && Has(names, here)) return here;
  }
  return "";
}

}  // namespace

std::string UnknownCommand(Command program, const std::vector<std::string>& arguments) {
  Command group = program;
  std::string path;  // The groups so far, each followed by a blank, as in "job ".
  for (const std::string& argument : arguments) {
    const std::vector<std::string> names = group.CommandNames();
    if (names.empty() || argument.empty() || argument[0] == '-') return "";
    if (Has(names, argument)) {
      group = group.Find(argument);
      absl::StrAppend(&path, argument, " ");
      continue;
    }
    std::vector<std::string> meant;
    if (const std::string near = Meant(group, argument); !near.empty()) {
      meant.push_back(absl::StrCat(path, near));
    } else {
      // The user may have left out the command's group.
      for (const std::string& name : names) {
        const std::string inner = Meant(group.Find(name), argument);
        if (!inner.empty()) meant.push_back(absl::StrCat(path, name, " ", inner));
      }
    }
    const std::string hint =
        meant.empty() ? ""
                      : absl::StrCat("did you mean \"", absl::StrJoin(meant, "\" or \""), "\"? ");
    return absl::StrCat("there is no command \"", path, argument, "\"; ", hint, group.Name(),
                        " has ", absl::StrJoin(names, ", "));
  }
  return "";
}

}  // namespace capstan::cli
