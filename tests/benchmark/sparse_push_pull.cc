// Push and pull of rows by key, with the update on the server, against ZeroMQ with a server that
// adds into a std::unordered_map (the transport and handler of ps-lite).
//
//   sparse_push_pull --server=server/capstan-server --baseline=.../baseline_server
//       [--keys=10000000] [--only-dim=16] [--json]
//
// 1 worker and 1 server; a batch names 100,000 or 1,000,000 keys out of --keys, drawn evenly or by
// Zipf's law (1.05): pushes a row for each and pulls them all. Both get the batch as it was drawn;
// ours names each key once and adds its gradients up before it sends them. Bytes are those of
// gradients and values of the batch as drawn, so that ratios are those of keys a second.
// Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/command_line/command.h"
#include "common/examples/zipf.h"
#include "common/process/keep_memory.h"
#include "common/process/lock_order.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "tests/benchmark/baseline/peer_process.h"
#include "tests/benchmark/baseline/zmq_rows.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/push_pull_contestant.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/scratch_folder.h"
#include "tests/benchmark/sparse_contender.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kBatches = 4;  // Batches that take turns.
constexpr int64_t kFillKeys = 500'000;
constexpr double kZipfExponent = 1.05;

struct Flags {
  ReportFlags report;
  std::string server;
  std::string baseline;
  int64_t keys = 10'000'000;
  int64_t only_dim = 0;
};

using Keys = std::vector<uint64_t>;

struct Workload {
  int64_t dim = 1;
  std::vector<Keys> batches;     // All of one size, with repetitions.
  std::vector<float> gradients;  // Gradients of every batch: ones.
  int64_t size() const { return static_cast<int64_t>(batches[0].size()); }
};

// The key of rank i: spread over all 64 bits.
uint64_t KeyAt(uint64_t i) { return MixKey(7, i); }

Workload Draw(int64_t dim, int64_t size, bool zipf, int64_t keys) {
  Workload workload{.dim = dim};
  const Zipf law(static_cast<uint64_t>(keys), zipf ? kZipfExponent : 0.0);
  uint64_t word = 0;
  for (int64_t b = 0; b < kBatches; ++b) {
    Keys batch;
    for (int64_t i = 0; i < size; ++i) {
      batch.push_back(KeyAt(
          law.Draw([&word] { return static_cast<double>(MixKey(9, ++word) >> 11) * 0x1p-53; })));
    }
    workload.batches.push_back(std::move(batch));
  }
  workload.gradients.assign(static_cast<size_t>(size * dim), 1.0f);
  return workload;
}

// A contestant that pushes and pulls batches in turn.
class Rows {
 public:
  virtual ~Rows() = default;
  virtual absl::Status PushPull(const Keys& keys, const std::vector<float>& gradients) = 0;
  // The first float of the row of keys[i], as it was pulled last.
  virtual float Pulled(size_t i) const = 0;
  virtual double Processor() const = 0;

  virtual absl::Status SetWorkload(const Workload* workload) {
    workload_ = workload;
    return absl::OkStatus();
  }
  absl::Status Run(int64_t iterations) {
    for (int64_t i = 0; i < iterations; ++i, ++next_) {
      const auto at = static_cast<size_t>(next_ % kBatches);
      CAPSTAN_RETURN_IF_ERROR(PushPull(workload_->batches[at], workload_->gradients));
    }
    return absl::OkStatus();
  }
  // Every key once, so that all rows are there.
  absl::Status Fill(int64_t keys, int64_t dim) {
    const std::vector<float> zeros(static_cast<size_t>(kFillKeys * dim));
    for (int64_t begin = 1; begin <= keys; begin += kFillKeys) {
      Keys part;
      for (int64_t i = begin; i < begin + kFillKeys; ++i) part.push_back(KeyAt(i));
      CAPSTAN_RETURN_IF_ERROR(PushPull(part, zeros));
    }
    return absl::OkStatus();
  }

 private:
  const Workload* workload_ = nullptr;
  int64_t next_ = 0;
};

class ZmqRows final : public Rows {
 public:
  static absl::StatusOr<std::unique_ptr<Rows>> Start(const Flags& flags, int64_t dim,
                                                     const std::string& folder) {
    auto rows = std::make_unique<ZmqRows>();
    rows->dim_ = dim;
    CAPSTAN_ASSIGN_OR_RETURN(rows->server_, PeerProcess::Start(flags.baseline, "zmq-rows", folder));
    CAPSTAN_ASSIGN_OR_RETURN(rows->worker_, ZmqRowsWorker::Connect(rows->server_->port()));
    return rows;
  }
  absl::Status PushPull(const Keys& keys, const std::vector<float>& gradients) override {
    values_.resize(gradients.size());
    return worker_->PushPull(keys, dim_, gradients, absl::MakeSpan(values_));
  }
  float Pulled(size_t i) const override { return values_[i * static_cast<size_t>(dim_)]; }
  double Processor() const override { return ProcessorSeconds() + server_->ProcessorSeconds(); }

 private:
  int64_t dim_ = 1;
  std::unique_ptr<PeerProcess> server_;
  std::unique_ptr<ZmqRowsWorker> worker_;
  std::vector<float> values_;
};

class OurRows final : public Rows {
 public:
  static absl::StatusOr<std::unique_ptr<Rows>> Start(const Flags& flags, int64_t dim, bool shared,
                                                     const std::string& folder) {
    auto rows = std::make_unique<OurRows>();
    CAPSTAN_ASSIGN_OR_RETURN(
        rows->contender_,
        SparseContender::Start(
            {.server = flags.server, .folder = folder, .dim = dim, .shared_memory = shared}));
    return rows;
  }
  absl::Status SetWorkload(const Workload* workload) override {
    CAPSTAN_RETURN_IF_ERROR(Rows::SetWorkload(workload));
    return contender_->ExpectKeys(workload->size());
  }
  absl::Status PushPull(const Keys& keys, const std::vector<float>& gradients) override {
    return contender_->PushPull(keys, gradients);
  }
  float Pulled(size_t i) const override { return contender_->Sum(i, 0); }
  double Processor() const override { return contender_->Processor(); }

 private:
  std::unique_ptr<SparseContender> contender_;
};

// A batch of new keys, twice each, three times over: every row must then be 6.
absl::Status CheckSums(Rows& rows, int64_t dim) {
  Keys keys;
  for (uint64_t i = 0; i < 1000; ++i) keys.insert(keys.end(), 2, MixKey(11, i));
  const std::vector<float> ones(keys.size() * static_cast<size_t>(dim), 1.0f);
  for (int i = 0; i < 3; ++i) CAPSTAN_RETURN_IF_ERROR(rows.PushPull(keys, ones));
  for (size_t i = 0; i < keys.size(); ++i) {
    if (rows.Pulled(i) == 6.0f) continue;
    return absl::InternalError(absl::StrCat("a row is ", rows.Pulled(i), " after 6 pushes of 1"));
  }
  return absl::OkStatus();
}

absl::Status CompareDim(const Flags& flags, int64_t dim, const std::string& folder,
                        Report* report) {
  std::vector<std::unique_ptr<Rows>> all;
  std::vector<const char*> names = {"Capstan", "Capstan over TCP", "ZeroMQ, unordered_map"};
  for (const bool shared : {true, false}) {
    CAPSTAN_ASSIGN_OR_RETURN(auto ours,
                             OurRows::Start(flags, dim, shared, absl::StrCat(folder, "/", shared)));
    all.push_back(std::move(ours));
  }
  CAPSTAN_ASSIGN_OR_RETURN(auto theirs, ZmqRows::Start(flags, dim, folder));
  all.push_back(std::move(theirs));
  for (const auto& rows : all) {
    CAPSTAN_RETURN_IF_ERROR(CheckSums(*rows, dim));
    CAPSTAN_RETURN_IF_ERROR(rows->Fill(flags.keys, dim));
  }
  const double goal = dim == 1 ? 1.5 : 3.0;
  for (const int64_t size : {100'000, 1'000'000}) {
    for (const bool zipf : {false, true}) {
      const Workload workload = Draw(dim, size, zipf, flags.keys);
      const double bytes = 2.0 * static_cast<double>(size * dim) * sizeof(float);
      std::vector<Contestant> contestants;
      for (size_t i = 0; i < all.size(); ++i) {
        CAPSTAN_RETURN_IF_ERROR(all[i]->SetWorkload(&workload));
        contestants.push_back(PushPullContestant(names[i], *all[i], bytes));
      }
      Comparison comparison{.measure = absl::StrCat(size, " keys of ", dim, " floats, ",
                                                    zipf ? "Zipf 1.05" : "uniform"),
                            .goals = {0, 0, goal}};
      CAPSTAN_ASSIGN_OR_RETURN(comparison.series, MeasureInTurn(contestants, flags.report.turns));
      report->Add(comparison);
    }
  }
  return absl::OkStatus();
}

absl::Status MeasureAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto folder,
                           ScratchFolder::Make(ScratchFolder::Home(), "sparse-push-pull"));
  for (const int64_t dim : {1, 16}) {
    if (flags.only_dim != 0 && flags.only_dim != dim) continue;
    CAPSTAN_RETURN_IF_ERROR(
        CompareDim(flags, dim, absl::StrCat(folder->path(), "/dim", dim), report));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures push and pull of rows by key.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--server", flags.server, "capstan-server").Required();
  program.AddOption("--baseline", flags.baseline, "baseline_server").Required();
  program.AddOption("--keys", flags.keys, "In the table; a multiple of 500,000")
      .Between(kFillKeys, int64_t{1} << 30);
  program.AddOption("--only-dim", flags.only_dim, "1 or 16 floats a row alone");
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
