#include "common/job/parse/job_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/parse/job_paths.h"
#include "common/job/parse/override_field.h"
#include "common/job/parse/parse_json.h"
#include "common/job/parse/parse_text.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFileBytesMax = 16 << 20;

std::string At(const std::string& name, const TextPosition& position) {
  if (position.line == 0) return name;
  return absl::StrCat(name, ":", position.line, ":", position.column);
}

bool LooksLikeJson(const std::string& name, const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return absl::EndsWith(name, ".json") || (first != std::string::npos && text[first] == '{');
}

absl::StatusOr<std::string> ReadJobFile(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read the job file"));
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": got a folder, expected a job file"));
  }
  if (info.st_size > kFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": got ", info.st_size, " bytes, expected a job file of at most ", kFileBytesMax));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot read the job file"));
  std::string text;
  char block[1 << 16];
  while (file.read(block, sizeof(block)) || file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(text.size()) > kFileBytesMax) {  // A pipe has no size beforehand.
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": expected a job file of at most ", kFileBytesMax, " bytes"));
    }
  }
  return text;
}

// Returns the path without its last step; empty for a top-level field.
std::string Enclosing(const std::string& path) {
  const size_t cut = path.find_last_of(".[");
  return cut == std::string::npos ? "" : path.substr(0, cut);
}

// Removes from `under` the lists that `over` has, too: a merge would append to them.
void RemoveReplacedLists(const google::protobuf::Message& over, google::protobuf::Message* under) {
  const google::protobuf::Reflection& reflection = *over.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(over, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->is_map()) continue;
    if (field->is_repeated()) {
      reflection.ClearField(under, field);
    } else if (field->message_type() != nullptr && reflection.HasField(*under, field)) {
      RemoveReplacedLists(reflection.GetMessage(over, field),
                          reflection.MutableMessage(under, field));
    }
  }
}

}  // namespace

void ResolvePaths(const std::string& folder, v1::JobSpec* spec) {
  for (const JobPath& named : PathsOf(spec)) {
    *named.path = (fs::path(folder) / *named.path).lexically_normal().string();
  }
}

absl::StatusOr<JobFile> JobFile::Load(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string text, ReadJobFile(path));
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat("no working directory: ", error.message()));
  return Parse(path, text, absolute.parent_path().string());
}

absl::StatusOr<JobFile> JobFile::Parse(const std::string& name, const std::string& text,
                                       const std::string& folder) {
  ParsedJob parsed = LooksLikeJson(name, text) ? ParseJsonJob(text) : ParseTextJob(text);
  if (!parsed.errors.empty()) {
    const auto line = [&](std::string* out, const LocatedDiagnostic& error) {
      absl::StrAppend(out, At(name, error.position), ": ", error.diagnostic.ToString());
    };
    return absl::InvalidArgumentError(absl::StrJoin(parsed.errors, "\n", line));
  }
  JobFile file;
  file.name_ = name;
  file.spec_ = std::move(parsed.spec);
  file.positions_ = std::move(parsed.positions);
  ResolvePaths(folder, &file.spec_);
  return file;
}

JobFile JobFile::OfSpec(std::string name, v1::JobSpec spec) {
  JobFile file;
  file.name_ = std::move(name);
  file.spec_ = std::move(spec);
  return file;
}

absl::Status JobFile::Set(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set ", assignment, ": expected FIELD=VALUE, such as training.epochs=3"));
  }
  const std::string path = assignment.substr(0, equals);
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error) return absl::InternalError(absl::StrCat("no working directory: ", error.message()));
  CAPSTAN_RETURN_IF_ERROR(Annotate(OverrideField(path, assignment.substr(equals + 1), &spec_),
                                   absl::StrCat("--set ", assignment)));
  ResolvePaths(folder.string(), &spec_);
  overrides_[path] = assignment;
  return absl::OkStatus();
}

void JobFile::FillIn(const JobFile& base) {
  v1::JobSpec merged = base.spec_;
  RemoveReplacedLists(spec_, &merged);
  merged.MergeFrom(spec_);
  spec_ = std::move(merged);
  bases_.emplace_back(base.name_, base.positions_);
}

std::string JobFile::Render(const Diagnostic& diagnostic) const {
  if (diagnostic.field.empty()) return absl::StrCat(name_, ": ", diagnostic.message);
  for (std::string path = diagnostic.field; !path.empty(); path = Enclosing(path)) {
    const bool exact = path == diagnostic.field;
    Diagnostic told = diagnostic;
    if (told.value == "0 or nothing") {  // It is 0 if the job sets the field itself.
      told = GotExpected(told.field, exact ? "0" : "nothing", told.expected);
    }
    const auto set = overrides_.find(path);
    if (set != overrides_.end()) return absl::StrCat("--set ", set->second, ": ", told.ToString());
    const auto position = positions_.find(path);
    if (position != positions_.end()) {
      return absl::StrCat(At(name_, position->second), ": ", told.ToString());
    }
    for (const auto& [name, positions] : bases_) {
      const auto there = positions.find(path);
      if (there == positions.end()) continue;
      return absl::StrCat(At(name, there->second), ": ", told.ToString());
    }
  }
  return absl::StrCat(name_, ": ", diagnostic.ToString());
}

absl::Status JobFile::Refusal(const std::vector<Diagnostic>& diagnostics) const {
  if (diagnostics.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrJoin(diagnostics, "\n", [this](std::string* out, const Diagnostic& diagnostic) {
        absl::StrAppend(out, Render(diagnostic));
      }));
}

}  // namespace capstan
