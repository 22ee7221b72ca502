#include "common/storage/testing/sim_disk.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/storage/write_durably.h"

namespace capstan {
namespace {

constexpr size_t kSectorBytes = 512;
constexpr int kSectorSizes = 4;  // kAnySectors also uses 1/2, 1/4 and 1/8 of a sector.

absl::Status NoSuch(absl::string_view what, const std::string& path) {
  return absl::NotFoundError(absl::StrCat("cannot ", what, " ", path, ": no such file or folder"));
}

absl::Status Failed(absl::string_view what, const std::string& path, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", why));
}

constexpr absl::string_view kInputOutput = "input/output error (simulated)";

}  // namespace

class SimDisk::OpenFile final : public WritableFile {
 public:
  OpenFile(SimDisk* disk, int64_t incarnation, FilePtr file, std::string path)
      : disk_(disk), incarnation_(incarnation), file_(std::move(file)), path_(std::move(path)) {}

  absl::Status Append(absl::string_view bytes) override {
    return disk_->Append(incarnation_, file_, path_, bytes);
  }
  absl::Status Sync() override { return disk_->Sync(incarnation_, file_, path_); }

 private:
  SimDisk* const disk_;
  const int64_t incarnation_;
  const FilePtr file_;
  const std::string path_;
};

SimDisk::SimDisk(uint64_t seed) : seed_(seed) { folders_ = {".", "/"}; }

absl::Status SimDisk::StepLocked(absl::string_view what, const std::string& path) {
  const int64_t step = steps_++;
  if (cut_at_ >= 0 && step >= cut_at_) return Failed(what, path, "the power is gone (simulated)");
  return absl::OkStatus();
}

uint64_t SimDisk::RandomLocked(uint64_t below) {
  const uint64_t index = draws_++;
  const uint64_t high = PhiloxWord(seed_, 2 * index);
  return ((high << 32) | PhiloxWord(seed_, 2 * index + 1)) % std::max<uint64_t>(below, 1);
}

bool SimDisk::DueLocked(Fault fault, double rate) {
  const auto planned = planned_.find(steps_ - 1);
  bool due = planned != planned_.end() && planned->second == fault;
  if (due) planned_.erase(planned);
  // A number is drawn only where there is a chance, so that a disk without faults draws nothing.
  if (!due && rate > 0) due = static_cast<double>(RandomLocked(uint64_t{1} << 32)) < rate * 0x1p32;
  if (due) InjectLocked(fault);
  return due;
}

void SimDisk::InjectLocked(Fault fault) { ++injected_[static_cast<size_t>(fault)]; }

void SimDisk::ChangeLocked(const std::string& folder, NameChange change) {
  for (const auto& [path, file] : change) {
    if (file == nullptr) {
      cached_.erase(path);
    } else {
      cached_[path] = file;
    }
  }
  unsynced_names_[folder].push_back(std::move(change));
}

absl::StatusOr<std::unique_ptr<WritableFile>> SimDisk::Create(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(StepLocked("create", path));
  const std::string folder = FolderOf(path);
  if (!folders_.contains(folder)) return NoSuch("create", path);
  if (folders_.contains(path)) return Failed("create", path, "it is a folder");
  if (DueLocked(Fault::kWriteError, rates_.write_error)) {
    return Failed("create", path, kInputOutput);
  }
  const auto file = std::make_shared<File>();
  ChangeLocked(folder, {{path, file}});
  return std::make_unique<OpenFile>(this, incarnation_, file, path);
}

absl::Status SimDisk::Append(int64_t incarnation, const FilePtr& file, const std::string& path,
                             absl::string_view bytes) {
  const absl::MutexLock lock(&mutex_);
  if (incarnation != incarnation_) return Failed("write", path, "it was opened before a crash");
  const absl::Status status = StepLocked("write", path);
  if (!status.ok()) {
    // The bytes of the call that was cut may have reached the cache before the power went; a crash
    // decides. Later calls never happened.
    if (steps_ - 1 == cut_at_) file->bytes.append(bytes.data(), bytes.size());
    return status;
  }
  const bool full =
      (capacity_ >= 0 && BytesLocked() + static_cast<int64_t>(bytes.size()) > capacity_) ||
      DueLocked(Fault::kDiskFull, rates_.disk_full);
  const bool broken = !full && DueLocked(Fault::kWriteError, rates_.write_error);
  if (full || broken) {
    size_t kept = RandomLocked(bytes.size() + 1);
    if (capacity_ >= 0) {
      const int64_t room = std::max<int64_t>(capacity_ - BytesLocked(), 0);
      kept = std::min(kept, static_cast<size_t>(room));
    }
    file->bytes.append(bytes.data(), kept);
    if (broken) return Failed("write", path, kInputOutput);
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", path, ": no space left on device (simulated)"));
  }
  file->bytes.append(bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status SimDisk::Sync(int64_t incarnation, const FilePtr& file, const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  if (incarnation != incarnation_) return Failed("sync", path, "it was opened before a crash");
  CAPSTAN_RETURN_IF_ERROR(StepLocked("sync", path));
  return SyncLocked(*file, path);
}

absl::Status SimDisk::SyncLocked(File& file, const std::string& path) {
  if (DueLocked(Fault::kSyncError, rates_.sync_error)) {
    file.failed_end = file.bytes.size();
    return Failed("sync", path, kInputOutput);
  }
  if (DueLocked(Fault::kLyingSync, rates_.lying_sync)) return absl::OkStatus();
  if (file.failed_end.has_value()) {
    file.lost.emplace_back(file.synced, *file.failed_end);
    file.failed_end.reset();
  }
  file.synced = file.bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<SimDisk::FilePtr> SimDisk::FindLocked(const std::string& path) {
  if (cut_at_ >= 0 && steps_ > cut_at_) return Failed("read", path, "the power is gone");
  const auto entry = cached_.find(path);
  if (entry == cached_.end()) return NoSuch("read", path);
  if (DueLocked(Fault::kReadError, rates_.read_error)) return Failed("read", path, kInputOutput);
  return entry->second;
}

absl::StatusOr<std::string> SimDisk::Read(const std::string& path, int64_t bytes_max) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_ASSIGN_OR_RETURN(const FilePtr file, FindLocked(path));
  const int64_t size = static_cast<int64_t>(file->bytes.size());
  if (size > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot read ", path, ": it has ", size,
                                                     " bytes, expected at most ", bytes_max));
  }
  return CopyLocked(*file, 0, size);
}

absl::StatusOr<std::string> SimDisk::ReadPart(const std::string& path, int64_t begin,
                                              int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_ASSIGN_OR_RETURN(const FilePtr file, FindLocked(path));
  if (begin + bytes > static_cast<int64_t>(file->bytes.size())) {
    return absl::DataLossError(absl::StrCat(path, " ends at byte ", file->bytes.size(),
                                            ", expected ", begin + bytes, " bytes"));
  }
  return CopyLocked(*file, begin, bytes);
}

std::string SimDisk::CopyLocked(const File& file, int64_t begin, int64_t count) {
  std::string bytes = file.bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(count));
  if (!bytes.empty() && DueLocked(Fault::kBitFlipOnRead, rates_.bit_flip_on_read)) {
    const uint64_t bit = RandomLocked(bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
  return bytes;
}

absl::Status SimDisk::Rename(const std::string& from, const std::string& to) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(StepLocked("rename", from));
  const auto entry = cached_.find(from);
  if (entry == cached_.end()) return NoSuch("rename", from);
  if (FolderOf(from) != FolderOf(to)) return Failed("rename", from, "another folder");
  if (DueLocked(Fault::kWriteError, rates_.write_error)) {
    return Failed("rename", from, kInputOutput);
  }
  const FilePtr file = entry->second;
  ChangeLocked(FolderOf(from), {{from, nullptr}, {to, file}});
  return absl::OkStatus();
}

absl::Status SimDisk::Remove(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(StepLocked("remove", path));
  if (folders_.contains(path)) {
    const std::string inside = absl::StrCat(path, "/");
    const auto file = cached_.lower_bound(inside);
    if (file != cached_.end() && file->first.starts_with(inside)) {
      return Failed("remove", path, "the folder is not empty");
    }
    const auto folder = folders_.lower_bound(inside);
    if (folder != folders_.end() && folder->starts_with(inside)) {
      return Failed("remove", path, "the folder is not empty");
    }
    folders_.erase(path);
    unsynced_names_.erase(path);
    std::erase_if(durable_, [&](const auto& entry) { return entry.first.starts_with(inside); });
    return absl::OkStatus();
  }
  if (!cached_.contains(path)) return NoSuch("remove", path);
  if (DueLocked(Fault::kWriteError, rates_.write_error)) {
    return Failed("remove", path, kInputOutput);
  }
  ChangeLocked(FolderOf(path), {{path, nullptr}});
  return absl::OkStatus();
}

absl::Status SimDisk::MakeFolder(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(StepLocked("make the folder", path));
  std::vector<std::string> chain;
  for (std::string folder = path; !folder.empty() && folder != "/" && folder != ".";
       folder = FolderOf(folder)) {
    if (cached_.contains(folder)) return Failed("make the folder", folder, "it is a file");
    chain.push_back(folder);
  }
  folders_.insert(chain.begin(), chain.end());
  return absl::OkStatus();
}

absl::Status SimDisk::SyncFolder(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(StepLocked("sync the folder", path));
  if (!folders_.contains(path)) return NoSuch("sync the folder", path);
  if (DueLocked(Fault::kSyncError, rates_.sync_error)) {
    return Failed("sync the folder", path, kInputOutput);
  }
  if (DueLocked(Fault::kLyingSync, rates_.lying_sync)) return absl::OkStatus();
  for (const NameChange& change : unsynced_names_[path]) {
    for (const auto& [name, file] : change) {
      if (file == nullptr) {
        durable_.erase(name);
      } else {
        durable_[name] = file;
      }
    }
  }
  unsynced_names_.erase(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimDisk::List(const std::string& path) {
  const absl::MutexLock lock(&mutex_);
  if (cut_at_ >= 0 && steps_ > cut_at_) return Failed("list", path, "the power is gone");
  if (!folders_.contains(path)) return NoSuch("list", path);
  if (DueLocked(Fault::kReadError, rates_.read_error)) return Failed("list", path, kInputOutput);
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (name != path && FolderOf(name) == path) {
      names.push_back(name.substr(name.find_last_of('/') + 1));
    }
  };
  for (const auto& [name, file] : cached_) add(name);
  for (const std::string& folder : folders_) add(folder);
  std::sort(names.begin(), names.end());
  return names;
}

void SimDisk::SetRates(const Rates& rates) {
  const absl::MutexLock lock(&mutex_);
  rates_ = rates;
}

void SimDisk::SetCapacity(int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  capacity_ = bytes;
}

void SimDisk::FailAt(int64_t step, Fault fault) {
  const absl::MutexLock lock(&mutex_);
  planned_[step] = fault;
}

void SimDisk::CutAt(int64_t step) {
  const absl::MutexLock lock(&mutex_);
  cut_at_ = step;
}

bool SimDisk::cut() const {
  const absl::MutexLock lock(&mutex_);
  return cut_at_ >= 0 && steps_ > cut_at_;
}

int64_t SimDisk::steps() const {
  const absl::MutexLock lock(&mutex_);
  return steps_;
}

void SimDisk::CrashNamesLocked(Unsynced unsynced) {
  for (const auto& [folder, changes] : unsynced_names_) {
    size_t kept = 0;
    if (unsynced == Unsynced::kKept) {
      kept = changes.size();
    } else if (unsynced != Unsynced::kLost) {
      kept = RandomLocked(changes.size() + 1);
    }
    if (kept < changes.size()) InjectLocked(Fault::kLostName);
    for (size_t i = 0; i < kept; ++i) {
      for (const auto& [name, file] : changes[i]) {
        if (file == nullptr) {
          durable_.erase(name);
        } else {
          durable_[name] = file;
        }
      }
    }
  }
  unsynced_names_.clear();
  cached_ = durable_;
}

void SimDisk::DropSectorsLocked(File& file) {
  constexpr uint64_t kParts = 16;
  const uint64_t kept_parts = RandomLocked(kParts + 1);  // This share of the sectors is kept.
  const size_t sector = kSectorBytes >> RandomLocked(kSectorSizes);
  size_t end = file.synced;  // The end of the last sector that is kept.
  bool dropped = false, hole = false;
  for (size_t at = file.synced; at < file.bytes.size();) {
    const size_t next = std::min(file.bytes.size(), (at / sector + 1) * sector);
    if (RandomLocked(kParts) < kept_parts) {
      end = next;
      hole = hole || dropped;
    } else {
      std::fill(file.bytes.begin() + static_cast<ptrdiff_t>(at),
                file.bytes.begin() + static_cast<ptrdiff_t>(next), '\0');
      dropped = true;
    }
    at = next;
  }
  if (hole) InjectLocked(Fault::kLostSector);
  // The file's length may have reached the disk before its last bytes did.
  if (RandomLocked(2) == 0) file.bytes.resize(end);
}

void SimDisk::CrashBytesLocked(File& file, Unsynced unsynced) {
  if (unsynced == Unsynced::kAnySectors) DropSectorsLocked(file);
  const size_t size = file.bytes.size();
  size_t kept = file.synced;
  if (unsynced == Unsynced::kKept || unsynced == Unsynced::kAnySectors) {
    kept = size;
  } else if (unsynced != Unsynced::kLost) {
    kept += RandomLocked(size - file.synced + 1);
    if (unsynced == Unsynced::kTornAtSector && kept != size) {
      kept = std::max(file.synced, kept / kSectorBytes * kSectorBytes);
    }
  }
  if (kept != size && kept != file.synced) InjectLocked(Fault::kTornWrite);
  file.bytes.resize(kept);
  if (unsynced == Unsynced::kTornZeros) file.bytes.resize(size, '\0');
  for (const auto& [begin, end] : file.lost) {
    for (size_t i = begin; i < std::min(end, file.bytes.size()); ++i) file.bytes[i] = '\0';
  }
  file.synced = file.bytes.size();
  file.lost.clear();
  file.failed_end.reset();
}

void SimDisk::Crash(Unsynced unsynced) {
  const absl::MutexLock lock(&mutex_);
  ++incarnation_;
  cut_at_ = -1;
  CrashNamesLocked(unsynced);
  for (const auto& [path, file] : durable_) CrashBytesLocked(*file, unsynced);
}

void SimDisk::CopyFrom(const SimDisk& other) {
  const absl::MutexLock lock(&mutex_);
  const absl::MutexLock other_lock(&other.mutex_);
  folders_ = other.folders_;
  for (const auto& [path, file] : other.cached_) {
    const auto copy =
        std::make_shared<File>(File{.bytes = file->bytes, .synced = file->bytes.size()});
    cached_[path] = durable_[path] = copy;
  }
}

void SimDisk::KillProcess() {
  const absl::MutexLock lock(&mutex_);
  ++incarnation_;
  cut_at_ = -1;
}

void SimDisk::FlipBit(const std::string& path, int64_t bit) {
  const absl::MutexLock lock(&mutex_);
  char& byte = cached_.at(path)->bytes.at(static_cast<size_t>(bit / 8));
  byte = static_cast<char>(byte ^ (1 << (bit % 8)));
  InjectLocked(Fault::kBitFlipAtRest);
}

bool SimDisk::FlipRandomBit() {
  std::string path;
  int64_t bit = 0;
  {
    const absl::MutexLock lock(&mutex_);
    const int64_t total = BytesLocked();
    if (total == 0) return false;
    bit = static_cast<int64_t>(RandomLocked(static_cast<uint64_t>(total) * 8));
    for (const auto& [name, file] : cached_) {
      path = name;
      const int64_t bits = static_cast<int64_t>(file->bytes.size()) * 8;
      if (bit < bits) break;
      bit -= bits;
    }
  }
  FlipBit(path, bit);
  return true;
}

int64_t SimDisk::injected(Fault fault) const {
  const absl::MutexLock lock(&mutex_);
  return injected_[static_cast<size_t>(fault)];
}

int64_t SimDisk::BytesLocked() const {
  int64_t bytes = 0;
  for (const auto& [path, file] : cached_) bytes += static_cast<int64_t>(file->bytes.size());
  return bytes;
}

int64_t SimDisk::bytes() const {
  const absl::MutexLock lock(&mutex_);
  return BytesLocked();
}

std::vector<std::string> SimDisk::files() const {
  const absl::MutexLock lock(&mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, file] : cached_) paths.push_back(path);
  return paths;
}

}  // namespace capstan
