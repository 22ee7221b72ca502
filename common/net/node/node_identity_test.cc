#include "common/net/node/node_identity.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "common/testing/status_matchers.h"
#include "common/testing/test_paths.h"

namespace capstan::node_identity_test {
namespace {

TEST_CASE("Node identity: the next process in the folder has that of the one before", "[net]") {
  const std::string folder = testing::TestPath("identity_kept");
  std::string first;
  {
    REQUIRE_OK_AND_ASSIGN(const NodeIdentity holder, NodeIdentity::Keep(folder, "server-1"));
    first = holder.id();
    CHECK_STATUS(NodeIdentity::Keep(folder, "server-1").status(),
                 absl::StatusCode::kFailedPrecondition, "in use by process");
    REQUIRE_OK_AND_ASSIGN(const NodeIdentity other, NodeIdentity::Keep(folder, "server-2"));
    CHECK(other.id() != first);
  }
  REQUIRE_OK_AND_ASSIGN(const NodeIdentity successor, NodeIdentity::Keep(folder, "server-1"));
  CHECK(successor.id() == first);
}

TEST_CASE("Node identity: a copy of the folder is another daemon's", "[net]") {
  const std::string folder = testing::TestPath("identity_original");
  const std::string copy = testing::TestPath("identity_copy");
  REQUIRE_OK_AND_ASSIGN(const NodeIdentity original, NodeIdentity::Keep(folder, "server-1"));
  std::filesystem::copy(folder, copy, std::filesystem::copy_options::recursive);
  REQUIRE_OK_AND_ASSIGN(const NodeIdentity copied, NodeIdentity::Keep(copy, "server-1"));
  CHECK(copied.id() != original.id());
}

TEST_CASE("Node identity: without a folder each process has its own", "[net]") {
  CHECK_FALSE(NodeIdentity().id().empty());
  CHECK(NodeIdentity().id() != NodeIdentity().id());
}

TEST_CASE("Node identity: a name that leads out of the folder is refused", "[net]") {
  const std::string name = GENERATE("", ".", "..", "../other", "a/b");
  CHECK_STATUS(NodeIdentity::Keep(testing::TestPath("identity_names"), name).status(),
               absl::StatusCode::kInvalidArgument, name);
}

}  // namespace
}  // namespace capstan::node_identity_test
