#include "kernels/cuda/emulation/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr size_t kAlignment = 256;  // The alignment of cudaMalloc.
constexpr size_t kGapBytes = 256;   // The least gap behind each piece.
constexpr size_t kFilledMax = size_t{64} << 20;
// An arena has this many times more addresses than memory, so that there is room between pieces.
constexpr size_t kAddressesPerByte = 4;

constexpr uintptr_t RoundUp(uintptr_t address) {
  return (address + kAlignment - 1) / kAlignment * kAlignment;
}

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::abort();
}

char* ReserveAddresses(size_t bytes, Keeps keeps) {
  void* const arena =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) Fail("emulated GPU: no addresses for its memory");
  // Uses large pages, if there are any: to open and close a hundred thousand small pages takes
  // longer than most work (measured: 50 us per MiB, in large pages 0.2 us).
  if (keeps == Keeps::kValues) madvise(arena, bytes, MADV_HUGEPAGE);
  return static_cast<char*>(arena);
}

// Tell AddressSanitizer that accesses to memory are errors (Poison), or no longer are (Unpoison).
void Poison([[maybe_unused]] const void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(memory, bytes);
#endif
}
void Unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

}  // namespace

Memory::Memory(int devices, size_t bytes_each, Keeps keeps)
    : bytes_each_(bytes_each),
      arena_bytes_(bytes_each * kAddressesPerByte),
      keeps_(keeps),
      used_(static_cast<size_t>(devices)) {
  for (int i = 0; i < devices; ++i) arenas_.push_back(ReserveAddresses(arena_bytes_, keeps));
}

Memory::~Memory() {
  for (char* const arena : arenas_) {
    Unpoison(arena, arena_bytes_);
    munmap(arena, arena_bytes_);
  }
}

void Memory::Fill(int place, void* memory, size_t bytes) const {
  if (keeps_ == Keeps::kValues) {
    std::memset(memory, 0xff, std::min(bytes, kFilledMax));
  } else if (place == kPinned) {
    std::memset(memory, 0, bytes);
  }
}

void* Memory::FindRoom(int device, size_t bytes) const {
  char* const arena = arenas_[static_cast<size_t>(device)];
  const auto begin = reinterpret_cast<uintptr_t>(arena);
  const uintptr_t end = begin + arena_bytes_;
  uintptr_t at = begin;
  for (auto next = pieces_.lower_bound(begin);; ++next) {
    const uintptr_t until = next == pieces_.end() ? end : std::min(end, next->first);
    if (at <= until && bytes + kGapBytes <= until - at) return arena + (at - begin);
    if (until == end) return nullptr;
    at = RoundUp(next->first + next->second.bytes + kGapBytes);
  }
}

void* Memory::Allocate(int place, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  void* memory = nullptr;
  if (place == kPinned) {
    if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
    Fill(place, memory, bytes);
  } else {
    size_t& used = used_[static_cast<size_t>(place)];
    if (bytes <= bytes_each_ - used) memory = FindRoom(place, bytes);
    if (memory == nullptr) return nullptr;
    used += bytes;
    Unpoison(memory, bytes);
    Poison(static_cast<char*>(memory) + bytes, kGapBytes);
    const DeviceSet before = open_;
    SetOpenLocked(before | OnlyDevice(place));
    Fill(place, memory, bytes);
    SetOpenLocked(before);
  }
  pieces_[reinterpret_cast<uintptr_t>(memory)] = {bytes, place};
  return memory;
}

bool Memory::Free(int place, void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = pieces_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == pieces_.end() || found->second.place != place) return false;
  const size_t bytes = found->second.bytes;
  pieces_.erase(found);
  if (place == kPinned) {
    std::free(memory);
    return true;
  }
  used_[static_cast<size_t>(place)] -= bytes;
  const DeviceSet before = open_;
  SetOpenLocked(before | OnlyDevice(place));
  Fill(place, memory, bytes);
  SetOpenLocked(before);
  Poison(memory, bytes);
  return true;
}

void Memory::FreeAll(int place) {
  std::vector<void*> found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [address, piece] : pieces_) {
      if (piece.place == place) found.push_back(reinterpret_cast<void*>(address));
    }
  }
  for (void* const memory : found) Free(place, memory);
}

std::optional<int> Memory::PlaceOf(const void* begin, size_t bytes) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  auto found = pieces_.upper_bound(address);
  if (found == pieces_.begin()) return std::nullopt;
  --found;
  const Piece& piece = found->second;
  const uintptr_t offset = address - found->first;
  if (offset >= piece.bytes || bytes > piece.bytes - offset) return std::nullopt;
  return piece.place;
}

bool Memory::Holds(int place, const void* begin, size_t bytes) const {
  return bytes == 0 || PlaceOf(begin, bytes) == place;
}

size_t Memory::FreeBytes(int device) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_each_ - used_[static_cast<size_t>(device)];
}

bool Memory::IsArena(uintptr_t address) const {
  return std::any_of(arenas_.begin(), arenas_.end(), [&](const char* arena) {
    return address - reinterpret_cast<uintptr_t>(arena) < arena_bytes_;
  });
}

DeviceSet Memory::SetOpen(DeviceSet devices) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const DeviceSet before = open_;
  SetOpenLocked(devices);
  return before;
}

void Memory::SetOpenLocked(DeviceSet devices) {
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const DeviceSet bit = OnlyDevice(static_cast<int>(i));
    if (((open_ ^ devices) & bit) == 0) continue;
    const int access = (devices & bit) != 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mprotect(arenas_[i], arena_bytes_, access) != 0) {
      Fail("emulated GPU: its memory cannot be opened or closed");
    }
  }
  open_ = devices;
}

}  // namespace capstan::kernels::cuda::emulation
