// Descriptor: owns a file descriptor.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_STORAGE_FILES_DESCRIPTOR_H_
#define CAPSTAN_COMMON_STORAGE_FILES_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace capstan {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}  // Below 0: none.
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);  // The other one closes it.
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }  // The caller closes it.

 private:
  int fd_;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_STORAGE_FILES_DESCRIPTOR_H_
