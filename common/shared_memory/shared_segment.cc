#include "common/shared_memory/shared_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"

namespace capstan {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Returns an error made of errno, which it reads first.
absl::Status KernelError(absl::string_view what) {
  const int error = errno;
  const std::string text(absl::ErrnoToStatus(error, what).message());
  if (error == ENOMEM || error == ENOSPC) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

absl::Status CheckOffer(const SegmentOffer& offer) {
  if (offer.process <= 0 || offer.descriptor < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: process ", offer.process, ", descriptor ", offer.descriptor,
                     ": expected a process above 0 and a descriptor of at least 0"));
  }
  if (offer.bytes <= 0 || offer.bytes > SharedSegment::kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shared memory: ", offer.bytes, " bytes: expected 1 to ", SharedSegment::kBytesMax));
  }
  if (offer.challenge.size() != SharedSegment::kSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat("shared memory: a challenge of ",
                                                   offer.challenge.size(), " bytes: expected ",
                                                   SharedSegment::kSecretBytes));
  }
  return absl::OkStatus();
}

// Returns an error made of errno. A missing file is on another host; what the kernel lacks may come
// back.
absl::Status OpenError(const std::string& path) {
  const int error = errno;
  const std::string text(absl::ErrnoToStatus(error, "shared memory: " + path).message());
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EINTR:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::NotFoundError(text);
  }
}

// Checks that the file, which is opened only as a path so far, may be one that Create makes.
absl::Status CheckFile(int name, int64_t bytes) {
  struct stat file = {};
  struct statfs system = {};
  if (fstat(name, &file) != 0 || fstatfs(name, &system) != 0) {
    return KernelError("shared memory: fstat");
  }
  if (!S_ISREG(file.st_mode) || file.st_nlink != 0 || system.f_type != TMPFS_MAGIC) {
    return absl::NotFoundError(
        "shared memory: the descriptor is no memfd here: the caller is on another host, or in "
        "another PID namespace");
  }
  if (file.st_uid != geteuid() || (file.st_mode & 0777) != kOwnerOnly) {
    return absl::PermissionDeniedError(absl::StrCat(
        "shared memory: of user ", file.st_uid, " with mode ", absl::Hex(file.st_mode & 0777),
        " (hex): expected user ", geteuid(), " and mode ", absl::Hex(kOwnerOnly), " (0600)"));
  }
  if (file.st_size != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory: ", file.st_size, " bytes: expected ", bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSeals(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals >= 0 && (seals & kSeals) == kSeals) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shared memory: seals ", seals, ": expected ", kSeals, " (shrink, grow, seal)"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Map(int descriptor, int64_t bytes) {
  const auto length = static_cast<size_t>(kHeadBytes + bytes);
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    const absl::Status error = KernelError("shared memory: mmap");
    close(descriptor);
    return error;
  }
  return std::shared_ptr<SharedSegment>(
      new SharedSegment(descriptor, static_cast<char*>(memory), bytes));
}

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Create(int64_t bytes) {
  const int descriptor = memfd_create("capstan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return KernelError("shared memory: memfd_create");
  // From here on the segment closes the descriptor.
  CAPSTAN_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment, Map(descriptor, bytes));
  if (fchmod(descriptor, kOwnerOnly) != 0) return KernelError("shared memory: fchmod");
  if (ftruncate(descriptor, kHeadBytes + bytes) != 0) return KernelError("shared memory: size");
  if (fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) return KernelError("shared memory: seals");
  constexpr size_t kSecrets = 2 * kSecretBytes;  // getrandom gives up to 256 bytes as a whole.
  if (getrandom(segment->memory_, kSecrets, 0) != static_cast<ssize_t>(kSecrets)) {
    return KernelError("shared memory: getrandom");
  }
  return segment;
}

absl::StatusOr<std::shared_ptr<SharedSegment>> SharedSegment::Open(const SegmentOffer& offer) {
  CAPSTAN_RETURN_IF_ERROR(CheckOffer(offer));
  const std::string path = absl::StrCat("/proc/", offer.process, "/fd/", offer.descriptor);
  // O_PATH does not open the file that the name refers to, so that it can be checked first.
  const Descriptor name(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!name.ok()) return OpenError(path);
  CAPSTAN_RETURN_IF_ERROR(CheckFile(name.get(), kHeadBytes + offer.bytes));
  const std::string memfd = absl::StrCat("/proc/self/fd/", name.get());
  Descriptor file(open(memfd.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.ok()) return OpenError(memfd);
  CAPSTAN_RETURN_IF_ERROR(CheckSeals(file.get()));
  CAPSTAN_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment,
                           Map(file.Release(), offer.bytes));
  segment->CloseDescriptor();
  if (segment->challenge() != offer.challenge) {
    return absl::NotFoundError(
        "shared memory: the memory there is not the caller's: it is on another host, or in another "
        "PID namespace");
  }
  return segment;
}

absl::Status SharedSegment::Allocate() {
  if (fallocate(descriptor_, 0, 0, kHeadBytes + bytes_) == 0) return absl::OkStatus();
  return KernelError(absl::StrCat("shared memory: fallocate of ", bytes_, " bytes"));
}

SharedSegment::~SharedSegment() {
  munmap(memory_, static_cast<size_t>(kHeadBytes + bytes_));
  CloseDescriptor();
}

void SharedSegment::CloseDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

SegmentOffer SharedSegment::offer() const {
  return {.process = getpid(),
          .descriptor = descriptor_,
          .bytes = bytes_,
          .challenge = std::string(challenge())};
}

std::string SharedSegment::proof() const { return {memory_ + kSecretBytes, kSecretBytes}; }

}  // namespace capstan
