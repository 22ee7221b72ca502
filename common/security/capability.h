// Capability: a token that proves to a server that its holder may access a job.
//
// A certificate says what kind of process calls; a capability says for which job. The scheduler
// draws a random key for each job, which it gives to the job's servers alone. A capability names a
// job, a scope and an expiry, and ends with an HMAC-SHA256 of these under the job's key: without
// the key nobody can make one or change one. Whoever holds it may use it, so it travels where the
// key of a connection protects it, and is never logged. README.md says what travels where.
//
//   bytes  0       1      2     6            14      22        23   23 + n
//          format  scope  rank  incarnation  expiry  n         job  HMAC of all before (32 bytes)
//
// Numbers are little-endian; the expiry counts seconds from 1970. A reader's rank and incarnation
// are 0.
// Thread safety: values, and functions without state.
#ifndef CAPSTAN_COMMON_SECURITY_CAPABILITY_H_
#define CAPSTAN_COMMON_SECURITY_CAPABILITY_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/types/ids.h"

namespace capstan {

// The secret of a job. It prints as its name and length, never as its bytes.
class CapabilityKey {
 public:
  static constexpr size_t kBytes = 32;

  // Errors: kInvalidArgument  another length; the message has the length alone.
  static absl::StatusOr<CapabilityKey> FromBytes(absl::string_view bytes);
  // Draws a key from OpenSSL's generator. Errors: kInternal  it has no randomness.
  static absl::StatusOr<CapabilityKey> Draw();

  const std::string& bytes() const { return bytes_; }  // For storage and the job's servers alone.
  // Compares in a time that does not depend on where they differ.
  friend bool operator==(const CapabilityKey& a, const CapabilityKey& b);
  friend std::ostream& operator<<(std::ostream& out, const CapabilityKey& key);

 private:
  explicit CapabilityKey(absl::string_view bytes) : bytes_(bytes) {}
  std::string bytes_;
};

struct Capability {
  enum class Scope : uint8_t {
    kTask = 1,  // To push and pull as one incarnation of one task.
    kRead = 2,  // To read.
  };
  JobId job;
  Scope scope = Scope::kRead;
  Rank rank;                // For kTask.
  Incarnation incarnation;  // For kTask.
  absl::Time expiry;        // Whole seconds.
  friend bool operator==(const Capability&, const Capability&) = default;
};

inline constexpr size_t kCapabilityJobBytesMax = 128;
inline constexpr size_t kCapabilityBytesMax = 23 + kCapabilityJobBytesMax + 32;

// REQUIRES: the job's id has 1 to kCapabilityJobBytesMax bytes. Fractions of a second are dropped.
std::string MintCapability(const CapabilityKey& key, const Capability& capability);

// Reads what a capability says, without a key: anybody may have written it.
// Errors: kInvalidArgument  its format or length is wrong, or it has values that none may have.
absl::StatusOr<Capability> DecodeCapability(absl::string_view bytes);

// Reads a capability for `job`, whose key is `key`.
// Errors: those of DecodeCapability; kPermissionDenied  it is another job's, or forged.
absl::StatusOr<Capability> VerifyCapability(const CapabilityKey& key, const JobId& job,
                                            absl::string_view bytes);

// Rank of a caller that is no task (proto/parameter_server.proto: Caller.rank).
inline constexpr Rank kNoTask{-1};

// The access that a call needs, and its caller.
struct CapabilityUse {
  enum class Access { kRead, kWrite };
  Access access = Access::kRead;
  Rank rank = kNoTask;
  Incarnation incarnation;
};

// Errors: kPermissionDenied  expired: names the time; or the capability is another task's, another
//                            incarnation's, or only for reading: names both.
absl::Status CheckNotExpired(const Capability& capability, absl::Time now);
absl::Status CheckAllows(const Capability& capability, const CapabilityUse& use);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_SECURITY_CAPABILITY_H_
