#include "worker/daemon/worker_service.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/job_access.h"
#include "common/status/status_macros.h"
#include "common/storage/files/file_bytes.h"
#include "worker/daemon/task_files.h"

namespace capstan::worker {
namespace {

constexpr int kBytesDefault = 64 << 10;
constexpr int kBytesMax = 1 << 20;

absl::StatusOr<TaskName> FindTask(const std::string& work_dir,
                                  const v1::ReadTaskLogRequest& request) {
  TaskName task{request.job_id(), Rank(request.rank()), Incarnation(request.incarnation())};
  if (request.incarnation() == 0) {
    CAPSTAN_ASSIGN_OR_RETURN(task.incarnation, NewestIncarnation(work_dir, task.job, task.rank));
  }
  return task;
}

absl::Status CannotReadLog(const std::string& path, int error) {
  const std::string message = absl::StrCat("task log ", path, ": ", strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::UnavailableError(message);
}

struct Part {
  std::string data;
  int64_t next_offset = 0;
  bool at_end = false;
};

// Reads from an open file; ReadTaskLogRequest defines the offset.
absl::StatusOr<Part> ReadPart(int fd, const std::string& path, int64_t offset, int64_t bytes_max) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return CannotReadLog(path, errno);
  const int64_t size = info.st_size;
  const int64_t begin = offset >= 0 ? std::min(offset, size) : size + std::max(offset, -size);
  Part part;
  part.data.resize(static_cast<size_t>(std::min(bytes_max, size - begin)));
  const int64_t got = ReadAt(fd, begin, absl::MakeSpan(part.data));
  if (got < 0) return CannotReadLog(path, errno);
  part.data.resize(static_cast<size_t>(got));  // Fewer, if the file was truncated meanwhile.
  part.next_offset = begin + got;
  part.at_end = part.next_offset >= size;
  return part;
}

}  // namespace

absl::StatusOr<v1::ReadTaskLogResponse> ReadTaskLog(
    const std::string& work_dir, const v1::ReadTaskLogRequest& request,
    const std::function<bool(const TaskName&)>& is_running) {
  if (request.bytes_max() < 0 || request.bytes_max() > kBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes_max: ", request.bytes_max(), ": expected 0 to ", kBytesMax));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const TaskName task, FindTask(work_dir, request));
  CAPSTAN_ASSIGN_OR_RETURN(const TaskFiles files, TaskFilesOf(work_dir, task));
  const bool running = is_running(task);  // Asked before reading: an ended task's log is complete.
  const int fd = open(files.log.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && running) {  // Its process is about to be started.
    v1::ReadTaskLogResponse nothing;
    nothing.set_incarnation(task.incarnation.value());
    return nothing;
  }
  if (fd < 0) return CannotReadLog(files.log, errno);
  const int64_t bytes_max = request.bytes_max() == 0 ? kBytesDefault : request.bytes_max();
  absl::StatusOr<Part> part = ReadPart(fd, files.log, request.offset(), bytes_max);
  close(fd);
  if (!part.ok()) return part.status();
  v1::ReadTaskLogResponse response;
  response.set_data(std::move(part->data));
  response.set_next_offset(part->next_offset);
  response.set_ended(part->at_end && !running);
  response.set_incarnation(task.incarnation.value());
  return response;
}

absl::Status CheckMayReadLog(const std::string& work_dir, const v1::ReadTaskLogRequest& request,
                             const std::optional<Identity>& caller) {
  if (!caller.has_value()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(const TaskName task, FindTask(work_dir, request));
  CAPSTAN_ASSIGN_OR_RETURN(const TaskFiles files, TaskFilesOf(work_dir, task));
  const absl::StatusOr<v1::TaskAssignment> assignment = ReadTaskSpec(files.spec);
  if (MayRead(caller, assignment.ok() ? assignment->owner() : "")) return absl::OkStatus();
  return request.incarnation() == 0 ? NeverRan(task.job, task.rank)
                                    : CannotReadLog(files.log, ENOENT);
}

WorkerService::WorkerService(std::string work_dir, std::function<bool(const TaskName&)> is_running)
    : work_dir_(std::move(work_dir)), is_running_(std::move(is_running)) {}

grpc::Status WorkerService::ReadTaskLog(grpc::ServerContext* context,
                                        const v1::ReadTaskLogRequest* request,
                                        v1::ReadTaskLogResponse* response) {
  const absl::Status may = CheckMayReadLog(work_dir_, *request, CallerOf(*context));
  if (!may.ok()) return ToGrpcStatus(may);
  auto read = worker::ReadTaskLog(work_dir_, *request, is_running_);
  if (!read.ok()) return ToGrpcStatus(read.status());
  *response = *std::move(read);
  return grpc::Status::OK;
}

}  // namespace capstan::worker
