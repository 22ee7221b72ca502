#include "worker/daemon/program_users.h"

#include <fcntl.h>
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
#include "common/process/user_processes.h"
#include "common/security/deny_list.h"
#include "common/security/security_file.h"
#include "common/security/tls_folder.h"
#include "common/status/status_macros.h"
#include "common/storage/private_files.h"
#include "common/storage/replace_file.h"

namespace capstan::worker {
namespace {

namespace fs = std::filesystem;

// A lock on byte N of it takes user N.
constexpr char kLocksFile[] = "/run/capstan-program-users";
constexpr char kProgramFolder[] = "program";
constexpr char kTemporaryFolder[] = "tmp";
constexpr char kTlsLink[] = "tls";
constexpr absl::Duration kFollowInterval = absl::Seconds(1);  // As Credentials::kRereadSeconds.
constexpr mode_t kGroupPassesThrough = 0710;
constexpr mode_t kGroupReads = 0750;

absl::Status Failed(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(error)));
}

absl::Status SetOwner(const std::string& path, uid_t user, gid_t group, mode_t mode) {
  if (lchown(path.c_str(), user, group) != 0 || chmod(path.c_str(), mode) != 0) {
    return Failed(path, errno);
  }
  return absl::OkStatus();
}

absl::Status MakeFolder(const std::string& path) {
  return mkdir(path.c_str(), kPrivateFolderMode) == 0 ? absl::OkStatus() : Failed(path, errno);
}

struct flock LockOf(uid_t user, int16_t type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = user;
  lock.l_len = 1;
  return lock;
}

// The paths in a folder; empty if it cannot be read.
std::vector<fs::path> PathsIn(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    paths.push_back(entry->path());
  }
  return paths;
}

// What a program's folder of certificates holds.
struct Certificates {
  TlsFolder files;
  std::string denied;
  bool operator==(const Certificates& other) const {
    return files.authorities_pem == other.files.authorities_pem &&
           files.certificate_pem == other.files.certificate_pem &&
           files.key_pem == other.files.key_pem && denied == other.denied;
  }
};

absl::StatusOr<Certificates> ReadCertificatesOf(const std::string& folder) {
  Certificates read;
  CAPSTAN_ASSIGN_OR_RETURN(read.files, TlsFolder::Read(folder, absl::Now()));
  const std::string path = read.files.DeniedPath();
  absl::StatusOr<std::string> denied = ReadSecurityFile(AT_FDCWD, path, path, Secrecy::kPublic);
  if (!denied.ok() && !absl::IsNotFound(denied.status())) return denied.status();
  if (denied.ok()) read.denied = *std::move(denied);
  return read;
}

std::string CopyOf(const std::string& task_folder, int64_t number) {
  return absl::StrCat(task_folder, "/", kTlsLink, ".", number);
}

// Makes copy `number` of the certificates for a program, and then the one that its link names. A
// reader has the copy before for as long as there is no third one.
absl::Status CopyCertificates(const std::string& task_folder, uid_t user, int64_t number,
                              const Certificates& certificates) {
  const std::string copy = CopyOf(task_folder, number);
  CAPSTAN_RETURN_IF_ERROR(MakeFolder(copy));
  for (const auto& [name, contents] :
       {std::pair(kTrustedFile, certificates.files.authorities_pem),
        std::pair(kCertificateFile, certificates.files.certificate_pem),
        std::pair(kKeyFile, certificates.files.key_pem),
        std::pair(kDeniedFile, certificates.denied)}) {
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

ProgramUsers::ProgramUsers(Options options)
    : options_(std::move(options)), uids_(options_.uids, static_cast<uint64_t>(getpid())) {}

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
  locks_ =
      Descriptor(open(kLocksFile, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kPrivateFileMode));
  if (!locks_.ok()) return Failed(kLocksFile, errno);
  DeleteLeftovers();
  if (!options_.tls_dir.empty()) thread_ = std::thread(&ProgramUsers::FollowCertificates, this);
  return absl::OkStatus();
}

absl::StatusOr<bool> ProgramUsers::TryLock(uid_t user) const {
  struct flock lock = LockOf(user, F_WRLCK);
  if (fcntl(locks_.get(), F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return Failed(kLocksFile, errno);
}

void ProgramUsers::Unlock(uid_t user) const {
  struct flock lock = LockOf(user, F_UNLCK);
  fcntl(locks_.get(), F_OFD_SETLK, &lock);
}

absl::StatusOr<bool> ProgramUsers::TakeIfFree(uid_t user) const {
  CAPSTAN_ASSIGN_OR_RETURN(const bool locked, TryLock(user));
  if (!locked) return false;
  const absl::StatusOr<bool> busy = HasProcesses(user);
  if (busy.ok() && !*busy) return true;
  Unlock(user);
  if (!busy.ok()) return busy.status();
  return false;
}

absl::StatusOr<ProgramUsers::Place> ProgramUsers::TaskStarts(const TaskName& task,
                                                             const TaskFiles& files,
                                                             const v1::TaskAssignment& assignment) {
  absl::MutexLock lock(&mutex_);
  CAPSTAN_ASSIGN_OR_RETURN(const uid_t user, uids_.TaskStarts(task.job, [this](uid_t candidate) {
    return TakeIfFree(candidate);
  }));
  Running& running = running_[task];
  running = {.user = user, .folder = files.folder};
  absl::StatusOr<Place> place = MakePlace(files, assignment, running);
  if (!place.ok()) {
    EndOfTask(task);
    CleanUp(files.folder);
  }
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
    CAPSTAN_ASSIGN_OR_RETURN(const Certificates certificates, ReadCertificatesOf(options_.tls_dir));
    CAPSTAN_RETURN_IF_ERROR(CopyCertificates(files.folder, user, ++running.tls_copy, certificates));
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

void ProgramUsers::EndOfTask(const TaskName& task) {
  const auto found = running_.find(task);
  if (found == running_.end()) return;
  const uid_t user = found->second.user;
  running_.erase(found);
  if (!uids_.TaskEnds(task.job)) return;
  const absl::Status killed = KillProcessesOf(user);
  if (!killed.ok()) {  // The user stays taken: no other job gets it while something of it runs.
    LogError({.job = task.job}, "its user {} cannot be given back: {}", user, killed.ToString());
    return;
  }
  uids_.GiveBack(task.job);
  Unlock(user);
}

void ProgramUsers::TaskEnded(const TaskName& task, const TaskFiles& files) {
  absl::MutexLock lock(&mutex_);
  EndOfTask(task);
  CleanUp(files.folder);
}

void ProgramUsers::CleanUp(const std::string& task_folder) const {
  for (const fs::path& path : PathsIn(task_folder)) {
    const std::string name = path.filename().string();
    if (name != kProgramFolder && name != kTlsLink && !absl::StartsWith(name, "tls.")) continue;
    std::error_code error;
    fs::remove_all(path, error);  // It follows no symbolic link.
    if (error) LogWarning({}, "{}: {}", path.string(), error.message());
  }
  absl::Status closed = SetOwner(task_folder, geteuid(), getegid(), kPrivateFolderMode);
  // The user cannot have replaced it, as the folder was never his.
  const std::string log = absl::StrCat(task_folder, "/task.log");
  if (fs::exists(log)) closed.Update(SetOwner(log, geteuid(), getegid(), kPrivateFileMode));
  if (!closed.ok()) LogWarning({}, "{}", std::string(closed.message()));
}

void ProgramUsers::DeleteLeftovers() const {
  for (const fs::path& job : PathsIn(options_.work_dir)) {
    for (const fs::path& task : PathsIn(job)) {
      struct stat facts {};
      if (lstat((task / kProgramFolder).c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) continue;
      const uid_t user = facts.st_uid;
      const bool ours = user >= options_.uids.first && user <= options_.uids.last;
      // Another daemon that has taken it has found no process of it, so none of ours is left.
      if (ours && TryLock(user).value_or(false)) {
        const absl::Status killed = KillProcessesOf(user);
        if (!killed.ok()) LogError({}, "{}", std::string(killed.message()));
        Unlock(user);
      }
      CleanUp(task.string());
    }
  }
}

void ProgramUsers::FollowCertificates() {
  std::optional<Certificates> newest;
  absl::MutexLock lock(&mutex_);
  while (!mutex_.AwaitWithTimeout(absl::Condition(&stopping_), kFollowInterval)) {
    mutex_.Unlock();
    absl::StatusOr<Certificates> read = ReadCertificatesOf(options_.tls_dir);
    mutex_.Lock();
    // While files are swapped, they may not fit each other.
    if (!read.ok() || (newest.has_value() && *newest == *read)) continue;
    newest = *std::move(read);
    for (auto& [task, running] : running_) {
      const absl::Status copied =
          CopyCertificates(running.folder, running.user, ++running.tls_copy, *newest);
      if (!copied.ok()) LogError({.job = task.job}, "{}", std::string(copied.message()));
    }
  }
}

}  // namespace capstan::worker
