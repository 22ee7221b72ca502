#include "worker/daemon/task_files.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "common/storage/files/private_files.h"
#include "common/storage/files/replace_file.h"
#include "common/tensor/staged_model.h"

namespace capstan::worker {
namespace {

constexpr size_t kJobIdLengthMax = 128;

absl::Status CheckJobId(const JobId& job) {
  const bool plain = std::all_of(job.begin(), job.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
  if (plain && !job.empty() && job.front() != '.' && job.size() <= kJobIdLengthMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "job_id: \"", absl::string_view(job).substr(0, kJobIdLengthMax), "\": expected 1 to ",
      kJobIdLengthMax, " letters, digits, '_', '-' and '.', not starting with '.'"));
}

absl::Status CheckRank(Rank rank) {
  if (rank.value() >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank: ", rank.value(), ": expected 0 or more"));
}

namespace fs = std::filesystem;

// The task whose folder has this name; none if TaskFilesOf does not make such a name.
std::optional<TaskName> TaskOf(const JobId& job, const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  int32_t rank = 0;
  uint64_t incarnation = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &rank) ||
      !absl::SimpleAtoi(parts[1], &incarnation)) {
    return std::nullopt;
  }
  return TaskName{job, Rank(rank), Incarnation(incarnation)};
}

struct EndedTask {
  fs::file_time_type written;
  Incarnation incarnation;
  TaskFiles files;
};

// Adds every ended task of one job that has left files.
void AddEndedTasks(const std::string& work_dir, const JobId& job,
                   const std::function<bool(const TaskName&)>& is_running,
                   std::vector<EndedTask>* ended) {
  for (const fs::path& folder : PathsIn(absl::StrCat(work_dir, "/", job))) {
    const std::optional<TaskName> task = TaskOf(job, folder.filename().string());
    if (!task.has_value() || is_running(*task)) continue;
    const absl::StatusOr<TaskFiles> files = TaskFilesOf(work_dir, *task);
    std::error_code error;
    if (!files.ok() || !fs::exists(files->spec, error)) continue;
    fs::file_time_type written = fs::last_write_time(files->log, error);
    if (error) written = fs::last_write_time(files->spec, error);
    if (!error) ended->push_back({written, task->incarnation, *files});
  }
}

// The incarnation in a folder's name "<rank>-<incarnation>", or 0 if it is of another rank.
uint64_t IncarnationOf(const std::string& name, Rank rank) {
  const std::string prefix = absl::StrCat(rank.value(), "-");
  uint64_t incarnation = 0;
  if (name.compare(0, prefix.size(), prefix) != 0) return 0;
  return absl::SimpleAtoi(name.substr(prefix.size()), &incarnation) ? incarnation : 0;
}

}  // namespace

std::vector<fs::path> PathsIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

absl::StatusOr<TaskFiles> TaskFilesOf(const std::string& work_dir, const TaskName& task) {
  CAPSTAN_RETURN_IF_ERROR(CheckJobId(task.job));
  CAPSTAN_RETURN_IF_ERROR(CheckRank(task.rank));
  if (task.incarnation.value() == 0) {
    return absl::InvalidArgumentError("incarnation: 0: expected 1 or more");
  }
  const std::string folder =
      absl::StrCat(work_dir, "/", task.job, "/", task.rank.value(), "-", task.incarnation.value());
  return TaskFiles{folder, folder + "/task.textproto", folder + "/task.log"};
}

absl::Status NeverRan(const JobId& job, Rank rank) {
  return absl::NotFoundError(
      absl::StrCat("task ", rank.value(), " of job ", job, " never ran on this worker"));
}

absl::StatusOr<Incarnation> NewestIncarnation(const std::string& work_dir, const JobId& job,
                                              Rank rank) {
  CAPSTAN_RETURN_IF_ERROR(CheckJobId(job));
  CAPSTAN_RETURN_IF_ERROR(CheckRank(rank));
  uint64_t newest = 0;
  for (const fs::path& folder : PathsIn(absl::StrCat(work_dir, "/", job))) {
    newest = std::max(newest, IncarnationOf(folder.filename().string(), rank));
  }
  if (newest == 0) {
    return NeverRan(job, rank);
  }
  return Incarnation(newest);
}

absl::Status WriteTaskSpec(const TaskFiles& files, const v1::TaskAssignment& assignment) {
  if (const std::error_code error = MakePrivateFolders(files.folder)) {
    return absl::UnavailableError(absl::StrCat("making ", files.folder, ": ", error.message()));
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(assignment, &text);
  return ReplaceFile(files.spec, text);
}

int DeleteOldTasks(const std::string& work_dir, int keep,
                   const std::function<bool(const TaskName&)>& is_running) {
  std::vector<EndedTask> ended;
  for (const fs::path& job : PathsIn(work_dir)) {
    AddEndedTasks(work_dir, job.filename().string(), is_running, &ended);
  }
  std::sort(ended.begin(), ended.end(), [](const EndedTask& a, const EndedTask& b) {
    return std::tie(a.written, a.incarnation) > std::tie(b.written, b.incarnation);
  });
  // A task that was killed may have left a model that it was to send.
  for (const EndedTask& task : ended) {
    for (const StagedModel& model : StagedModelsIn(task.files.folder)) {
      RemoveStagedModel(model.path);
    }
  }
  int deleted = 0;
  for (size_t i = static_cast<size_t>(keep); i < ended.size(); ++i) {
    const TaskFiles& files = ended[i].files;
    std::error_code error;
    fs::remove(files.log, error);
    fs::remove(files.spec, error);
    if (!error) ++deleted;
    // This fails, as it should, if the folders contain anything else.
    fs::remove(files.folder, error);
    fs::remove(fs::path(files.folder).parent_path(), error);
  }
  return deleted;
}

absl::StatusOr<v1::TaskAssignment> ReadTaskSpec(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("task spec ", path, ": ", strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  v1::TaskAssignment assignment;
  if (!google::protobuf::TextFormat::ParseFromString(text.str(), &assignment)) {
    return absl::InvalidArgumentError(
        absl::StrCat("task spec ", path, ": expected a capstan.v1.TaskAssignment in text format"));
  }
  return assignment;
}

}  // namespace capstan::worker
