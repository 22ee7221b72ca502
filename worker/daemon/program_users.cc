#include "worker/daemon/program_users.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/observability/log.h"
#include "common/process/random_hex.h"
#include "common/process/subprocess/user_processes.h"
#include "common/security/certificates/deny_list.h"
#include "common/security/certificates/security_file.h"
#include "common/security/certificates/tls_folder.h"
#include "common/status/status_macros.h"
#include "common/storage/files/private_files.h"
#include "common/storage/files/replace_file.h"

namespace capstan::worker {
namespace {

namespace fs = std::filesystem;

// A daemon that has locked the file N in it has user N. systemd does the same before it gives a
// service the user N for as long as that runs.
constexpr char kSystemdLocks[] = "/run/systemd/dynamic-uid";
constexpr char kOwnLocks[] = "/run/capstan-program-users";
constexpr char kEndedFolder[] = ".ended-programs";
constexpr char kProgramFolder[] = "program";
constexpr char kTemporaryFolder[] = "tmp";
constexpr char kTlsLink[] = "tls";
constexpr absl::Duration kFollowInterval = absl::Seconds(1);  // As Credentials::kRereadSeconds.
constexpr mode_t kGroupPassesThrough = 0710;
constexpr mode_t kGroupReads = 0750;

absl::Status Failed(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(error)));
}

// Changes a file or folder itself, not what a symbolic link names.
absl::Status SetOwner(const std::string& path, uid_t user, gid_t group, mode_t mode) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.ok() || fchown(file.get(), user, group) != 0 || fchmod(file.get(), mode) != 0) {
    return Failed(path, errno);
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  return mkdir(path.c_str(), kPrivateFolderMode) == 0 ? absl::OkStatus() : Failed(path, errno);
}

// Whether a person or a service has that number as user or group.
bool HasAccount(uid_t number) {
  std::vector<char> buffer(1 << 16);
  struct passwd user {};
  struct group group {};
  struct passwd* found_user = nullptr;
  struct group* found_group = nullptr;
  getpwuid_r(number, &user, buffer.data(), buffer.size(), &found_user);
  getgrgid_r(number, &group, buffer.data(), buffer.size(), &found_group);
  return found_user != nullptr || found_group != nullptr;
}

// Reads denied.txt; empty if there is none.
absl::StatusOr<std::string> ReadDenied(const TlsFolder& files) {
  const std::string path = files.DeniedPath();
  absl::StatusOr<std::string> denied = ReadSecurityFile(AT_FDCWD, path, path, Secrecy::kPublic);
  return absl::IsNotFound(denied.status()) ? "" : denied;
}

std::string CopyOf(const std::string& task_folder, int64_t number) {
  return absl::StrCat(task_folder, "/", kTlsLink, ".", number);
}

// Makes copy `number` of the certificates for a program, and lets the program's link name it. The
// copy before it is kept, because the program may be reading it; older ones are deleted.
absl::Status CopyCertificates(const std::string& task_folder, uid_t user, int64_t number,
                              const TlsFolder& files, const std::string& denied) {
  const std::string copy = CopyOf(task_folder, number);
  CAPSTAN_RETURN_IF_ERROR(MakeFolder(copy));
  for (const auto& [name, contents] :
       {std::pair(kTrustedFile, files.authorities_pem),
        std::pair(kCertificateFile, files.certificate_pem), std::pair(kKeyFile, files.key_pem),
        std::pair(kDeniedFile, denied)}) {
    const std::string path = absl::StrCat(copy, "/", name);
    CAPSTAN_RETURN_IF_ERROR(ReplaceFile(path, contents));
    CAPSTAN_RETURN_IF_ERROR(SetOwner(path, user, user, kPrivateFileMode));
  }
  CAPSTAN_RETURN_IF_ERROR(SetOwner(copy, geteuid(), user, kGroupReads));
  const std::string link = absl::StrCat(task_folder, "/", kTlsLink);
  const std::string next = link + ".next";
  unlink(next.c_str());
  if (symlink(fs::path(copy).filename().c_str(), next.c_str()) != 0 ||
      rename(next.c_str(), link.c_str()) != 0) {
    return Failed(link, errno);
  }
  std::error_code ignored;
  fs::remove_all(CopyOf(task_folder, number - 2), ignored);
  return absl::OkStatus();
}

// Checks that users who are neither the owner nor in the group may enter all folders to `path`.
absl::Status CheckOthersReach(const std::string& path) {
  for (fs::path each = fs::path(path).parent_path();; each = each.parent_path()) {
    struct stat facts {};
    if (stat(each.c_str(), &facts) != 0) return Failed(each.string(), errno);
    if ((facts.st_mode & S_IXOTH) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--work-dir=", path, ": programs of jobs, which run as users of their own, cannot enter ",
          each.string(), ": name another folder, or run them as this user by --program-uids=off"));
    }
    if (each == each.root_path()) return absl::OkStatus();
  }
}

}  // namespace

bool ProgramUsers::Certificates::Same(const Certificates& other) const {
  return files.authorities_pem == other.files.authorities_pem &&
         files.certificate_pem == other.files.certificate_pem &&
         files.key_pem == other.files.key_pem && denied == other.denied;
}

ProgramUsers::ProgramUsers(Options options)
    : options_(std::move(options)),
      ended_folder_(absl::StrCat(options_.work_dir, "/", kEndedFolder)),
      uids_(options_.uids, static_cast<uint64_t>(getpid())) {}

ProgramUsers::~ProgramUsers() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status ProgramUsers::Start() {
  if (geteuid() != 0) {
    return absl::FailedPreconditionError(
        "--program-uids: only root can run programs as other users; without the flag they run as "
        "this one");
  }
  CAPSTAN_RETURN_IF_ERROR(CheckOthersReach(options_.work_dir));
  struct stat facts {};
  if (stat(options_.work_dir.c_str(), &facts) != 0 ||
      chmod(options_.work_dir.c_str(), (facts.st_mode & ALLPERMS) | S_IXOTH) != 0) {
    return Failed(options_.work_dir, errno);
  }
  std::error_code error;
  locks_folder_ = fs::is_directory(kSystemdLocks, error) ? kSystemdLocks : kOwnLocks;
  for (const std::string& folder : {locks_folder_, ended_folder_}) {
    error = MakePrivateFolders(folder);
    if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  }
  TakeOverLeftovers();
  thread_ = std::thread(&ProgramUsers::Run, this);
  return absl::OkStatus();
}

std::string ProgramUsers::LockOf(uid_t user) const {
  return absl::StrCat(locks_folder_, "/", user);
}

absl::StatusOr<std::optional<Descriptor>> ProgramUsers::TryLock(uid_t user) const {
  const std::string path = LockOf(user);
  while (true) {
    Descriptor lock(
        open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kPrivateFileMode));
    if (!lock.ok()) return Failed(path, errno);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      return Failed(path, errno);
    }
    struct stat facts {};
    if (fstat(lock.get(), &facts) != 0) return Failed(path, errno);
    if (facts.st_nlink > 0) return std::optional(std::move(lock));
    // Its last owner has deleted it. The next one is a new file.
  }
}

absl::StatusOr<bool> ProgramUsers::TakeIfFree(uid_t user) {
  if (HasAccount(user)) return false;
  CAPSTAN_ASSIGN_OR_RETURN(std::optional<Descriptor> lock, TryLock(user));
  if (!lock.has_value()) return false;
  CAPSTAN_ASSIGN_OR_RETURN(const bool busy, HasProcesses(user));
  if (!busy) locks_.emplace(user, *std::move(lock));
  return !busy;
}

absl::StatusOr<ProgramUsers::Place> ProgramUsers::TaskStarts(const TaskName& task,
                                                             const TaskFiles& files,
                                                             const v1::TaskAssignment& assignment) {
  absl::StatusOr<Place> place;
  {
    absl::MutexLock lock(&mutex_);
    const auto not_ending = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !ending_.contains(task.job);
    };
    mutex_.Await(absl::Condition(&not_ending));
    CAPSTAN_ASSIGN_OR_RETURN(
        const uid_t user,
        uids_.TaskStarts(task.job, [this](uid_t candidate) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return TakeIfFree(candidate);
        }));
    Running& running = running_[task];
    running = {.user = user, .folder = files.folder};
    place = MakePlace(files, assignment, running);
  }
  if (!place.ok()) EndOfTask(task, files.folder);
  return place;
}

absl::StatusOr<ProgramUsers::Place> ProgramUsers::MakePlace(const TaskFiles& files,
                                                            const v1::TaskAssignment& assignment,
                                                            Running& running) {
  const uid_t user = running.user;
  const std::string folder = absl::StrCat(files.folder, "/", kProgramFolder);
  Place place{.user = user, .folder = folder, .spec = folder + "/task.textproto", .tls_dir = ""};
  CAPSTAN_RETURN_IF_ERROR(MakeFolder(folder));
  CAPSTAN_RETURN_IF_ERROR(
      WriteTaskSpec({.folder = folder, .spec = place.spec, .log = files.log}, assignment));
  CAPSTAN_RETURN_IF_ERROR(SetOwner(place.spec, user, user, kPrivateFileMode));
  const std::string temporary = absl::StrCat(folder, "/", kTemporaryFolder);
  CAPSTAN_RETURN_IF_ERROR(MakeFolder(temporary));
  CAPSTAN_RETURN_IF_ERROR(SetOwner(temporary, user, user, kPrivateFolderMode));
  if (!options_.tls_dir.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const TlsFolder tls, TlsFolder::Read(options_.tls_dir, absl::Now()));
    CAPSTAN_ASSIGN_OR_RETURN(const std::string denied, ReadDenied(tls));
    CAPSTAN_RETURN_IF_ERROR(CopyCertificates(files.folder, user, ++running.tls_copy, tls, denied));
    place.tls_dir = absl::StrCat(files.folder, "/", kTlsLink);
  }
  // The daemon writes it, too; a shell opens it for "> /dev/stderr".
  const Descriptor log(
      open(files.log.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kPrivateFileMode));
  if (!log.ok() || fchown(log.get(), user, user) != 0) return Failed(files.log, errno);
  // From here on the user may change what is in its folder.
  CAPSTAN_RETURN_IF_ERROR(SetOwner(folder, user, user, kPrivateFolderMode));
  const std::string job_folder = fs::path(files.folder).parent_path().string();
  for (const std::string& each : {files.folder, job_folder}) {
    CAPSTAN_RETURN_IF_ERROR(SetOwner(each, geteuid(), user, kGroupPassesThrough));
  }
  return place;
}

void ProgramUsers::TaskEnded(const TaskName& task, const TaskFiles& files) {
  EndOfTask(task, files.folder);
}

void ProgramUsers::EndOfTask(const TaskName& task, const std::string& folder) {
  uid_t user = 0;
  bool is_last = false;
  {
    absl::MutexLock lock(&mutex_);
    user = running_.at(task).user;
    running_.erase(task);
    is_last = uids_.TaskEnds(task.job);
    if (is_last) ending_.insert(task.job);
  }
  // No task of a job starts while it is ending.
  const absl::Status killed = is_last ? KillProcessesOf(user) : absl::OkStatus();
  CleanUp(folder);
  if (!is_last) return;
  absl::MutexLock lock(&mutex_);
  ending_.erase(task.job);
  if (killed.ok()) {
    uids_.GiveBack(task.job);
    unlink(LockOf(user).c_str());  // Before it is unlocked: other daemons make a new one.
    locks_.erase(user);
  } else {  // The user stays taken: no other job gets it while something of it runs.
    LogError({.job = task.job}, "its user {} cannot be given back: {}", user, killed.ToString());
  }
}

void ProgramUsers::CleanUp(const std::string& task_folder) {
  std::error_code error;
  for (const fs::path& path : PathsIn(task_folder)) {
    const std::string name = path.filename().string();
    if (name == kTlsLink || absl::StartsWith(name, "tls.")) {
      fs::remove_all(path, error);
    } else if (name == kProgramFolder) {
      // To delete it may take long: there may be anything in it.
      fs::rename(path, absl::StrCat(ended_folder_, "/", RandomHex()), error);
    }
    if (error) LogWarning({}, "{}: {}", path.string(), error.message());
  }
  absl::Status closed = SetOwner(task_folder, geteuid(), getegid(), kPrivateFolderMode);
  // The user cannot have replaced it, as the folder was never his.
  const std::string log = absl::StrCat(task_folder, "/task.log");
  if (fs::exists(log, error)) closed.Update(SetOwner(log, geteuid(), getegid(), kPrivateFileMode));
  if (!closed.ok()) LogWarning({}, "{}", std::string(closed.message()));
  absl::MutexLock lock(&mutex_);
  has_ended_ = true;
}

void ProgramUsers::TakeOverLeftovers() {
  for (const fs::path& job : PathsIn(options_.work_dir)) {
    if (absl::StartsWith(job.filename().string(), ".")) continue;  // No job; ended_folder_ is one.
    for (const fs::path& task : PathsIn(job)) {
      struct stat facts {};
      if (lstat((task / kProgramFolder).c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) continue;
      const uid_t user = facts.st_uid;
      const bool ours = user >= options_.uids.first && user <= options_.uids.last;
      // Another daemon that has taken it has found no process of it, so none of ours is left.
      const auto lock = ours ? TryLock(user) : std::nullopt;
      if (lock.ok() && lock->has_value()) {
        const absl::Status killed = KillProcessesOf(user);
        if (!killed.ok()) LogError({}, "{}", std::string(killed.message()));
      }
      CleanUp(task.string());
    }
  }
}

void ProgramUsers::Run() {
  const auto wakes = [this]()
                         ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopping_ || has_ended_; };
  absl::MutexLock lock(&mutex_);
  while (!stopping_) {
    mutex_.AwaitWithTimeout(absl::Condition(&wakes), kFollowInterval);
    const bool has_ended = std::exchange(has_ended_, false);
    mutex_.Unlock();
    if (has_ended) DeleteEnded();
    if (!options_.tls_dir.empty()) FollowCertificates();
    mutex_.Lock();
  }
}

void ProgramUsers::DeleteEnded() const {
  for (const fs::path& path : PathsIn(ended_folder_)) {
    std::error_code error;
    fs::remove_all(path, error);  // It follows no symbolic link.
    if (error) LogWarning({}, "{}: {}", path.string(), error.message());
  }
}

void ProgramUsers::FollowCertificates() {
  const absl::StatusOr<TlsFolder> files = TlsFolder::Read(options_.tls_dir, absl::Now());
  if (!files.ok()) return;  // While files are swapped, they may not fit each other.
  const absl::StatusOr<std::string> denied = ReadDenied(*files);
  if (!denied.ok()) return;
  const Certificates read{*files, *denied};
  if (newest_.has_value() && newest_->Same(read)) return;
  newest_ = read;
  absl::MutexLock lock(&mutex_);
  for (auto& [task, running] : running_) {
    const absl::Status copied =
        CopyCertificates(running.folder, running.user, ++running.tls_copy, *files, *denied);
    if (!copied.ok()) LogError({.job = task.job}, "{}", std::string(copied.message()));
  }
}

}  // namespace capstan::worker
