// Bytes as a capability: they are refused, or say what mints the same bytes but for the code at
// their end; without the key none is accepted, and with the code that the key makes each is.
#include "common/security/capability.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const CapabilityKey key =
      CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, 'k')).value();
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Capability> capability = DecodeCapability(bytes);
  if (!capability.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(capability.status()));
    return 0;
  }
  FUZZ_CHECK(size <= kCapabilityBytesMax);
  FUZZ_CHECK(!VerifyCapability(key, capability->job + "x", bytes).ok());
  CheckNotExpired(*capability, absl::UnixEpoch()).IgnoreError();
  // Seconds beyond those that a time can have are infinite, and mint other bytes.
  if (capability->expiry == absl::InfiniteFuture() || capability->expiry == absl::InfinitePast()) {
    return 0;
  }
  const std::string minted = MintCapability(key, *capability);
  FUZZ_CHECK(minted.size() == size);
  constexpr size_t kMacBytes = 32;
  FUZZ_CHECK(bytes.substr(0, size - kMacBytes) ==
             absl::string_view(minted).substr(0, size - kMacBytes));
  FUZZ_CHECK(VerifyCapability(key, capability->job, minted).ok());
  FUZZ_CHECK(VerifyCapability(key, capability->job, bytes).ok() == (bytes == minted));
  return 0;
}

}  // namespace capstan::fuzz
