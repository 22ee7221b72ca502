// Small operations: 4,096 rows of 64 floats in flight against ZeroMQ, and the time of a lone pull
// of 1 KiB while another client pushes at full speed.
//
//   small_rows --server=server/capstan-server --baseline=.../baseline_server
//
// Ours are rows of a sparse table, over TCP: a message carries many. ZeroMQ sends one a message.
// Operations a second are GB/s by 512 bytes: a push and a pull of a row.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/command_line/command.h"
#include "common/net/data/data_caller.h"
#include "common/net/frame/data_socket.h"
#include "common/net/frame/frame.h"
#include "common/net/grpc/channel.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/net/socket/host_port.h"
#include "common/net/socket/socket_stream.h"
#include "common/net/socket/wake_up.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/status/status_macros.h"
#include "common/time/clock.h"
#include "common/wire/tensor_message.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/benchmark/baseline/zmq_fleet.h"
#include "tests/benchmark/contender.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/push_pull_contestant.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/sparse_contender.h"
#include "tests/benchmark/statistics.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr double kRowsGoal = 1.5;
constexpr double kPullGoalMs = 5;
constexpr int kWarmUpPulls = 100;
constexpr absl::Duration kPatience = absl::Seconds(20);

struct Flags {
  ReportFlags report;
  std::string server;
  std::string baseline;
  int pulls = 2000;
};

std::shared_ptr<const worker::TableArrays> GradientOf(const Layout& layout) {
  return std::make_shared<const worker::TableArrays>(
      worker::TableArrays{std::vector<float>(static_cast<size_t>(layout.count()), 1.0f)});
}

// All rows, by key.
class OurRows {
 public:
  OurRows(std::unique_ptr<SparseContender> contender, int64_t rows,
          const std::vector<float>& values)
      : contender_(std::move(contender)), gradients_(values) {
    for (int64_t i = 0; i < rows; ++i) keys_.push_back(static_cast<uint64_t>(i));
  }
  absl::Status Run(int iterations) {
    for (int i = 0; i < iterations; ++i) {
      CAPSTAN_RETURN_IF_ERROR(contender_->PushPull(keys_, gradients_));
      ++pushes_;
    }
    return absl::OkStatus();
  }
  double Processor() const { return contender_->Processor(); }
  absl::Status CheckSums() const {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (contender_->Sum(i, 0) == static_cast<float>(pushes_)) continue;
      return absl::InternalError(absl::StrCat("row ", i, " is ", contender_->Sum(i, 0), " after ",
                                              pushes_, " pushes of 1"));
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<SparseContender> contender_;
  const std::vector<float>& gradients_;
  std::vector<uint64_t> keys_;
  int64_t pushes_ = 0;
};

absl::Status CompareRows(const Flags& flags, const std::string& folder, Report* report) {
  constexpr int kRows = 4096;
  constexpr int64_t kDim = 64;
  const std::vector<float> gradient(kRows * kDim, 1.0f);
  CAPSTAN_ASSIGN_OR_RETURN(
      auto contender,
      SparseContender::Start({.server = flags.server, .folder = folder + "/rows", .dim = kDim}));
  CAPSTAN_RETURN_IF_ERROR(contender->ExpectKeys(kRows));
  OurRows ours(std::move(contender), kRows, gradient);
  ZmqFleet theirs(1, 1, kRows, gradient);
  CAPSTAN_RETURN_IF_ERROR(theirs.Start(flags.baseline, folder));
  const double bytes = 2.0 * kRows * kDim * sizeof(float);
  Comparison comparison{.measure = "4,096 rows of 64 floats", .goals = {0, kRowsGoal}};
  CAPSTAN_ASSIGN_OR_RETURN(comparison.series,
                           MeasureInTurn({PushPullContestant("Capstan", ours, bytes),
                                          PushPullContestant("ZeroMQ", theirs, bytes)},
                                         flags.report.turns));
  report->Add(comparison);
  CAPSTAN_RETURN_IF_ERROR(theirs.CheckSums());
  return ours.CheckSums();
}

// Pulls one small shard, again and again, as a client that has nothing to do with the other one:
// over a data connection of its own.
class LonePuller {
 public:
  static absl::StatusOr<std::unique_ptr<LonePuller>> Connect(const std::string& server) {
    const auto stub = v1::ParameterServer::NewStub(MakeChannel(server, ChannelKind::kControl));
    grpc::ClientContext context;
    SetDeadline(context, kPatience);
    v1::OpenDataConnectionsResponse told;
    CAPSTAN_RETURN_IF_ERROR(FromGrpcStatus(stub->OpenDataConnections(&context, {}, &told)));
    CAPSTAN_ASSIGN_OR_RETURN(HostPort place, ParseHostPort(server));
    place.port = told.port();
    WakeUp never;
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<SocketStream> stream,
                             ConnectForData(place, told.token(), kPatience, never.descriptor()));
    return std::unique_ptr<LonePuller>(new LonePuller(std::move(stream)));
  }
  ~LonePuller() {
    caller_.Close();
    thread_.join();
  }

  // Returns the seconds that it took.
  absl::StatusOr<double> Pull() {
    absl::Notification there;
    absl::StatusOr<absl::Cord> answer;
    const double begin = WallSeconds();
    caller_.Start({.method = DataMethod::kPull,
                   .bytes = absl::Cord(request_.SerializeAsString()),
                   .timeout = kPatience},
                  [&](absl::StatusOr<absl::Cord> bytes) {
                    answer = std::move(bytes);
                    there.Notify();
                  });
    if (!there.WaitForNotificationWithTimeout(2 * kPatience)) {
      return absl::UnavailableError("the data connection is lost");
    }
    const double seconds = WallSeconds() - begin;
    CAPSTAN_RETURN_IF_ERROR(answer.status());
    CAPSTAN_ASSIGN_OR_RETURN(const PullAnswer parsed, DecodePullAnswer(*answer));
    if (parsed.values.size() == 1 && parsed.values[0].size() == 1024) return seconds;
    return absl::InternalError("the pull did not bring 1 KiB");
  }

 private:
  explicit LonePuller(std::unique_ptr<SocketStream> stream)
      : caller_(std::move(stream), &clock_), thread_([this] { caller_.Run().IgnoreError(); }) {
    request_.mutable_caller()->set_job_id(kContenderJob);
    request_.mutable_caller()->set_rank(-1);
    request_.mutable_caller()->set_routing_generation(1);
    request_.set_snapshot(true);
    request_.add_shards()->set_held_version(-1);
  }

  const SteadyClock clock_;
  v1::PullRequest request_;
  DataCaller caller_;
  std::thread thread_;
};

absl::StatusOr<std::vector<double>> PullAlone(const v1::ServerAddress& server, int count) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto puller, LonePuller::Connect(server.address()));
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUpPulls + count; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const double took, puller->Pull());
    if (i >= kWarmUpPulls) seconds.push_back(took);
  }
  return seconds;
}

absl::Status MeasureLonePull(const Flags& flags, bool shared_memory, const std::string& folder,
                             Report* report) {
  // The first shard is the small one: 256 floats; the others are 4 MiB.
  const Layout layout{.name = "a small tensor and 16 of 4 MiB",
                      .tensors = 16,
                      .elements = 1 << 20,
                      .first_elements = 256};
  Contender pusher({.name = "Capstan",
                    .server = flags.server,
                    .rule = Rule::kSgd,
                    .tensor_shards = true,
                    .shared_memory = shared_memory},
                   layout, Mode::kAsp);
  CAPSTAN_RETURN_IF_ERROR(pusher.Start(folder, GradientOf(layout)));
  std::atomic<bool> stop = false;
  absl::Status pushed;
  std::thread pushing([&] {
    while (!stop && pushed.ok()) pushed = pusher.Push();
  });
  const auto seconds = PullAlone(pusher.server(0).address(), flags.pulls);
  stop = true;
  pushing.join();
  CAPSTAN_RETURN_IF_ERROR(pushed);
  CAPSTAN_RETURN_IF_ERROR(seconds.status());
  const std::string how = shared_memory ? "shared memory" : "TCP";
  report->Add(Bound{.measure = absl::StrCat("lone pull of 1 KiB beside pushes over ", how, ", p99"),
                    .unit = "ms",
                    .value = Percentile(*seconds, 0.99) * 1e3,
                    .goal = kPullGoalMs});
  return absl::OkStatus();
}

absl::Status MeasureAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "small-rows"));
  CAPSTAN_RETURN_IF_ERROR(CompareRows(flags, folder->path(), report));
  for (const bool shared_memory : {false, true}) {
    CAPSTAN_RETURN_IF_ERROR(MeasureLonePull(
        flags, shared_memory, folder->path() + (shared_memory ? "/shared" : "/tcp"), report));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures many small rows, and a small pull beside large pushes.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program.AddOption("--baseline", flags.baseline, "baseline_server").Required();
  program.AddOption("--pulls", flags.pulls, "Lone pulls").Between(100, 1'000'000);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(MeasureAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) {
  capstan::KeepFreedMemory();
  capstan::SkipLockOrderChecks();
  return capstan::benchmark::Main(argc, argv);
}
