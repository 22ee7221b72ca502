#include "kernels/cuda/emulation/libraries/cudnn_library.h"

#include <dlfcn.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace capstan::kernels::cuda::emulation {
namespace {

constexpr char kFile[] = "libcudnn.so.9";
constexpr size_t kVersionMin = 90800;  // The first that plans for a described card.

template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// While it lives, LeakSanitizer ignores new allocations, since cuDNN leaks some of cuBLASLt's
// handles when it plans. Descriptors are allocated before, so that LeakSanitizer finds lost ones.
class NotOurs {
 public:
#if defined(__SANITIZE_ADDRESS__)
  NotOurs() { __lsan_disable(); }
  ~NotOurs() { __lsan_enable(); }
#else
  NotOurs() {}
#endif
  NotOurs(const NotOurs&) = delete;
  NotOurs& operator=(const NotOurs&) = delete;
};

// The library's own functions. Open sets them.
decltype(CudnnLibrary::Finalize) real_finalize = nullptr;
decltype(CudnnLibrary::Get) real_get = nullptr;

cudnnStatus_t Finalize(cudnnBackendDescriptor_t descriptor) {
  const NotOurs not_ours;
  return real_finalize(descriptor);
}

cudnnStatus_t Get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                  void* values) {
  const NotOurs not_ours;
  return real_get(descriptor, name, type, requested, count, values);
}

CudnnLibrary Open() {
  CudnnLibrary cudnn;
  // RTLD_LOCAL, because the emulated functions have the same names.
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    cudnn.failure = dlerror();
    return cudnn;
  }
  const bool found = Find(library, "cudnnGetVersion", cudnn.GetVersion) &&
                     Find(library, "cudnnGetErrorString", cudnn.GetErrorString) &&
                     Find(library, "cudnnGetLastErrorString", cudnn.GetLastErrorString) &&
                     Find(library, "cudnnBackendCreateDescriptor", cudnn.Create) &&
                     Find(library, "cudnnBackendDestroyDescriptor", cudnn.Destroy) &&
                     Find(library, "cudnnBackendFinalize", real_finalize) &&
                     Find(library, "cudnnBackendSetAttribute", cudnn.Set) &&
                     Find(library, "cudnnBackendGetAttribute", real_get);
  cudnn.Finalize = &Finalize;
  cudnn.Get = &Get;
  if (!found) {
    cudnn.failure = absl::StrCat(kFile, " lacks a function: ", dlerror());
  } else if (cudnn.GetVersion() < kVersionMin) {
    cudnn.failure = absl::StrCat("cuDNN is ", cudnn.GetVersion(), ", expected at least ",
                                 kVersionMin, " to plan without a card");
  }
  return cudnn;
}

std::string JsonOf(const Card& card) {
  return absl::StrCat(R"({"cudaDeviceId":0,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)",
                      R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)",
                      R"("deviceName":")", card.name,  //
                      R"(","deviceVer":)",
                      card.capability_major * 100 + card.capability_minor * 10,              //
                      R"(,"driverVer":)", kDriverVersion,                                    //
                      R"(,"multiProcessorCount":)", card.multiprocessors,                    //
                      R"(,"totalGlobalMem":)", card.memory_bytes,                            //
                      R"(,"l2CacheSize":)", card.l2_bytes,                                   //
                      R"(,"smClockRateKHz":)", card.clock_khz,                               //
                      R"(,"memClockRateKHz":)", card.memory_clock_khz,                       //
                      R"(,"maxSharedMemoryPerBlock":)", card.shared_bytes_block,             //
                      R"(,"maxSharedMemoryPerBlockOptin":)", card.shared_bytes_block_optin,  //
                      R"(,"reservedSharedMemoryPerBlock":)", card.shared_bytes_reserved,     //
                      R"(,"maxCtasPerSM":)", card.blocks_multiprocessor,                     //
                      R"(,"warpSize":)", kWarpThreads,                                       //
                      R"(,"maxThreadsPerBlock":)", kBlockThreadsMax,                         //
                      R"(,"maxThreadsPerSM":)", kMultiprocessorThreadsMax,                   //
                      R"(,"regsPerBlock":)", kMultiprocessorRegisters,                       //
                      R"(,"maxRegistersPerSM":)", kMultiprocessorRegisters, "}");
}

cudnnBackendDescriptor_t Describe(const Card& card) {
  cudnnBackendDescriptor_t made = nullptr;
  if (Cudnn().Create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  const std::string json = JsonOf(card);
  if (Cudnn().Set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                  static_cast<int64_t>(json.size()), json.data()) == CUDNN_STATUS_SUCCESS &&
      Cudnn().Finalize(made) == CUDNN_STATUS_SUCCESS) {
    return made;
  }
  Cudnn().Destroy(made);
  return nullptr;
}

}  // namespace

const CudnnLibrary& Cudnn() {
  static const CudnnLibrary& cudnn = *new CudnnLibrary(Open());
  return cudnn;
}

cudnnBackendDescriptor_t PropertiesOf(const Card& card) {
  static absl::Mutex& mutex = *new absl::Mutex();
  static auto& made = *new std::map<const Card*, cudnnBackendDescriptor_t>();
  const absl::MutexLock lock(&mutex);
  const auto [found, is_new] = made.try_emplace(&card, nullptr);
  if (is_new) found->second = Describe(card);
  return found->second;
}

}  // namespace capstan::kernels::cuda::emulation
