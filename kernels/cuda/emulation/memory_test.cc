#include "kernels/cuda/emulation/memory.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/emulation/death.h"

namespace capstan::kernels::cuda::emulation::memory_test {
namespace {

constexpr size_t kBytes = size_t{1} << 20;  // The memory of each device.

volatile char* Bytes(void* memory) { return static_cast<volatile char*>(memory); }

TEST_CASE("Device memory: the host may touch it only while it is open",
          "[kernels][cuda][emulation]") {
  Memory memory(2, kBytes);
  void* const first = memory.Allocate(0, 100);
  void* const second = memory.Allocate(1, 100);
  const auto touch = [](void* at) { return DeathOf([at] { Bytes(at)[0] = 1; }).signal; };
  CHECK(touch(first) == SIGSEGV);
  {
    const MemoryAccess access(memory, OnlyDevice(0));
    Bytes(first)[0] = 7;
    CHECK(touch(second) == SIGSEGV);
    {
      const MemoryAccess inner(memory, OnlyDevice(1));
      Bytes(second)[0] = 8;
      CHECK(touch(first) == SIGSEGV);
    }
    CHECK(Bytes(first)[0] == 7);
    const MemoryAccess both(memory, OnlyDevice(0) | OnlyDevice(1));
    CHECK(Bytes(first)[0] + Bytes(second)[0] == 15);
  }
  CHECK(touch(first) == SIGSEGV);
}

TEST_CASE("Device memory: is NaN when it is fresh, and pinned memory is, too",
          "[kernels][cuda][emulation]") {
  Memory memory(1, kBytes);
  const MemoryAccess access(memory, OnlyDevice(0));
  for (const int place : {0, kPinned}) {
    for (int again = 0; again < 2; ++again) {
      auto* const values = static_cast<float*>(memory.Allocate(place, 5 * sizeof(float)));
      CHECK(reinterpret_cast<uintptr_t>(values) % 256 == 0);
      for (int i = 0; i < 5; ++i) CHECK(std::isnan(values[i]));
      values[4] = 1;
      CHECK(memory.Free(place, values));
    }
  }
}

TEST_CASE("Device memory: knows whose piece holds all of some bytes",
          "[kernels][cuda][emulation]") {
  Memory memory(2, kBytes);
  auto* const mine = static_cast<char*>(memory.Allocate(1, 100));
  auto* const pinned = static_cast<char*>(memory.Allocate(kPinned, 10));
  char own = 0;
  CHECK(memory.PlaceOf(mine, 100) == 1);
  CHECK(memory.PlaceOf(mine + 99, 1) == 1);
  CHECK(memory.PlaceOf(pinned, 10) == kPinned);
  for (const auto& [at, bytes] :
       {std::pair{mine, 101}, {mine + 1, 100}, {mine + 100, 1}, {pinned, 11}, {&own, 1}}) {
    CHECK(memory.PlaceOf(at, static_cast<size_t>(bytes)) == std::nullopt);
  }
  CHECK(memory.Holds(1, mine, 100));
  CHECK_FALSE(memory.Holds(0, mine, 100));
  CHECK(memory.Holds(0, nullptr, 0));
  CHECK_FALSE(memory.Free(0, mine));
  CHECK_FALSE(memory.Free(1, mine + 1));
  CHECK_FALSE(memory.Free(1, nullptr));
  memory.FreeAll(1);
  CHECK(memory.PlaceOf(mine, 1) == std::nullopt);
  CHECK(memory.Free(kPinned, pinned));
}

TEST_CASE("Device memory: each device has so much, wherever its pieces lie",
          "[kernels][cuda][emulation]") {
  Memory memory(2, kBytes);
  void* const low = memory.Allocate(0, kBytes / 4);
  void* const middle = memory.Allocate(0, kBytes / 4);
  void* const high = memory.Allocate(0, kBytes / 2);
  CHECK(memory.FreeBytes(0) == 0);
  CHECK(memory.Allocate(0, 1) == nullptr);
  CHECK(memory.FreeBytes(1) == kBytes);
  CHECK(memory.Free(0, middle));
  CHECK(memory.Allocate(0, kBytes / 4 + 1) == nullptr);
  CHECK(memory.Allocate(0, kBytes / 4) == middle);  // It uses the gap.
  CHECK(memory.Free(0, low));
  CHECK(memory.Free(0, high));
  // Free memory has two parts; a third range of addresses is large enough.
  CHECK(memory.Allocate(0, kBytes * 3 / 4) != nullptr);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("Device memory: AddressSanitizer sees its ends, and what was freed",
          "[kernels][cuda][emulation]") {
  Memory memory(1, kBytes);
  void* const first = memory.Allocate(0, 100);
  void* const second = memory.Allocate(0, 100);
  REQUIRE(memory.Free(0, first));
  const MemoryAccess access(memory, OnlyDevice(0));
  Bytes(second)[99] = 1;
  CHECK(DeathOf([&] { Bytes(second)[100] = 1; }).words.find("poison") != std::string::npos);
  CHECK(DeathOf([&] { Bytes(first)[0] = 1; }).words.find("poison") != std::string::npos);
}
#endif

}  // namespace
}  // namespace capstan::kernels::cuda::emulation::memory_test
