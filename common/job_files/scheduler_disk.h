// SchedulerDisk: a Disk whose folders are those of jobs on the scheduler's host, for hosts that do
// not share them.
//
// Files are written and read in pieces of 1 MiB, each with a checksum (proto/job_files.proto). A
// call that the scheduler does not answer is repeated, for `patience`.
// Thread safety: thread-safe; a file is thread-compatible.
#ifndef CAPSTAN_COMMON_JOB_FILES_SCHEDULER_DISK_H_
#define CAPSTAN_COMMON_JOB_FILES_SCHEDULER_DISK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/net/grpc/credentials.h"
#include "common/storage/disk.h"
#include "common/time/clock.h"
#include "proto/job_files.grpc.pb.h"

namespace capstan {

class SchedulerDisk final : public Disk {
 public:
  struct Options {
    std::string scheduler;                            // host:port.
    absl::Duration patience = absl::Minutes(2);       // Limit for a scheduler that does not answer.
    absl::Duration call_timeout = absl::Seconds(30);  // Limit of one call.
    const Credentials* credentials = nullptr;         // Null: plain text. Outlives the disk.
  };
  static constexpr int64_t kPieceBytes = 1 << 20;

  explicit SchedulerDisk(Options options);
  ~SchedulerDisk() override;
  void Stop();  // Calls end with kCancelled, now and later. Idempotent.

  // Returns whether this host has the scheduler's `folder` at the same path. The scheduler makes
  // the folder with a mark in it; this host looks for the mark on `own`, and makes nothing there.
  // Errors of this and all functions below, besides those of Disk:
  //   kPermissionDenied    no job of this node writes into that folder now, or may go back to it.
  //   kFailedPrecondition  the scheduler lacks earlier pieces of the file: it has restarted, or
  //                        given up the file.
  //   kUnavailable         it did not answer, or its disk refuses.   kCancelled  Stop.
  absl::StatusOr<bool> IsShared(const std::string& folder, Disk& own);

  // Append sends whole pieces of 1 MiB, and Sync the rest. The file is durable after Rename, which
  // takes only a file that was written and synced here. Sync and SyncFolder make nothing durable by
  // themselves.
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::StatusOr<std::string> Read(const std::string& path, int64_t bytes_max) override;
  absl::StatusOr<std::string> ReadPart(const std::string& path, int64_t begin,
                                       int64_t bytes) override;
  absl::Status Remove(const std::string& path) override;  // Gives up a file that was not renamed.
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  // Errors: kUnimplemented.
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;

 private:
  class File;
  struct Written {
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };

  absl::StatusOr<v1::MarkFolderResponse> MarkFolder(const std::string& folder);
  absl::StatusOr<v1::ReadPieceResponse> ReadPiece(const std::string& path, int64_t offset,
                                                  int64_t bytes_max);
  absl::Status Send(const std::string& path, int64_t offset, absl::string_view data);
  void NoteWritten(const std::string& path, const Written& written);
  // Repeats the call until it is answered, `patience` is over, or Stop.
  absl::Status Repeat(const std::function<grpc::Status(grpc::ClientContext*)>& call);
  // True: this attempt may begin, and EndAttempt must follow. False: Stop was called.
  bool BeginAttempt(grpc::ClientContext* context);
  void EndAttempt(grpc::ClientContext* context);

  const Options options_;
  const SteadyClock clock_;
  const std::unique_ptr<v1::JobFiles::Stub> stub_;

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> in_flight_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Written> written_ ABSL_GUARDED_BY(mutex_);  // Files not renamed yet.
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_FILES_SCHEDULER_DISK_H_
