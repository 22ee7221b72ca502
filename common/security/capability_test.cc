#include "common/security/capability.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::capability_test {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
const absl::Time kExpiry = absl::FromUnixSeconds(1'800'000'000);

CapabilityKey KeyOf(char c) {
  return CapabilityKey::FromBytes(std::string(CapabilityKey::kBytes, c)).value();
}

Capability TaskOf(const JobId& job) {
  return {.job = job,
          .scope = Capability::Scope::kTask,
          .rank = Rank(3),
          .incarnation = Incarnation(uint64_t{1} << 40),
          .expiry = kExpiry};
}

CapabilityUse Use(CapabilityUse::Access access, int rank, uint64_t incarnation) {
  return {.access = access, .rank = Rank(rank), .incarnation = Incarnation(incarnation)};
}

constexpr auto kRead = CapabilityUse::Access::kRead, kWrite = CapabilityUse::Access::kWrite;

TEST_CASE("CapabilityKey: it prints without its bytes, and is random", "[security]") {
  REQUIRE_OK_AND_ASSIGN(const CapabilityKey key, CapabilityKey::Draw());
  REQUIRE_OK_AND_ASSIGN(const CapabilityKey other, CapabilityKey::Draw());
  CHECK(key.bytes().size() == 32);
  CHECK_FALSE(key == other);
  std::ostringstream printed;
  printed << key;
  CHECK(printed.str() == "capability key (32 bytes)");
  REQUIRE_OK_AND_ASSIGN(const CapabilityKey again, CapabilityKey::FromBytes(key.bytes()));
  CHECK(again == key);
  const absl::Status cut = CapabilityKey::FromBytes("secret").status();
  CHECK_STATUS(cut, kInvalid, "a capability key of 6 bytes, expected 32");
  CHECK(cut.message().find("secret") == std::string::npos);
}

TEST_CASE("Capability: what was minted is read again, under the same key", "[security]") {
  const CapabilityKey key = KeyOf('k');
  const std::vector<Capability> all = {
      TaskOf("lenet-1"),
      TaskOf(std::string(kCapabilityJobBytesMax, 'j')),
      {.job = "a",
       .scope = Capability::Scope::kRead,
       .rank = {},
       .incarnation = {},
       .expiry = absl::FromUnixSeconds(-1)},
  };
  for (const Capability& capability : all) {
    const std::string bytes = MintCapability(key, capability);
    CHECK(bytes.size() <= kCapabilityBytesMax);
    REQUIRE_OK_AND_ASSIGN(const Capability decoded, DecodeCapability(bytes));
    CHECK(decoded == capability);
    REQUIRE_OK_AND_ASSIGN(const Capability verified, VerifyCapability(key, capability.job, bytes));
    CHECK(verified == capability);
  }
}

TEST_CASE("Capability: any changed bit is found", "[security]") {
  const CapabilityKey key = KeyOf('k');
  const std::string bytes = MintCapability(key, TaskOf("lenet-1"));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << (bit % 8));
    INFO("bit " << bit);
    CHECK_FALSE(VerifyCapability(key, "lenet-1", changed).ok());
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_STATUS(VerifyCapability(key, "lenet-1", bytes.substr(0, size)).status(), kInvalid, "");
  }
  CHECK_STATUS(VerifyCapability(key, "lenet-1", bytes + "x").status(), kInvalid,
               "of 63 bytes with a job id of 7, expected an id of 1 to 128 and 55 bytes more");
}

TEST_CASE("Capability: errors say what was wrong", "[security]") {
  const CapabilityKey key = KeyOf('k');
  const std::string bytes = MintCapability(key, TaskOf("lenet-1"));
  CHECK_STATUS(VerifyCapability(key, "bert-2", bytes).status(), kDenied,
               "the capability is for the job \"lenet-1\", expected \"bert-2\"");
  CHECK_STATUS(VerifyCapability(KeyOf('o'), "lenet-1", bytes).status(), kDenied,
               "the capability for the job \"lenet-1\" is forged");
  CHECK_STATUS(VerifyCapability(key, "lenet-1", "").status(), kInvalid, "no capability");
  CHECK_STATUS(VerifyCapability(key, "lenet-1", "\x02").status(), kInvalid,
               "of the format 2, expected 1");
  std::string other_scope = bytes;
  other_scope[1] = 7;
  CHECK_STATUS(DecodeCapability(other_scope).status(), kInvalid,
               "the scope 7, rank 3, incarnation 1099511627776");
}

TEST_CASE("Capability: it expires at its second", "[security]") {
  const Capability capability = TaskOf("lenet-1");
  REQUIRE_OK(CheckNotExpired(capability, kExpiry - absl::Nanoseconds(1)));
  CHECK_STATUS(CheckNotExpired(capability, kExpiry), kDenied,
               "\"lenet-1\" expired at 2027-01-15T08:00:00+00:00, it is 2027-01-15T08:00:00");
}

TEST_CASE("Capability: a task's allows one incarnation, a reader's allows reading", "[security]") {
  Capability task = TaskOf("lenet-1");
  task.incarnation = Incarnation(7);
  REQUIRE_OK(CheckAllows(task, Use(kWrite, 3, 7)));
  REQUIRE_OK(CheckAllows(task, Use(kRead, 3, 7)));
  REQUIRE_OK(CheckAllows(task, Use(kRead, -1, 0)));
  CHECK_STATUS(CheckAllows(task, Use(kWrite, 2, 7)), kDenied,
               "is for the task 3, incarnation 7, expected the task 2, incarnation 7");
  CHECK_STATUS(CheckAllows(task, Use(kRead, 3, 8)), kDenied,
               "is for the task 3, incarnation 7, expected the task 3, incarnation 8");
  CHECK_STATUS(CheckAllows(task, Use(kWrite, -1, 0)), kDenied, "is for the task 3");

  const Capability reader{.job = "lenet-1", .rank = {}, .incarnation = {}, .expiry = kExpiry};
  REQUIRE_OK(CheckAllows(reader, Use(kRead, -1, 0)));
  CHECK_STATUS(CheckAllows(reader, Use(kRead, 3, 7)), kDenied,
               "is for reading, expected the task 3, incarnation 7");
  CHECK_STATUS(CheckAllows(reader, Use(kWrite, -1, 0)), kDenied, "is for reading");
}

}  // namespace
}  // namespace capstan::capability_test
