// The cost of exactly-once, checksums, replicas and the write-ahead log: push-pull throughput of
// one worker.
//
//   push_pull_cost --server=server/capstan-server --server-without-filter=...
//       --server-without-checksums=...
//
// The worker is this process with the real client library; servers are real processes on loopback.
// An iteration pushes a gradient of the whole table and pulls the values after it, as a task does.
// Contenders take turns; each is compared with the plain one of the same round. At the end all
// contenders of a mode must hold the same bits, and each push must have been recorded once.
// Exit codes: 0 all goals are met, 1 one is not, or something failed.
#include <sys/vfs.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/command_line/command.h"
#include "common/planted/planted_bug.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "common/storage/posix_disk.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/statistics.h"
#include "tests/benchmark/turns.h"

namespace capstan {
namespace {

// This process sends and takes frames without their checksums now, as its server does.
std::atomic<bool> without_checksums = false;

}  // namespace

bool PlantedBugIs(PlantedBug bug) {
  return bug == PlantedBug::kIgnoreFrameChecksum && without_checksums;
}

namespace benchmark {
namespace {

// The server's log reaches its steady size, and the kernel has the pages for it.
constexpr int kWarmUpIterations = 64;
constexpr int kTrialIterations = 8;  // A trial with these finds the number of iterations of a turn.
// 3 % want more and shorter turns than a half does, and processes that were started anew, in either
// order: where their memory happens to lie is good for some percent.
constexpr int kSmallStarts = 6;
constexpr double kSmallSecondsFactor = 0.2;

struct Flags {
  std::string server;
  std::string server_without_filter;
  std::string server_without_checksums;
  std::string folder;
  std::string only;
  int rounds = 51;
  double seconds = 0.25;
};

// A feature whose cost is measured by leaving it out, or adding it.
enum class Of { kReplicasAndLog, kFilter, kChecksums };

// Two configurations that are compared over one table.
struct Comparison {
  std::string name;
  Layout layout;
  Mode mode = Mode::kAsp;
  Of of = Of::kReplicasAndLog;
  // Small differences want more starts, and shorter turns.
  bool is_small() const { return of != Of::kReplicasAndLog; }
};

constexpr char kWithoutChecksums[] = "without checksums";

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

// Results of one configuration, a number for each round.
struct Result {
  std::string name;
  std::vector<double> rates, processor;
};

void PrintRow(const std::string& name, const std::vector<double>& rates) {
  std::printf("%-28s%9.0f%9.0f%9.0f", name.c_str(), Median(rates),
              *std::min_element(rates.begin(), rates.end()),
              *std::max_element(rates.begin(), rates.end()));
}

// Prints `of` against `to`, the goal, and whether it was met, which it returns.
bool PrintRatio(const Result& of, const Result& to, double goal) {
  const std::vector<double> ratios = Ratios(of.rates, to.rates);
  const auto [low, high] = MedianRange(ratios);
  const bool met = Median(ratios) >= goal;
  std::printf("%9.3f (%.3f to %.3f)  goal %.2f: %s", Median(ratios), low, high, goal,
              met ? "met" : "missed");
  return met;
}

absl::Status CheckSame(const Contenders& contenders) {
  for (const auto& contender : contenders) {
    CAPSTAN_RETURN_IF_ERROR(contender->CheckRecorded());
    if (contender->values() == contenders[0]->values()) continue;
    return absl::InternalError(
        absl::StrCat(contender->config().name, ": its values differ from the first one's"));
  }
  return absl::OkStatus();
}

// The first is what the others are compared with.
std::vector<Config> ConfigsOf(const Flags& flags, const Comparison& comparison) {
  if (comparison.of == Of::kFilter) {
    return {{.name = "without duplicate filter", .server = flags.server_without_filter},
            {.name = "plain", .server = flags.server}};
  }
  if (comparison.of == Of::kChecksums) {
    return {{.name = kWithoutChecksums, .server = flags.server_without_checksums},
            {.name = "plain", .server = flags.server}};
  }
  return {{.name = "plain", .server = flags.server},
          {.name = "replicas: 1", .server = flags.server, .replicas = 1},
          {.name = "durability: LOG", .server = flags.server, .durability = v1::LOG}};
}

std::vector<double> GoalsOf(const Comparison& comparison) {
  if (comparison.of == Of::kFilter) return {0, 0.97};
  if (comparison.of == Of::kChecksums) return {0, 0.92};
  return {0, 0.45, 0.5};
}

std::vector<Comparison> Comparisons() {
  const Layout small{.name = "64 KiB of fp32", .elements = 16 << 10};
  const Layout large{.name = "16 MiB of fp32", .elements = 4 << 20};
  const Layout tensors{.name = "64 tensors of 1 MiB of fp32", .tensors = 64, .elements = 1 << 18};
  // Under BSP it is the slots that make pushes idempotent; the filter has no part in it.
  return {{.name = "filter-small", .layout = small, .of = Of::kFilter},
          {.name = "filter-large", .layout = large, .of = Of::kFilter},
          {.name = "checksums-small", .layout = small, .of = Of::kChecksums},
          {.name = "checksums-large", .layout = large, .of = Of::kChecksums},
          {.name = "large-asp", .layout = large},
          {.name = "large-bsp", .layout = large, .mode = Mode::kBsp},
          {.name = "tensors-asp", .layout = tensors},
          {.name = "tensors-bsp", .layout = tensors, .mode = Mode::kBsp}};
}

// The contender whose turn it is, with this process's end of its connections as the server's.
Contender& TurnOf(const std::unique_ptr<Contender>& contender) {
  without_checksums = contender->config().name == kWithoutChecksums;
  return *contender;
}

// Starts and warms up a contender for each configuration, the last one first if `backwards`.
absl::StatusOr<Contenders> StartAll(const std::vector<Config>& configs, const std::string& folder,
                                    const Comparison& comparison, bool backwards) {
  auto gradient = std::make_shared<worker::TableArrays>();
  std::vector<float>& values =
      gradient->emplace_back(static_cast<size_t>(comparison.layout.count()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = ToUnitFloat(PhiloxWord(1, i)) - 0.5f;
  Contenders contenders(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) {
    const size_t which = backwards ? configs.size() - 1 - i : i;
    contenders[which] =
        std::make_unique<Contender>(configs[which], comparison.layout, comparison.mode);
    Contender& contender = TurnOf(contenders[which]);
    CAPSTAN_RETURN_IF_ERROR(contender.Start(absl::StrCat(folder, "/", which), gradient));
    CAPSTAN_RETURN_IF_ERROR(contender.Run(kWarmUpIterations));
  }
  return contenders;
}

// How many iterations take the first contender so long; all do the same number.
absl::StatusOr<int> IterationsIn(double seconds, const Contenders& contenders) {
  const absl::Time begin = absl::Now();
  CAPSTAN_RETURN_IF_ERROR(TurnOf(contenders[0]).Run(kTrialIterations));
  const double took = absl::ToDoubleSeconds(absl::Now() - begin) / kTrialIterations;
  for (size_t i = 1; i < contenders.size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(TurnOf(contenders[i]).Run(kTrialIterations));
  }
  return std::max(1, static_cast<int>(seconds / took));
}

// Measures every contender in every round.
absl::Status MeasureAll(const Contenders& contenders, int rounds, int iterations,
                        const std::function<absl::Status()>& after_round,
                        std::vector<Result>* results) {
  const auto turn = [&](size_t who) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const Contender::Speed speed,
                             TurnOf(contenders[who]).Measure(iterations));
    (*results)[who].rates.push_back(speed.rate);
    (*results)[who].processor.push_back(speed.processor);
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(TakeTurns(contenders.size(), rounds, turn, after_round));
  return CheckSame(contenders);
}

// Returns whether all goals were met.
bool Print(const Comparison& comparison, const std::vector<Result>& results,
           const std::vector<double>& disk, const std::string& folder) {
  std::printf("%s, %s, 1 worker; medians of %d rounds, in turn\n", comparison.layout.name.c_str(),
              comparison.mode == Mode::kAsp ? "ASP" : "BSP",
              static_cast<int>(results[0].rates.size()));
  std::printf("%-28s%9s%9s%9s%13s%9s\n", "push + pull, MiB/s", "median", "min", "max", "processor",
              "ratio");
  bool met = true;
  const std::vector<double> goals = GoalsOf(comparison);
  for (size_t i = 0; i < results.size(); ++i) {
    PrintRow(results[i].name, results[i].rates);
    std::printf("%13.2f", Median(results[i].processor));
    if (i > 0) met &= PrintRatio(results[i], results[0], goals[i]);
    std::printf("\n");
  }
  if (!disk.empty()) {
    PrintRow("the disk alone, MiB/s", disk);
    std::printf("  write + fdatasync of what is pushed (%s)\n", FileSystemOf(folder).c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
  return met;
}

// Returns whether all goals were met.
absl::StatusOr<bool> Compare(const Flags& flags, const std::string& folder,
                             const Comparison& comparison) {
  const std::vector<Config> configs = ConfigsOf(flags, comparison);
  const int starts = comparison.is_small() ? kSmallStarts : 1;
  const double seconds = flags.seconds * (comparison.is_small() ? kSmallSecondsFactor : 1);
  std::vector<Result> results;
  for (const Config& config : configs) results.push_back({.name = config.name});
  std::vector<double> disk;
  for (int start = 0; start < starts; ++start) {
    const std::string home = absl::StrCat(folder, "/", comparison.name);
    CAPSTAN_ASSIGN_OR_RETURN(const Contenders contenders,
                             StartAll(configs, home, comparison, start % 2 == 1));
    CAPSTAN_ASSIGN_OR_RETURN(const int iterations, IterationsIn(seconds, contenders));
    const auto measure_disk = [&]() -> absl::Status {
      if (comparison.is_small()) return absl::OkStatus();
      CAPSTAN_ASSIGN_OR_RETURN(const double rate, DiskRate(home, comparison.layout, iterations));
      disk.push_back(rate);
      return absl::OkStatus();
    };
    CAPSTAN_RETURN_IF_ERROR(
        MeasureAll(contenders, flags.rounds, iterations, measure_disk, &results));
    std::filesystem::remove_all(home);
  }
  return Print(comparison, results, disk, folder);
}

// Returns whether all goals were met.
absl::StatusOr<bool> CompareAll(const Flags& flags) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::Make(flags.folder, "push-pull-cost"));
  bool met = true;
  for (const Comparison& comparison : Comparisons()) {
    if (!flags.only.empty() && flags.only != comparison.name) continue;
    CAPSTAN_ASSIGN_OR_RETURN(const bool all, Compare(flags, folder->path(), comparison));
    met &= all;
  }
  std::printf("processor: seconds of all processes together for each GiB of push + pull\n");
  return met;
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.folder = ScratchFolder::Home();
  Program program("Measures what exactly-once, replicas and the log cost in push-pull throughput.");
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program
      .AddOption("--server-without-filter", flags.server_without_filter,
                 "The same without its duplicate filter")
      .Required();
  program
      .AddOption("--server-without-checksums", flags.server_without_checksums,
                 "The same without checksums of frames")
      .Required();
  program.AddOption("--rounds", flags.rounds, "Rounds, at least 5").Between(5, 1000);
  program.AddOption("--seconds", flags.seconds, "Of one turn").BetweenReals(0.05, 60.0);
  program.AddOption("--folder", flags.folder, "On the disk that the logs are written to");
  program.AddOption("--only", flags.only,
                    "filter-small, filter-large, checksums-small, checksums-large, large-asp, "
                    "large-bsp, tensors-asp or tensors-bsp");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  const absl::StatusOr<bool> met = CompareAll(flags);
  if (met.ok()) return *met ? 0 : 1;
  std::fprintf(stderr, "%s\n", met.status().ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace benchmark
}  // namespace capstan

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
