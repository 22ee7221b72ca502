// SimDisk: a disk in memory for tests, which tells apart what is in the cache and what is durable,
// and which fails when it is told to or by chance; the same seed gives the same faults.
//
// Every call but List, Read and ReadPart is one step, numbered from 0: a test finds out how many
// steps a script takes, then cuts the power at each of them.
//
//   bytes: Append --> cached --Sync--> durable      names: Create, Rename, Remove --> cached
//                                                          --SyncFolder--> durable
//   Crash: of each file a part of what was cached survives (see Unsynced); of each folder the
//          first few cached changes of names. Open files fail from then on; the disk works again.
//
// After a Sync that failed the unsynced bytes count as clean, as on Linux: a later Sync says OK and
// does not bring them to the disk; a crash turns them into zeros.
// Thread safety: thread-safe. Invariants: (1) synced <= size of each file. (2) Every folder is
// durable. (3) A step that was cut changes no durable byte.
#ifndef CAPSTAN_COMMON_STORAGE_TESTING_SIM_DISK_H_
#define CAPSTAN_COMMON_STORAGE_TESTING_SIM_DISK_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/storage/disk.h"

namespace capstan {

class SimDisk final : public Disk {
 public:
  enum class Fault {
    kDiskFull,       // An append keeps a part of its bytes and fails.
    kWriteError,     // Same as kDiskFull; or a change of names fails.
    kReadError,      // A read fails.
    kSyncError,      // A sync fails, and loses what it should have written.
    kLyingSync,      // A sync says OK and does nothing.
    kBitFlipOnRead,  // A read gives one wrong bit; the next does not.
    kBitFlipAtRest,  // A stored bit has changed (FlipRandomBit).
    kTornWrite,      // A crash kept a part of unsynced bytes.
    kLostName,       // A crash undid a change of names.
    kLostSector,     // A crash kept unsynced bytes, and dropped some that lie before them.
  };
  static constexpr int kFaultCount = 10;

  // Chance of each fault, for each call that it can befall, in [0, 1].
  struct Rates {
    double disk_full = 0;
    double write_error = 0;
    double read_error = 0;
    double sync_error = 0;
    double lying_sync = 0;
    double bit_flip_on_read = 0;
  };

  // The part of the unsynced bytes and names that a crash leaves.
  enum class Unsynced {
    kLost,          // Nothing.
    kTornAtByte,    // Bytes up to a random one; names up to a random change.
    kTornAtSector,  // Same as kTornAtByte, at a multiple of 512 bytes of the file.
    kTornZeros,     // Same as kTornAtByte, but files keep their lengths: zeros follow.
    kKept,          // Everything: it had been written back just before.
    kAnySectors,    // Any of the sectors that were not synced, zeros in the place of those before
                    // the last of them; names as kTornAtByte. Small sectors do for small files.
  };

  explicit SimDisk(uint64_t seed);

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::string> Read(const std::string& path, int64_t bytes_max) override;
  absl::StatusOr<std::string> ReadPart(const std::string& path, int64_t begin,
                                       int64_t bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;

  void SetRates(const Rates& rates);
  void SetCapacity(int64_t bytes);         // Appends beyond it find the disk full; < 0: no limit.
  void FailAt(int64_t step, Fault fault);  // Once; the kind of call must fit the fault.
  // The power goes at that step, which has no effect, except that bytes of an Append may be in the
  // cache. That call and all later ones fail with kUnavailable, until Crash or KillProcess.
  void CutAt(int64_t step);
  bool cut() const;       // The step to cut at has been reached.
  int64_t steps() const;  // So far.

  // Copies the files in the cache of `other`; all of them are durable here. REQUIRES: this disk is
  // new.
  void CopyFrom(const SimDisk& other);
  void Crash(Unsynced unsynced);  // Power cut. Afterwards the cache holds what is on the disk.
  void KillProcess();             // Open files fail from then on; the cache stays.
  // Inverts one bit of a file, in the cache and on the disk. REQUIRES: the file has that bit.
  void FlipBit(const std::string& path, int64_t bit);
  bool FlipRandomBit();                 // Inverts one of a random file; false: there is no byte.
  int64_t injected(Fault fault) const;  // How often it was injected so far.
  // Size of all files in the cache.
  int64_t bytes() const;
  std::vector<std::string> files() const;  // Sorted paths.

 private:
  class OpenFile;
  struct File {
    std::string bytes;
    size_t synced = 0;
    // Never written though a later Sync said OK: [first, second) of `bytes`.
    std::vector<std::pair<size_t, size_t>> lost;
    std::optional<size_t> failed_end;  // A Sync of the bytes up to here has failed.
  };
  // Shared by the names (cached and durable) and the handles of a file.
  using FilePtr = std::shared_ptr<File>;
  // A change of names in one folder, done as a whole or not at all. Null: the name is removed.
  using NameChange = std::vector<std::pair<std::string, FilePtr>>;

  // Counts a step. Errors: kUnavailable after the cut.
  absl::Status StepLocked(absl::string_view what, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DueLocked(Fault fault, double rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string CopyLocked(const File& file, int64_t begin, int64_t count)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<FilePtr> FindLocked(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t RandomLocked(uint64_t below) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InjectLocked(Fault fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Append(int64_t incarnation, const FilePtr& file, const std::string& path,
                      absl::string_view bytes);
  absl::Status Sync(int64_t incarnation, const FilePtr& file, const std::string& path);
  absl::Status SyncLocked(File& file, const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangeLocked(const std::string& folder, NameChange change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CrashNamesLocked(Unsynced unsynced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CrashBytesLocked(File& file, Unsynced unsynced) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropSectorsLocked(File& file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t BytesLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t seed_;
  mutable absl::Mutex mutex_;
  uint64_t draws_ ABSL_GUARDED_BY(mutex_) = 0;
  Rates rates_ ABSL_GUARDED_BY(mutex_);
  int64_t capacity_ ABSL_GUARDED_BY(mutex_) = -1;
  std::map<int64_t, Fault> planned_ ABSL_GUARDED_BY(mutex_);
  int64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t cut_at_ ABSL_GUARDED_BY(mutex_) = -1;
  // The incarnation of files that are opened now. A crash, or a kill of the process, ends it.
  int64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> folders_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, FilePtr> cached_ ABSL_GUARDED_BY(mutex_);   // Keyed by path.
  std::map<std::string, FilePtr> durable_ ABSL_GUARDED_BY(mutex_);  // Keyed by path.
  std::map<std::string, std::vector<NameChange>> unsynced_names_ ABSL_GUARDED_BY(mutex_);
  std::array<int64_t, kFaultCount> injected_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_TESTING_SIM_DISK_H_
