// Memory: allocates the memory of emulated GPUs and the host's pinned memory. The emulated runtime
// (runtime.cc) owns one.
//
// A GPU's memory is an arena of addresses that is accessible only while it is open for work of that
// GPU; other code that follows a pointer to it ends with SIGSEGV. There is a gap behind each piece;
// AddressSanitizer reports accesses to gaps and to freed pieces. New memory, and device memory that
// was freed, holds bytes of 0xff (at most the first 64 MiB of a piece), which are NaN in all types
// of numbers.
//
// Thread safety: thread-safe, but callers must take turns in opening arenas.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_MEMORY_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// A place of memory is a device's number, or kPinned.
inline constexpr int kPinned = -1;

using DeviceSet = uint32_t;  // Bit i: device i.
constexpr DeviceSet OnlyDevice(int device) { return DeviceSet{1} << device; }

// kNothing is for work that is counted (counts.h): device memory reads as zeros, and takes no host
// memory when it is only allocated.
enum class Keeps { kValues, kNothing };

class Memory {
 public:
  // Each of `devices` has `bytes_each`.
  Memory(int devices, size_t bytes_each, Keeps keeps = Keeps::kValues);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns null if the place has not enough memory. REQUIRES: bytes > 0.
  void* Allocate(int place, size_t bytes);
  // Returns false if no piece of that place begins at `memory`, also for null.
  bool Free(int place, void* memory);
  void FreeAll(int place);

  // Returns the place of the piece that holds all of the bytes; nullopt if there is none.
  // REQUIRES: bytes > 0.
  std::optional<int> PlaceOf(const void* begin, size_t bytes) const;
  // True if the bytes are in one piece of that place; always true for 0 bytes.
  bool Holds(int place, const void* begin, size_t bytes) const;

  size_t FreeBytes(int device) const;
  size_t TotalBytes() const { return bytes_each_; }

  // True if the address is in a device's arena.
  bool IsArena(uintptr_t address) const;

  // Opens these devices' arenas and closes all others. Returns the devices whose arenas were open.
  DeviceSet SetOpen(DeviceSet devices);

 private:
  struct Piece {
    size_t bytes;
    int place;
  };

  void Fill(int place, void* memory, size_t bytes) const;
  // Returns an address with room for a piece and its gap; null if there is none. REQUIRES: `mutex_`
  // is held.
  void* FindRoom(int device, size_t bytes) const;
  void SetOpenLocked(DeviceSet devices);

  const size_t bytes_each_;
  const size_t arena_bytes_;
  const Keeps keeps_;
  std::vector<char*> arenas_;  // Indexed by device.
  mutable std::mutex mutex_;
  std::map<uintptr_t, Piece> pieces_;  // Address to piece.
  std::vector<size_t> used_;           // Bytes in use, indexed by device.
  DeviceSet open_ = 0;
};

// Opens the memory of some devices, and closes that of all others, as long as it lives.
class MemoryAccess {
 public:
  MemoryAccess(Memory& memory, DeviceSet devices)
      : memory_(memory), before_(memory.SetOpen(devices)) {}
  ~MemoryAccess() { memory_.SetOpen(before_); }
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;

 private:
  Memory& memory_;
  const DeviceSet before_;
};

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_MEMORY_H_
