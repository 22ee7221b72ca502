#include "common/process/harmless_variables.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace capstan {
namespace {

constexpr absl::string_view kNames[] = {
    "PATH",         "HOME",         "USER",         "LOGNAME",      "LANG",
    "LANGUAGE",     "TZ",           "TMPDIR",       "LD_PRELOAD",   "LD_LIBRARY_PATH",
    "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"};

// ONEDNN_ and DNNL_ are settings of oneDNN, GCOV_ of test coverage, GRPC_ of gRPC's logging.
constexpr absl::string_view kPrefixes[] = {"LC_",   "CUDA_", "NVIDIA_", "CUDNN_", "CUBLAS_",
                                           "OMP_",  "GOMP_", "ONEDNN_", "DNNL_",  "MALLOC_",
                                           "GCOV_", "GRPC_", "CAPSTAN_"};

// Says which ciphers gRPC takes: our programs set it themselves (common/net/grpc/credentials.h),
// and a program of a user does not expect it.
constexpr absl::string_view kOwn = "GRPC_SSL_CIPHER_SUITES";

constexpr absl::string_view kSecretWords[] = {"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL"};

}  // namespace

bool IsHarmlessVariable(absl::string_view name) {
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  if (name == kOwn) return false;
  const bool listed =
      std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                  [name](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
  const std::string upper = absl::AsciiStrToUpper(name);
  return listed &&
         std::none_of(std::begin(kSecretWords), std::end(kSecretWords),
                      [&](absl::string_view word) { return absl::StrContains(upper, word); });
}

}  // namespace capstan
