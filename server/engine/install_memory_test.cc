#include "server/engine/install_memory.h"

#include "common/testing/status_matchers.h"

namespace capstan::server::install_memory_test {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST_CASE("Install memory: what streams take together is bounded, and comes back", "[server]") {
  const auto memory = std::make_shared<InstallMemory>([](int64_t) { return absl::OkStatus(); });
  REQUIRE_OK_AND_ASSIGN(InstallMemory::Share first, memory->Take(InstallMemory::kBytesMax - 10));
  REQUIRE_OK_AND_ASSIGN(const InstallMemory::Share second, memory->Take(10));
  CHECK_STATUS(memory->Take(1), kExhausted,
               "an install asks for 1 bytes, others hold 2147483648: expected at most 2147483648");
  first.reset();
  CHECK(memory->held() == 10);
  REQUIRE_OK(memory->Take(1000));
}

TEST_CASE("Install memory: the job's budget has the last word", "[server]") {
  int64_t accounted = 0;
  const auto memory = std::make_shared<InstallMemory>([&](int64_t bytes) {
    if (bytes > 100) return absl::ResourceExhaustedError("no memory left for the job");
    accounted = bytes;
    return absl::OkStatus();
  });
  {
    REQUIRE_OK_AND_ASSIGN(const InstallMemory::Share share, memory->Take(60));
    CHECK_STATUS(memory->Take(50), kExhausted, "no memory left for the job");
    CHECK(accounted == 60);
  }
  CHECK(accounted == 0);
}

}  // namespace
}  // namespace capstan::server::install_memory_test
