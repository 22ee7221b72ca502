// Data connections between real server processes and the client library: the same bits as over
// gRPC, whatever the job asks for, and gRPC where a server has none.
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/scratch_folder.h"

namespace capstan::benchmark::data_connections_test {
namespace {

constexpr char kServer[] = "server/capstan-server";

// Messages of several sizes: shards are cut as the scheduler does.
const Layout kLayout{.name = "20 MiB", .tensors = 5, .elements = 1 << 20};

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
  std::vector<Case> cases(5);
  cases[0].name = "asp-bf16";
  cases[0].config.format = NumberFormat::kBf16;
  cases[1].name = "bsp-2-servers";
  cases[1].mode = Mode::kBsp;
  cases[1].config.servers = 2;
  cases[2].name = "bsp-replica-2-workers-layer-by-layer";
  cases[2].mode = Mode::kBsp;
  cases[2].config.replicas = 1;
  cases[2].config.workers = 2;
  cases[2].config.layer_by_layer = true;
  cases[3].name = "asp-log";
  cases[3].config.durability = v1::LOG;
  cases[4].name = "shared memory";  // Only its small messages go over connections.
  cases[4].config.shared_memory = true;
  for (Case& each : cases) each.config.server = kServer;
  return cases;
}

TEST_CASE("Data connections: the same bits as over gRPC", "[data_connections]") {
  const auto gradient = Gradient();
  for (const Case& each : Cases()) {
    CAPTURE(each.name);
    REQUIRE_OK_AND_ASSIGN(const auto folder,
                          ScratchFolder::Make(ScratchFolder::Home(), "data-path"));
    Config by_grpc = each.config;
    by_grpc.data_connections = false;
    Contender ours(each.config, kLayout, each.mode), grpc(by_grpc, kLayout, each.mode);
    REQUIRE_OK(ours.Start(folder->path() + "/data", gradient));
    REQUIRE_OK(grpc.Start(folder->path() + "/grpc", gradient));
    int iterations = 0;  // Until the connections have opened, which takes a moment.
    for (; iterations < 1000 && ours.Counts().data_messages < 10; ++iterations) {
      REQUIRE_OK(ours.Run(1));
    }
    REQUIRE_OK(grpc.Run(iterations));
    CHECK(ours.Counts().data_messages >= 10);
    CHECK(grpc.Counts().data_messages == 0);
    CHECK(ours.values() == grpc.values());
    REQUIRE_OK(ours.CheckRecorded());
  }
}

TEST_CASE("Data connections: a server without them is served by gRPC", "[data_connections]") {
  REQUIRE_OK_AND_ASSIGN(const auto folder, ScratchFolder::Make(ScratchFolder::Home(), "data-path"));
  Contender ours({.server = kServer, .data_listen = "off"}, kLayout, Mode::kAsp);
  REQUIRE_OK(ours.Start(folder->path(), Gradient()));
  REQUIRE_OK(ours.Run(20));
  CHECK(ours.Counts().data_messages == 0);
  REQUIRE_OK(ours.CheckRecorded());
}

}  // namespace
}  // namespace capstan::benchmark::data_connections_test
