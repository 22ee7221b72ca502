#include "scheduler/cli/diff/run_source.h"

#include <google/protobuf/util/json_util.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "scheduler/cli/view/text/format.h"

namespace capstan::cli {
namespace {

constexpr int64_t kStatusBytesMax = 64 << 20;

// Empty: there is no job.json in the folder.
absl::StatusOr<std::optional<v1::JobSpec>> ReadSpec(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/job.json");
  const absl::StatusOr<RegularFile> file = OpenRegularFile(path);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  if (file->bytes > kStatusBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", file->bytes, " bytes, expected at most ", kStatusBytesMax));
  }
  std::string text(static_cast<size_t>(file->bytes), '\0');
  CAPSTAN_ASSIGN_OR_RETURN(const size_t bytes, ReadFileAt(*file, path, 0, absl::MakeSpan(text)));
  text.resize(bytes);
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::JobStatus status;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &status, options);
  if (parsed.ok()) return status.effective_spec();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", std::string(parsed.message()), ", expected a job's status"));
}

absl::StatusOr<RecordedRun> ReadPath(const std::string& name) {
  const std::string suffix = absl::StrCat("/", kUpdateLogName);
  std::string folder = name;
  std::string file = absl::StrCat(name, suffix);
  if (absl::EndsWith(name, suffix)) {
    file = name;
    folder = name.substr(0, name.size() - suffix.size());
  }
  RecordedRun run{.origin = {.name = name, .spec = {}}, .updates = {}};
  CAPSTAN_ASSIGN_OR_RETURN(run.origin.spec, ReadSpec(folder));
  CAPSTAN_ASSIGN_OR_RETURN(run.updates, ReadUpdateLog(file));
  run.origin.torn_lines = run.updates.torn_lines;
  return run;
}

absl::StatusOr<RecordedRun> ReadJob(const std::string& name, const GetJob& get_job) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::JobStatus job, get_job(name));
  if (!job.effective_spec().output().record_updates()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name,
                     ": does not record its updates; submit it again with --set "
                     "output.record_updates=true"));
  }
  const std::string path = absl::StrCat(job.output_directory(), "/", kUpdateLogName);
  absl::StatusOr<LoggedUpdates> updates = ReadUpdateLog(path);
  if (!updates.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": ", std::string(updates.status().message()), "; its record is ",
                     PathOn(job.output_host(), path),
                     ", if it has trained yet: run this there, or copy that folder and name it"));
  }
  const int64_t torn = updates->torn_lines;
  return RecordedRun{.origin = {.name = name, .spec = job.effective_spec(), .torn_lines = torn},
                     .updates = *std::move(updates)};
}

}  // namespace

absl::StatusOr<RecordedRun> ReadRun(const std::string& name, const GetJob& get_job) {
  const bool path = absl::StrContains(name, '/') || name == "." || name == "..";
  return path ? ReadPath(name) : ReadJob(name, get_job);
}

}  // namespace capstan::cli
