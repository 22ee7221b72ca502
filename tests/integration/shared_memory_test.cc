// Shared memory between real server processes and the client library: the same bits as over TCP,
// whatever the job asks for, and nothing left behind when either side dies.
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/process_usage.h"
#include "tests/benchmark/scratch_folder.h"

namespace capstan::benchmark::shared_memory_test {
namespace {

constexpr char kServer[] = "server/capstan-server";

// More than the shared memory: messages wait for each other's room.
const Layout kLayout{.name = "40 MiB", .tensors = 10, .elements = 1 << 20};

std::shared_ptr<const worker::TableArrays> Gradient() {
  std::vector<float> gradient(static_cast<size_t>(kLayout.count()));
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 251) - 100.0f;
  return std::make_shared<const worker::TableArrays>(worker::TableArrays{std::move(gradient)});
}

struct Case {
  std::string name;
  Mode mode = Mode::kAsp;
  Config config;
};

std::vector<Case> Cases() {
  std::vector<Case> cases(6);
  cases[0].name = "asp";
  cases[1].name = "asp-bf16";
  cases[1].config.format = NumberFormat::kBf16;
  cases[2].name = "bsp-2-servers";
  cases[2].mode = Mode::kBsp;
  cases[2].config.servers = 2;
  cases[3].name = "bsp-replica";  // Pushes are answered once their iteration is committed.
  cases[3].mode = Mode::kBsp;
  cases[3].config.replicas = 1;
  cases[4].name = "asp-log";
  cases[4].config.durability = v1::LOG;
  // Pulls that wait for room keep no push from its way that others wait for.
  cases[5].name = "bsp-replica-2-workers-layer-by-layer";
  cases[5].mode = Mode::kBsp;
  cases[5].config.replicas = 1;
  cases[5].config.workers = 2;
  cases[5].config.layer_by_layer = true;
  for (Case& each : cases) each.config.server = kServer;
  return cases;
}

TEST_CASE("Shared memory: the same bits as over TCP", "[shared_memory]") {
  const auto gradient = Gradient();
  for (const Case& each : Cases()) {
    CAPTURE(each.name);
    REQUIRE_OK_AND_ASSIGN(const auto folder,
                          ScratchFolder::Make(ScratchFolder::Home(), "shared-memory"));
    Config shared = each.config;
    shared.shared_memory = true;
    Contender ours(shared, kLayout, each.mode), tcp(each.config, kLayout, each.mode);
    REQUIRE_OK(ours.Start(folder->path() + "/shared", gradient));
    REQUIRE_OK(tcp.Start(folder->path() + "/tcp", gradient));
    REQUIRE_OK(ours.Run(3));
    REQUIRE_OK(tcp.Run(3));
    CHECK(ours.Counts().shared_messages > 10);
    CHECK(tcp.Counts().shared_messages == 0);
    CHECK(ours.values() == tcp.values());
    REQUIRE_OK(ours.CheckRecorded());
  }
}

constexpr absl::Duration kPatience = absl::Seconds(20);

TEST_CASE("Shared memory: a server closes what its callers leave behind", "[shared_memory]") {
  REQUIRE_OK_AND_ASSIGN(const auto folder,
                        ScratchFolder::Make(ScratchFolder::Home(), "shared-memory"));
  Contender ours({.server = kServer, .shared_memory = true}, kLayout, Mode::kAsp);
  REQUIRE_OK(ours.Start(folder->path(), Gradient()));
  REQUIRE_OK(ours.Run(1));
  REQUIRE(ours.Counts().shared_messages > 0);
  const int files = ours.server(0).OpenFiles();
  const int64_t bytes = ours.server(0).ResidentBytes();
  ours.StopWorkers();
  // Its connections, at least three, and the memory, whose descriptor is closed once it is mapped.
  const absl::Time give_up = absl::Now() + kPatience;
  while (ours.server(0).OpenFiles() > files - 3 ||
         ours.server(0).ResidentBytes() > bytes - (10 << 20)) {
    REQUIRE(absl::Now() < give_up);
  }
}

TEST_CASE("Shared memory: a worker outlives the server and keeps nothing open", "[shared_memory]") {
  REQUIRE_OK_AND_ASSIGN(const auto folder,
                        ScratchFolder::Make(ScratchFolder::Home(), "shared-memory"));
  int files = 0;
  {
    Contender warm({.server = kServer, .shared_memory = true}, kLayout, Mode::kAsp);
    REQUIRE_OK(warm.Start(folder->path() + "/first", Gradient()));
  }
  files = OpenFilesOf(getpid());
  {
    Contender ours({.server = kServer, .shared_memory = true}, kLayout, Mode::kAsp);
    REQUIRE_OK(ours.Start(folder->path() + "/second", Gradient()));
    REQUIRE_OK(ours.Run(1));
    REQUIRE(OpenFilesOf(getpid()) > files);
    ours.server(0).Kill();
    CHECK(ours.server(0).OpenFiles() == 0);
    REQUIRE_OK(ours.BeginPush());  // Nobody answers it.
  }
  const absl::Time give_up = absl::Now() + kPatience;
  while (OpenFilesOf(getpid()) > files) REQUIRE(absl::Now() < give_up);
}

}  // namespace
}  // namespace capstan::benchmark::shared_memory_test
