// What exactly-once, replicas and the write-ahead log cost: push-pull throughput of one worker.
//
//   push_pull_cost --server=server/capstan-server --server-without-filter=...
//
// The worker is this process with the real client library; servers are real processes on loopback.
// An iteration pushes a gradient of the whole table and pulls the values after it, as a task does.
// Contenders take turns; each is compared with the plain one of the same round. At the end all
// contenders of a mode must hold the same bits, and each push must have been recorded once.
// Exit codes: 0 all goals are met, 1 one is not, or something failed.
#include <sys/vfs.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/process/keep_memory.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "common/time/clock.h"
#include "proto/parameter_server.grpc.pb.h"
#include "scheduler/core/placement.h"
#include "tests/benchmark/live_server.h"
#include "worker/client/push_pull_client.h"

namespace capstan::benchmark {
namespace {

constexpr char kJob[] = "push-pull-1";
constexpr double kMebi = 1 << 20;
constexpr absl::Duration kPatience = absl::Seconds(20);
// The server's log reaches its steady size, and the kernel has the pages for it.
constexpr int kWarmUpIterations = 64;
// The disk is measured less often, so that it does not rest on what its cache takes in.
constexpr int kRoundsADisk = 10;
constexpr int kDiskIterations = 8;

struct Flags {
  std::string server;
  std::string server_without_filter;
  std::string folder;
  std::string only;
  int rounds = 101;
  double seconds = 0.1;
};

// A table of equal tensors.
struct Layout {
  std::string name;
  int tensors = 1;
  int64_t elements = 0;  // Of one tensor.
  int64_t count() const { return tensors * elements; }
  double mebibytes() const { return static_cast<double>(count()) * sizeof(float) / kMebi; }
};

enum class Mode { kAsp, kBsp };

struct Config {
  std::string name;
  double goal = 0;  // At least so much of the plain one's throughput. 0: none.
  bool plain_goal = false;  // The goal is the plain one's, against this one.
  bool without_filter = false;
  int replicas = 0;
  v1::Durability durability = v1::NONE;
};

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Between these the true median lies in 19 of 20 cases: of n sorted values those at
// n/2 -+ 0.98 sqrt(n), as so many of n fair coins show heads. REQUIRES: at least 5 values.
std::pair<double, double> MedianRange(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto low = static_cast<size_t>(std::max(0.0, n / 2 - 0.98 * std::sqrt(n)));
  return {values[low], values[values.size() - 1 - low]};
}

v1::TableAssignment AssignmentOf(const Layout& layout, Mode mode, const Config& config,
                                 const std::vector<std::unique_ptr<LiveServer>>& servers) {
  v1::TableAssignment assignment;
  assignment.set_job_id(kJob);
  v1::TableSpec* table = assignment.add_tables();
  table->set_name("parameters");
  table->set_elements(layout.count());
  table->set_rule(v1::OPTIMIZER);
  for (int i = 0; i < layout.tensors; ++i) {
    v1::TensorSpec* tensor = table->add_tensors();
    tensor->set_name(absl::StrCat("layer", i, ".weight"));
    tensor->add_shape(layout.elements);
    tensor->set_offset(i * layout.elements);
    tensor->mutable_initializer()->set_uniform_bound(0.1f);
  }
  assignment.mutable_optimizer()->set_learning_rate(0.001f);
  assignment.mutable_optimizer()->mutable_momentum();
  if (mode == Mode::kAsp) {
    assignment.mutable_consistency()->mutable_asp();
  } else {
    assignment.mutable_consistency()->mutable_bsp();
    assignment.set_slots(1);
  }
  assignment.set_seed(1);
  assignment.set_replicas(config.replicas);
  assignment.set_durability(config.durability);
  v1::RoutingTable* routing = assignment.mutable_routing();
  routing->set_job_id(kJob);
  routing->set_generation(1);
  for (const auto& server : servers) *routing->add_servers() = server->address();
  // Cut as for one server, whatever there is beside the first: replicas change nothing else.
  for (const Range& range : scheduler::CutTable(layout.count(), 1)) {
    v1::ShardRoute* route = routing->add_shards();
    route->set_shard(routing->shards_size() - 1);
    route->set_element_begin(range.begin);
    route->set_element_end(range.end);
    route->set_term(1);
    for (int i = 1; i <= config.replicas; ++i) {
      v1::ShardReplica* replica = route->add_replicas();
      replica->set_server(i);
      replica->set_in_sync(true);
    }
  }
  assignment.mutable_membership()->set_generation(1);
  v1::Member* member = assignment.mutable_membership()->add_members();
  member->set_incarnation(1);
  member->set_active(true);
  return assignment;
}

// One configuration: its servers, its worker, and what was measured.
class Contender {
 public:
  Contender(Config config, Layout layout, Mode mode)
      : config_(std::move(config)), layout_(std::move(layout)), mode_(mode) {}

  absl::Status Start(const Flags& flags, const std::string& folder,
                     std::shared_ptr<const worker::TableArrays> gradient);
  // Pushes and pulls so many times.
  absl::Status Run(int iterations);
  // As Run; keeps the throughput and the processor time.
  absl::Status Measure(int iterations);
  // Errors: a push was recorded more or less often than once.
  absl::Status CheckRecorded() const;

  const Config& config() const { return config_; }
  const worker::TableArrays& values() const { return values_; }
  const std::vector<double>& rates() const { return rates_; }          // MiB/s, both directions.
  const std::vector<double>& processor() const { return processor_; }  // s/GiB, all processes.

 private:
  double Processor() const;

  const Config config_;
  const Layout layout_;
  const Mode mode_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<LiveServer>> servers_;
  std::shared_ptr<const worker::TableArrays> gradient_;  // Shared by all contenders.
  worker::TableArrays values_;
  std::unique_ptr<worker::PushPullClient> client_;
  int64_t iteration_ = 0;
  std::vector<double> rates_, processor_;
};

absl::Status Contender::Start(const Flags& flags, const std::string& folder,
                              std::shared_ptr<const worker::TableArrays> gradient) {
  gradient_ = std::move(gradient);
  values_ = {std::vector<float>(static_cast<size_t>(layout_.count()))};
  for (int i = 0; i <= config_.replicas; ++i) {
    LiveServer::Options options;
    options.program = config_.without_filter ? flags.server_without_filter : flags.server;
    options.name = absl::StrCat("server-", i);
    options.folder = absl::StrCat(folder, "/", options.name);
    options.log = config_.durability == v1::LOG;
    std::filesystem::create_directories(options.folder);
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LiveServer> server, LiveServer::Start(options));
    servers_.push_back(std::move(server));
  }
  const v1::TableAssignment assignment = AssignmentOf(layout_, mode_, config_, servers_);
  for (const auto& server : servers_) CAPSTAN_RETURN_IF_ERROR(server->Assign(assignment));
  worker::PushPullClient::Options options{
      .job = kJob, .rank = Rank(0), .incarnation = Incarnation(1), .session = {}};
  const bool committed = config_.replicas > 0 || config_.durability == v1::LOG;
  if (mode_ == Mode::kBsp && committed) {
    options.session.acknowledgement = worker::Acknowledgement::kWholeIteration;
  }
  client_ = std::make_unique<worker::PushPullClient>(options, clock_);
  CAPSTAN_RETURN_IF_ERROR(client_->SetRouting(assignment.routing()));
  CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId first,
                           client_->Pull(Iteration(0), worker::PullMode::kTrain, &values_));
  return client_->Wait(first).status();
}

absl::Status Contender::Run(int iterations) {
  for (int i = 0; i < iterations; ++i, ++iteration_) {
    const Range slots = mode_ == Mode::kBsp ? Range{0, 1} : Range{};
    CAPSTAN_ASSIGN_OR_RETURN(const worker::OpId push,
                             client_->Push(Iteration(iteration_), slots, gradient_));
    CAPSTAN_ASSIGN_OR_RETURN(
        const worker::OpId pull,
        client_->Pull(Iteration(iteration_ + 1), worker::PullMode::kTrain, &values_));
    CAPSTAN_RETURN_IF_ERROR(client_->Wait(pull).status());
    CAPSTAN_RETURN_IF_ERROR(client_->Wait(push).status());
  }
  return absl::OkStatus();
}

absl::Status Contender::Measure(int iterations) {
  const double processor = Processor();
  const Instant begin = clock_.Now();
  CAPSTAN_RETURN_IF_ERROR(Run(iterations));
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - begin);
  const double mebibytes = 2 * iterations * layout_.mebibytes();
  rates_.push_back(mebibytes / seconds);
  processor_.push_back((Processor() - processor) / mebibytes * 1024);
  return absl::OkStatus();
}

double Contender::Processor() const {
  double seconds = ProcessorSeconds();
  for (const auto& server : servers_) seconds += server->ProcessorSeconds();
  return seconds;
}

absl::Status Contender::CheckRecorded() const {
  const auto stub =
      v1::ParameterServer::NewStub(MakeChannel(servers_[0]->address().address(),
                                               ChannelKind::kData));
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  v1::DescribeTablesRequest request;
  request.set_job_id(kJob);
  v1::DescribeTablesResponse response;
  CAPSTAN_RETURN_IF_ERROR(FromGrpcStatus(stub->DescribeTables(&context, request, &response)));
  if (response.tables_size() != 1) return absl::InternalError("the table is gone");
  const v1::HeldTable& table = response.tables(0);
  const int64_t expected = iteration_ * table.shards();
  if (table.pushes_applied() == expected && table.version_min() == iteration_) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat(config_.name, ": ", table.pushes_applied(),
                                          " pushes of shards were recorded, expected ", expected,
                                          "; version ", table.version_min(), ", expected ",
                                          iteration_));
}

// ---------------------------------------------------------------- the disk

std::string FileSystemOf(const std::string& folder) {
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) return "unknown";
  switch (static_cast<uint32_t>(status.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x794C7630:
      return "overlay";
    case 0x01021994:
      return "tmpfs: no disk at all";
    default:
      return absl::StrCat("type 0x", absl::Hex(status.f_type));
  }
}

// MiB/s of writing an iteration's gradients and syncing them, as often as that; the log can be no
// faster.
absl::StatusOr<double> DiskRate(const std::string& folder, const Layout& layout, int iterations) {
  const std::string path = absl::StrCat(folder, "/disk");
  const std::string bytes(static_cast<size_t>(layout.count()) * sizeof(float), 'x');
  PosixDisk disk;
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, disk.Create(path));
  const absl::Time begin = absl::Now();
  for (int i = 0; i < iterations; ++i) {
    CAPSTAN_RETURN_IF_ERROR(file->Append(bytes));
    CAPSTAN_RETURN_IF_ERROR(file->Sync());
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  CAPSTAN_RETURN_IF_ERROR(disk.Remove(path));
  return iterations * layout.mebibytes() / seconds;
}

// ---------------------------------------------------------------- one table and mode

using Contenders = std::vector<std::unique_ptr<Contender>>;

void PrintRow(const std::string& name, const std::vector<double>& rates) {
  std::printf("%-28s%9.0f%9.0f%9.0f", name.c_str(), Median(rates),
              *std::min_element(rates.begin(), rates.end()),
              *std::max_element(rates.begin(), rates.end()));
}

// Returns whether the goal was met.
bool PrintContender(const Contender& contender, const Contender& plain) {
  PrintRow(contender.config().name, contender.rates());
  std::printf("%13.2f", Median(contender.processor()));
  bool met = true;
  if (contender.config().goal > 0) {
    std::vector<double> ratios;
    for (size_t i = 0; i < plain.rates().size(); ++i) {
      const double ratio = contender.rates()[i] / plain.rates()[i];
      ratios.push_back(contender.config().plain_goal ? 1 / ratio : ratio);
    }
    met = Median(ratios) >= contender.config().goal;
    const auto [low, high] = MedianRange(ratios);
    std::printf("%9.3f (%.3f to %.3f)  goal %.2f%s: %s", Median(ratios), low, high,
                contender.config().goal, contender.config().plain_goal ? " of plain to this" : "",
                met ? "met" : "missed");
  }
  std::printf("\n");
  return met;
}

absl::Status CheckSame(const Contenders& contenders) {
  for (const auto& contender : contenders) {
    CAPSTAN_RETURN_IF_ERROR(contender->CheckRecorded());
    if (contender->values() == contenders[0]->values()) continue;
    return absl::InternalError(absl::StrCat(contender->config().name,
                                            ": its values differ from the plain one's"));
  }
  return absl::OkStatus();
}

std::vector<Config> ConfigsOf(Mode mode) {
  std::vector<Config> configs = {{.name = "plain"}};
  // Under BSP slots are what makes pushes idempotent; the filter has no part in it.
  if (mode == Mode::kAsp) {
    configs.push_back({.name = "without duplicate filter",
                       .goal = 0.97,
                       .plain_goal = true,
                       .without_filter = true});
  }
  configs.push_back({.name = "replicas: 1", .goal = 0.45, .replicas = 1});
  configs.push_back({.name = "durability: LOG", .goal = 0.5, .durability = v1::LOG});
  return configs;
}

// Returns whether all goals were met.
absl::StatusOr<bool> Compare(const Flags& flags, const std::string& folder, const Layout& layout,
                             Mode mode) {
  auto gradient = std::make_shared<worker::TableArrays>();
  std::vector<float>& values = gradient->emplace_back(static_cast<size_t>(layout.count()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ToUnitFloat(PhiloxWord(1, i)) - 0.5f;
  Contenders contenders;
  for (const Config& config : ConfigsOf(mode)) {
    contenders.push_back(std::make_unique<Contender>(config, layout, mode));
    const std::string home = absl::StrCat(folder, "/", contenders.size());
    CAPSTAN_RETURN_IF_ERROR(contenders.back()->Start(flags, home, gradient));
    CAPSTAN_RETURN_IF_ERROR(contenders.back()->Run(kWarmUpIterations));
  }
  const absl::Time begin = absl::Now();
  CAPSTAN_RETURN_IF_ERROR(contenders[0]->Run(8));
  const double iteration_seconds = absl::ToDoubleSeconds(absl::Now() - begin) / 8;
  for (size_t i = 1; i < contenders.size(); ++i) CAPSTAN_RETURN_IF_ERROR(contenders[i]->Run(8));
  const int iterations = std::max(1, static_cast<int>(flags.seconds / iteration_seconds));
  std::vector<double> disk;
  for (int round = 0; round < flags.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {  // Every other round backwards.
      const size_t turn = round % 2 == 0 ? i : contenders.size() - 1 - i;
      CAPSTAN_RETURN_IF_ERROR(contenders[turn]->Measure(iterations));
    }
    if (round % kRoundsADisk != 0) continue;
    CAPSTAN_ASSIGN_OR_RETURN(const double rate, DiskRate(folder, layout, kDiskIterations));
    disk.push_back(rate);
  }
  CAPSTAN_RETURN_IF_ERROR(CheckSame(contenders));
  std::printf("%s, %s, 1 worker; medians of %d rounds of %d iterations, in turn\n",
              layout.name.c_str(), mode == Mode::kAsp ? "ASP" : "BSP", flags.rounds, iterations);
  std::printf("%-28s%9s%9s%9s%13s%9s\n", "push + pull, MiB/s", "median", "min", "max",
              "processor", "ratio");
  bool met = true;
  for (const auto& contender : contenders) met &= PrintContender(*contender, *contenders[0]);
  PrintRow("the disk alone, MiB/s", disk);
  std::printf("  write + fdatasync of what is pushed (%s)\n\n", FileSystemOf(folder).c_str());
  std::fflush(stdout);
  return met;
}

// Returns whether all goals were met.
absl::StatusOr<bool> CompareAll(const Flags& flags, const std::string& folder) {
  const std::vector<Layout> layouts = {
      {.name = "16 MiB of fp32", .tensors = 1, .elements = 4 << 20},
      {.name = "64 tensors of 1 MiB of fp32", .tensors = 64, .elements = 1 << 18}};
  bool met = true;
  for (const Layout& layout : layouts) {
    for (const Mode mode : {Mode::kAsp, Mode::kBsp}) {
      const std::string name =
          absl::StrCat(layout.tensors, mode == Mode::kAsp ? "-asp" : "-bsp");
      if (!flags.only.empty() && flags.only != name) continue;
      CAPSTAN_ASSIGN_OR_RETURN(const bool all,
                               Compare(flags, absl::StrCat(folder, "/", name), layout, mode));
      met &= all;
      std::filesystem::remove_all(absl::StrCat(folder, "/", name));
    }
  }
  std::printf("processor: seconds of all processes together for each GiB of push + pull\n");
  return met;
}

int Main(int argc, char** argv) {
  Flags flags;
  const char* scratch = std::getenv("TMPDIR");
  flags.folder = scratch != nullptr ? scratch : "/var/tmp";
  CLI::App app("Measures what exactly-once, replicas and the log cost in push-pull throughput.");
  app.add_option("--server", flags.server, "capstan-server")->required();
  app.add_option("--server-without-filter", flags.server_without_filter,
                 "The same without its duplicate filter")
      ->required();
  app.add_option("--rounds", flags.rounds, "Rounds, at least 5")->check(CLI::Range(5, 1000));
  app.add_option("--seconds", flags.seconds, "Of one turn")->check(CLI::Range(0.05, 60.0));
  app.add_option("--folder", flags.folder, "On the disk that the logs are written to");
  app.add_option("--only", flags.only, "1-asp, 1-bsp, 64-asp or 64-bsp; all by default");
  CLI11_PARSE(app, argc, argv);
  std::string folder = absl::StrCat(flags.folder, "/push-pull-cost-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  const absl::StatusOr<bool> met = CompareAll(flags, folder);
  std::filesystem::remove_all(folder);
  if (met.ok()) return *met ? 0 : 1;
  std::fprintf(stderr, "%s\n", met.status().ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  return capstan::benchmark::Main(argc, argv);
}
