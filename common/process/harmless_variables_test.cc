#include "common/process/harmless_variables.h"

#include <catch2/catch.hpp>

namespace capstan::harmless_variables_test {
namespace {

TEST_CASE("Harmless variables: what a child needs passes, and no secret does", "[process]") {
  for (const char* name : {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
                           "CUDA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_PROC_BIND",
                           "CAPSTAN_CUDA_PLANS", "CAPSTAN_SCHEDULER", "TSAN_OPTIONS"}) {
    INFO(name);
    CHECK(IsHarmlessVariable(name));
  }
  for (const char* name :
       {"", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "https_proxy", "PATHS", "SSH_AUTH_SOCK",
        "KRB5CCNAME", "HISTFILE", "CREDENTIALS_DIRECTORY", "CAPSTAN_STORE_PASSWORD",
        "GRPC_SSL_CIPHER_SUITES", "CAPSTAN_API_KEY", "CAPSTAN_token"}) {
    INFO(name);
    CHECK_FALSE(IsHarmlessVariable(name));
  }
}

}  // namespace
}  // namespace capstan::harmless_variables_test
