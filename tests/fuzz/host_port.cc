// Text as host:port: it is refused, or is the address that its own text names again, and has no
// character that could end a line or a C string.
#include "common/net/socket/host_port.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

void CheckAddress(const HostPort& address) {
  const absl::StatusOr<HostPort> again = ParseHostPort(FormatHostPort(address));
  FUZZ_CHECK(again.ok() && again->host == address.host && again->port == address.port);
}

bool IsOneLine(const std::string& text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<HostPort> address = ParseHostPort(text);
  if (!address.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(address.status()));
    FUZZ_CHECK(IsOneLine(std::string(address.status().message())));
    return 0;
  }
  FUZZ_CHECK(!address->host.empty() && address->port >= 0 && address->port <= 65535);
  FUZZ_CHECK(IsOneLine(address->host));
  CheckAddress(*address);
  CheckAddress(AdvertisedAddress(*address, "host"));
  IsLoopback(address->host);
  return 0;
}

}  // namespace capstan::fuzz
