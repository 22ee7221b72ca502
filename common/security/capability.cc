#include "common/security/capability.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cassert>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"

namespace capstan {
namespace {

constexpr uint8_t kFormat = 1;
constexpr size_t kMacBytes = 32;
constexpr size_t kHeadBytes = 23;  // All before the job's id.

bool Same(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string Mac(const CapabilityKey& key, absl::string_view bytes) {
  std::string mac(kMacBytes, '\0');
  unsigned int size = kMacBytes;
  const unsigned char* const made =
      HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size);
  // An empty code equals none.
  return made != nullptr && size == kMacBytes ? mac : std::string();
}

// A job's id as the caller wrote it, for messages.
std::string Quoted(absl::string_view job) {
  return absl::StrCat("\"", job.substr(0, kCapabilityJobBytesMax), "\"");
}

std::string TaskName(Rank rank, Incarnation incarnation) {
  return absl::StrCat("the task ", rank.value(), ", incarnation ", incarnation.value());
}

}  // namespace

absl::StatusOr<CapabilityKey> CapabilityKey::FromBytes(absl::string_view bytes) {
  if (bytes.size() == kBytes) return CapabilityKey(bytes);
  return absl::InvalidArgumentError(
      absl::StrCat("a capability key of ", bytes.size(), " bytes, expected ", kBytes));
}

absl::StatusOr<CapabilityKey> CapabilityKey::Draw() {
  std::string bytes(kBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(kBytes)) == 1) {
    return CapabilityKey(bytes);
  }
  return absl::InternalError("OpenSSL has no randomness for a capability key");
}

bool operator==(const CapabilityKey& a, const CapabilityKey& b) { return Same(a.bytes_, b.bytes_); }

std::ostream& operator<<(std::ostream& out, const CapabilityKey&) {
  return out << "capability key (" << CapabilityKey::kBytes << " bytes)";
}

std::string MintCapability(const CapabilityKey& key, const Capability& capability) {
  assert(!capability.job.empty() && capability.job.size() <= kCapabilityJobBytesMax);
  const bool is_task = capability.scope == Capability::Scope::kTask;
  std::string bytes;
  bytes.push_back(static_cast<char>(kFormat));
  bytes.push_back(static_cast<char>(capability.scope));
  PutLe32(is_task ? static_cast<uint32_t>(capability.rank.value()) : 0, &bytes);
  PutLe64(is_task ? capability.incarnation.value() : 0, &bytes);
  PutLe64(static_cast<uint64_t>(absl::ToUnixSeconds(capability.expiry)), &bytes);
  bytes.push_back(static_cast<char>(capability.job.size()));
  bytes += capability.job;
  return bytes + Mac(key, bytes);
}

absl::StatusOr<Capability> DecodeCapability(absl::string_view bytes) {
  if (bytes.empty()) return absl::InvalidArgumentError("no capability, expected the job's");
  if (static_cast<uint8_t>(bytes[0]) != kFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a capability of the format ", static_cast<uint8_t>(bytes[0]), ", expected ", kFormat));
  }
  const size_t job_bytes =
      bytes.size() < kHeadBytes ? 0 : static_cast<uint8_t>(bytes[kHeadBytes - 1]);
  if (job_bytes < 1 || job_bytes > kCapabilityJobBytesMax ||
      bytes.size() != kHeadBytes + job_bytes + kMacBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a capability of ", bytes.size(), " bytes with a job id of ", job_bytes,
                     ", expected an id of 1 to ", kCapabilityJobBytesMax, " and ",
                     kHeadBytes + kMacBytes, " bytes more"));
  }
  const auto scope = static_cast<uint8_t>(bytes[1]);
  const auto rank = static_cast<int32_t>(GetLe32(bytes, 2));
  const auto incarnation = GetLe64(bytes, 6);
  const auto expiry = static_cast<int64_t>(GetLe64(bytes, 14));
  const bool is_task = scope == static_cast<uint8_t>(Capability::Scope::kTask);
  const bool is_read = scope == static_cast<uint8_t>(Capability::Scope::kRead);
  const bool valid = is_task ? rank >= 0 && incarnation > 0 : rank == 0 && incarnation == 0;
  if (!(is_task || is_read) || !valid) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a capability of the scope ", scope, ", rank ", rank, ", incarnation ", incarnation,
        ", expected a task's (1, 0 or more, 1 or more) or a reader's "
        "(2, 0, 0)"));
  }
  return Capability{.job = JobId(std::string(bytes.substr(kHeadBytes, job_bytes))),
                    .scope = static_cast<Capability::Scope>(scope),
                    .rank = Rank(rank),
                    .incarnation = Incarnation(incarnation),
                    .expiry = absl::FromUnixSeconds(expiry)};
}

absl::StatusOr<Capability> VerifyCapability(const CapabilityKey& key, const JobId& job,
                                            absl::string_view bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(Capability capability, DecodeCapability(bytes));
  if (capability.job != job) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the capability is for the job ", Quoted(capability.job), ", expected ", Quoted(job)));
  }
  const size_t size = bytes.size() - kMacBytes;
  if (Same(Mac(key, bytes.substr(0, size)), bytes.substr(size))) return capability;
  return absl::PermissionDeniedError(absl::StrCat("the capability for the job ", Quoted(job),
                                                  " is forged: it was not made with "
                                                  "the job's key"));
}

absl::Status CheckNotExpired(const Capability& capability, absl::Time now) {
  if (now < capability.expiry) return absl::OkStatus();
  const auto text = [](absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); };
  return absl::PermissionDeniedError(absl::StrCat("the capability for the job ",
                                                  Quoted(capability.job), " expired at ",
                                                  text(capability.expiry), ", it is ", text(now)));
}

absl::Status CheckAllows(const Capability& capability, const CapabilityUse& use) {
  const bool writes = use.access == CapabilityUse::Access::kWrite;
  if (use.rank == kNoTask && !writes) return absl::OkStatus();
  const bool is_task = capability.scope == Capability::Scope::kTask;
  if (is_task && capability.rank == use.rank && capability.incarnation == use.incarnation) {
    return absl::OkStatus();
  }
  const std::string has = is_task ? TaskName(capability.rank, capability.incarnation) : "reading";
  return absl::PermissionDeniedError(
      absl::StrCat("the capability for the job ", Quoted(capability.job), " is for ", has,
                   ", expected ", TaskName(use.rank, use.incarnation)));
}

}  // namespace capstan
