// EmulatedCard: the card that the emulated libraries pretend to run on. Nothing runs at its speed;
// its properties decide which plans cuDNN offers, and what the runtime reports about the device.
//
// Thread safety: pure functions of the environment.
#ifndef CAPSTAN_KERNELS_CUDA_EMULATION_CARD_H_
#define CAPSTAN_KERNELS_CUDA_EMULATION_CARD_H_

#include <cstdint>

namespace capstan::kernels::cuda::emulation {

// The properties of a card, with the values of cudaGetDeviceProperties.
struct Card {
  const char* key;  // Its name in CAPSTAN_EMULATED_CARD.
  const char* name;
  int capability_major, capability_minor;
  int multiprocessors;
  int64_t memory_bytes;
  int64_t l2_bytes;
  int clock_khz, memory_clock_khz;
  int memory_bus_bits;

  // Per block.
  int64_t shared_bytes_block;        // The most by default.
  int64_t shared_bytes_block_optin;  // The most for a kernel that asks for more.
  int64_t shared_bytes_reserved;     // Reserved for the system.

  // Per multiprocessor.
  int64_t shared_bytes_multiprocessor;
  int blocks_multiprocessor;
};

// These are the same on every card that the kernels are compiled for.
inline constexpr int kWarpThreads = 32;
inline constexpr int kDriverVersion = 13000;  // The value of cudaDriverGetVersion.
inline constexpr int kBlockThreadsMax = 1024;
inline constexpr int kMultiprocessorThreadsMax = 2048;
inline constexpr int kMultiprocessorRegisters = 65536;

inline constexpr Card kA100 = {
    .key = "a100",
    .name = "NVIDIA A100-SXM4-80GB",
    .capability_major = 8,
    .capability_minor = 0,
    .multiprocessors = 108,
    .memory_bytes = 85'198'045'184,
    .l2_bytes = 41'943'040,
    .clock_khz = 1'410'000,
    .memory_clock_khz = 1'593'000,
    .memory_bus_bits = 5120,
    .shared_bytes_block = 49'152,
    .shared_bytes_block_optin = 166'912,
    .shared_bytes_reserved = 1024,
    .shared_bytes_multiprocessor = 167'936,
    .blocks_multiprocessor = 32,
};

inline constexpr Card kH100 = {
    .key = "h100",
    .name = "NVIDIA H100 80GB HBM3",
    .capability_major = 9,
    .capability_minor = 0,
    .multiprocessors = 132,
    .memory_bytes = 85'029'158'912,
    .l2_bytes = 52'428'800,
    .clock_khz = 1'980'000,
    .memory_clock_khz = 2'619'000,
    .memory_bus_bits = 5120,
    .shared_bytes_block = 49'152,
    .shared_bytes_block_optin = 232'448,
    .shared_bytes_reserved = 1024,
    .shared_bytes_multiprocessor = 233'472,
    .blocks_multiprocessor = 32,
};

// Returns the card that the environment variable CAPSTAN_EMULATED_CARD names, "a100" or "h100"; the
// latter if it is not set. Reads the variable at each call; any other name ends the process.
const Card& EmulatedCard();

}  // namespace capstan::kernels::cuda::emulation

#endif  // CAPSTAN_KERNELS_CUDA_EMULATION_CARD_H_
