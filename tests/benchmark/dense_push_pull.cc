// Dense push + pull: 64 tensors of 1 MiB with the add on the server, against ZeroMQ.
//
//   dense_push_pull --server=server/capstan-server --baseline=tests/benchmark/baseline_server
//
// An operation is an iteration: every worker pushes a gradient of all tensors and pulls all values
// after it. Ours runs as ASP with SGD; ZeroMQ's server adds into its table. Servers are processes
// of their own on loopback, workers are threads of this one; contestants take turns. GB/s count
// numbers as fp32, also those that travel as bf16.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/at_once.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/peer_process.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/turns.h"
#include "tests/benchmark/zmq_table.h"

namespace capstan::benchmark {
namespace {

constexpr double kGoal = 1.0;
constexpr double kHalfGoal = 1.8;  // bf16 on the wire.

struct Flags {
  ReportFlags report;
  std::string server;
  std::string baseline;
};

const Layout& Tensors() {
  static const Layout layout{
      .name = "64 tensors of 1 MiB", .tensors = 64, .elements = (1 << 20) / sizeof(float)};
  return layout;
}

// Small whole numbers, whose sums are exact.
std::vector<float> Gradient() {
  std::vector<float> gradient(static_cast<size_t>(Tensors().count()));
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 7) - 3.0f;
  return gradient;
}

// ZeroMQ's servers and workers.
class ZmqFleet {
 public:
  ZmqFleet(int workers, int servers, const std::vector<float>& gradient)
      : worker_count_(workers), server_count_(servers), gradient_(gradient) {}

  absl::Status Start(const std::string& program, const std::string& folder) {
    std::vector<int> ports;
    for (int i = 0; i < server_count_; ++i) {
      CAPSTAN_ASSIGN_OR_RETURN(auto server, PeerProcess::Start(program, "zmq", folder));
      ports.push_back(server->port());
      servers_.push_back(std::move(server));
    }
    for (int i = 0; i < worker_count_; ++i) {
      CAPSTAN_ASSIGN_OR_RETURN(auto zmq, ZmqWorker::Connect(ports));
      workers_.push_back({std::move(zmq), std::vector<float>(gradient_.size())});
    }
    return absl::OkStatus();
  }

  // An iteration of every worker, all at once.
  absl::Status Run(int iterations) {
    CAPSTAN_RETURN_IF_ERROR(
        RunAtOnce(workers_.size(), [&](size_t i) { return RunWorker(workers_[i], iterations); }));
    pushes_ += iterations * worker_count_;
    return absl::OkStatus();
  }

  double Processor() const {
    double seconds = ProcessorSeconds();
    for (const auto& server : servers_) seconds += server->ProcessorSeconds();
    return seconds;
  }

  // Pushes once more; then the table must hold the exact sum of all pushes.
  absl::Status CheckSums() {
    CAPSTAN_RETURN_IF_ERROR(RunWorker(workers_[0], 1));
    const auto times = static_cast<float>(++pushes_);
    for (size_t i = 0; i < gradient_.size(); ++i) {
      if (workers_[0].values[i] == times * gradient_[i]) continue;
      return absl::InternalError(absl::StrCat("ZeroMQ: element ", i, " is ", workers_[0].values[i],
                                              ", expected ", times * gradient_[i]));
    }
    return absl::OkStatus();
  }

 private:
  struct Worker {
    std::unique_ptr<ZmqWorker> zmq;
    std::vector<float> values;
  };

  absl::Status RunWorker(Worker& one, int iterations) const {
    for (int i = 0; i < iterations; ++i) {
      CAPSTAN_RETURN_IF_ERROR(
          one.zmq->PushPull(Tensors().tensors, gradient_, absl::MakeSpan(one.values)));
    }
    return absl::OkStatus();
  }

  const int worker_count_, server_count_;
  const std::vector<float>& gradient_;
  std::vector<std::unique_ptr<PeerProcess>> servers_;
  std::vector<Worker> workers_;
  int64_t pushes_ = 0;
};

template <typename Fleet>
Contestant ContestantOf(const std::string& name, Fleet& fleet, int workers) {
  const double bytes = 2.0 * workers * static_cast<double>(Tensors().count()) * sizeof(float);
  return {.name = name, .run = [&fleet, bytes](int64_t count) -> absl::StatusOr<Turn> {
            OperationTimer timer([&fleet] { return fleet.Processor(); });
            for (int64_t i = 0; i < count; ++i) {
              timer.Begin();
              CAPSTAN_RETURN_IF_ERROR(fleet.Run(1));
              timer.End(bytes);
            }
            return timer.Take();
          }};
}

// As many servers as workers.
absl::Status CompareSize(const Flags& flags, int workers, NumberFormat format,
                         const std::string& folder,
                         const std::shared_ptr<const worker::TableArrays>& gradient,
                         Report* report) {
  const bool half = format != NumberFormat::kFp32;
  Contender ours({.name = "Capstan",
                  .server = flags.server,
                  .servers = workers,
                  .workers = workers,
                  .rule = Rule::kSgd,
                  .format = format},
                 Tensors(), Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(
      ours.Start(absl::StrCat(folder, "/", workers, half ? "-bf16" : ""), gradient));
  ZmqFleet theirs(workers, workers, (*gradient)[0]);
  CAPSTAN_RETURN_IF_ERROR(theirs.Start(flags.baseline, folder));
  Comparison comparison{
      .measure = absl::StrCat("dense push + pull", half ? " as bf16, " : ", ", workers,
                              workers == 1 ? " worker" : " workers", " and ", workers,
                              workers == 1 ? " server" : " servers"),
      .goals = {0, half ? kHalfGoal : kGoal}};
  CAPSTAN_ASSIGN_OR_RETURN(comparison.series,
                           MeasureInTurn({ContestantOf("Capstan", ours, workers),
                                          ContestantOf("ZeroMQ", theirs, workers)},
                                         flags.report.turns));
  report->Add(comparison);
  CAPSTAN_RETURN_IF_ERROR(theirs.CheckSums());
  return ours.CheckRecorded();
}

absl::Status CompareAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "dense-push-pull"));
  const auto gradient =
      std::make_shared<const worker::TableArrays>(worker::TableArrays{Gradient()});
  for (const NumberFormat format : {NumberFormat::kFp32, NumberFormat::kBf16}) {
    for (const int workers : {1, 2}) {
      CAPSTAN_RETURN_IF_ERROR(
          CompareSize(flags, workers, format, folder->path(), gradient, report));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measures dense push + pull against a ZeroMQ server that adds into a table.");
  AddReportFlags(app, &flags.report);
  app.add_option("--server", flags.server, "capstan-server")->required();
  app.add_option("--baseline", flags.baseline, "baseline_server")->required();
  CLI11_PARSE(app, argc, argv);
  Report report(flags.report.json);
  return report.Finish(CompareAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
