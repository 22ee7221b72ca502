// Memory of emulated GPUs, and pinned memory of the host: what was given out, to whom.
//
// A GPU's memory is an arena of addresses that nobody may touch, but while it is opened for work of
// that GPU: elsewhere, code that follows a pointer to it ends with SIGSEGV. Between two pieces
// there is a gap; AddressSanitizer knows gaps and pieces that were freed. Fresh memory, and memory
// that was freed, holds bytes of 0xff: NaN in all types of numbers.
//
// Thread safety: thread-safe; but who opens arenas does so in turns.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_MEMORY_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace capstan::kernels::cuda::emulation {

// Where memory lies: a device's number, or this.
inline constexpr int kPinned = -1;

using DeviceSet = uint32_t;  // Bit i: device i.
constexpr DeviceSet OnlyDevice(int device) { return DeviceSet{1} << device; }

// kNothing: where work is counted (counts.h), memory of devices reads as zeros, and takes none of
// the host's for what is only allocated.
enum class Keeps { kValues, kNothing };

class Memory {
 public:
  // Each of `devices` has `bytes_each`.
  Memory(int devices, size_t bytes_each, Keeps keeps = Keeps::kValues);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null if the place has no more. REQUIRES: bytes > 0.
  void* Allocate(int place, size_t bytes);
  // False if no piece of that place begins there. Null is none, too.
  bool Free(int place, void* memory);
  void FreeAll(int place);

  // Whose piece holds all of the bytes, of which there is at least one; nullopt: nobody's.
  std::optional<int> PlaceOf(const void* begin, size_t bytes) const;
  // Whether they lie in one piece of that place; none, anywhere, do.
  bool Holds(int place, const void* begin, size_t bytes) const;

  size_t FreeBytes(int device) const;
  size_t TotalBytes() const { return bytes_each_; }

  // Whether it is an address of some device's arena.
  bool IsArena(uintptr_t address) const;

  // Opens these arenas and closes all others. Returns those that were open.
  DeviceSet SetOpen(DeviceSet devices);

 private:
  struct Piece {
    size_t bytes;
    int place;
  };

  void Fill(int place, void* memory, size_t bytes) const;
  // Where there is room for a piece and its gap; null if nowhere. Under `mutex_`.
  void* FindRoom(int device, size_t bytes) const;
  void SetOpenLocked(DeviceSet devices);

  const size_t bytes_each_;
  const size_t arena_bytes_;
  const Keeps keeps_;
  std::vector<char*> arenas_;  // By device.
  mutable std::mutex mutex_;
  std::map<uintptr_t, Piece> pieces_;  // By address.
  std::vector<size_t> used_;           // By device.
  DeviceSet open_ = 0;
};

// Opens the memory of some devices, and of no others, for as long as it lives.
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
