// How fast the rows of a sparse table are found, made and updated in memory, against maps that are
// asked for one key at a time: Abseil's flat_hash_map and std::unordered_map, a vector a row.
//
//   sparse_table [--rows=10000000] [--dim=16] [--one-by-one] [--json]
//
// Every table has the same keys; batches of 4,096 of them, drawn at random, are found and copied
// out, updated by Adagrad, or updated while one key of eight is new. Bytes are those of the weights
// that are read, or of weights, state and gradients of an update, so that ratios are those of keys
// a second. Tables too large to stand in memory together are measured one after the other:
// --one-by-one. Exit codes: 0 all goals are reached, 1 one is not, 2 something failed.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/command_line/command.h"
#include "common/model/initial_rows.h"
#include "common/random/philox.h"
#include "common/status/status_macros.h"
#include "server/store/sparse/sparse_rows.h"
#include "tests/benchmark/processor_time.h"
#include "tests/benchmark/report.h"
#include "tests/benchmark/turns.h"

namespace capstan::benchmark {
namespace {

constexpr int64_t kBatch = 4096;
constexpr int64_t kNewEvery = 8;
constexpr float kRate = 0.01f;
constexpr float kEpsilon = 1e-10f;
constexpr double kAbslGoal = 2;
constexpr double kStdGoal = 5;
constexpr double kBytesGoal = 1.3;

struct Flags {
  ReportFlags report;
  int64_t rows = 10'000'000;
  int64_t dim = 16;
  bool one_by_one = false;
};

using Keys = std::vector<uint64_t>;

uint64_t KeyAt(int64_t i) { return MixKey(1, static_cast<uint64_t>(i)); }

class Table {
 public:
  virtual ~Table() = default;
  virtual void Read(const Keys& keys, float* out) const = 0;
  // One step of Adagrad; makes rows that are not there, with weights of 0.
  virtual absl::Status Update(const Keys& keys, const std::vector<float>& gradients) = 0;
  virtual void Reserve(int64_t rows) = 0;
  virtual double BytesPerRow() const { return 0; }  // 0: unknown.
};

class Ours final : public Table {
 public:
  static absl::StatusOr<std::unique_ptr<Ours>> Make(int64_t dim) {
    const RowInitializer zeros({}, 1, TableId(0), dim);
    CAPSTAN_ASSIGN_OR_RETURN(
        server::SparseRows rows,
        server::SparseRows::Make({.dim = dim,
                                  .buckets = 1,
                                  .rule = {.kind = server::OptimizerKind::kAdagrad,
                                           .learning_rate = kRate,
                                           .epsilon = kEpsilon},
                                  .initializer = zeros}));
    return std::unique_ptr<Ours>(new Ours(std::move(rows)));
  }
  void Read(const Keys& keys, float* out) const override {
    rows_.Read(keys, out).IgnoreError();  // There is no disk.
  }
  absl::Status Update(const Keys& keys, const std::vector<float>& gradients) override {
    return rows_.Update(0, keys, WireValues(gradients));
  }
  void Reserve(int64_t) override {}  // It grows without a pause.
  double BytesPerRow() const override {
    return static_cast<double>(rows_.bytes()) / static_cast<double>(rows_.rows());
  }

 private:
  explicit Ours(server::SparseRows rows) : rows_(std::move(rows)) {}
  server::SparseRows rows_;
};

// `Map`: of a key to a vector with weights and, behind them, state.
template <typename Map>
class MapTable final : public Table {
 public:
  explicit MapTable(int64_t dim) : dim_(static_cast<size_t>(dim)) {}

  void Read(const Keys& keys, float* out) const override {
    for (const uint64_t key : keys) {
      const auto it = map_.find(key);
      if (it != map_.end()) std::copy_n(it->second.data(), dim_, out);
      out += dim_;
    }
  }
  absl::Status Update(const Keys& keys, const std::vector<float>& gradients) override {
    const float* g = gradients.data();
    for (const uint64_t key : keys) {
      std::vector<float>& row = map_[key];
      if (row.empty()) row.resize(2 * dim_);
      float* const w = row.data();
      float* const s = w + dim_;
      for (size_t i = 0; i < dim_; ++i) {
        s[i] += g[i] * g[i];
        w[i] -= kRate * g[i] / (std::sqrt(s[i]) + kEpsilon);
      }
      g += dim_;
    }
    return absl::OkStatus();
  }
  void Reserve(int64_t rows) override { map_.reserve(static_cast<size_t>(rows)); }

 private:
  const size_t dim_;
  Map map_;
};

using AbslTable = MapTable<absl::flat_hash_map<uint64_t, std::vector<float>>>;
using StdTable = MapTable<std::unordered_map<uint64_t, std::vector<float>>>;

// A table under test with the keys that it has and that it is asked for.
class Course {
 public:
  Course(std::string name, std::unique_ptr<Table> table, const Flags& flags)
      : name_(std::move(name)),
        table_(std::move(table)),
        dim_(flags.dim),
        rows_(flags.rows),
        keys_(kBatch),
        values_(static_cast<size_t>(kBatch * dim_)),
        gradients_(values_.size(), 0.01f) {}

  absl::Status Fill() {
    table_->Reserve(rows_);
    for (int64_t next = 0; next < rows_;) {
      keys_.clear();
      for (; next < rows_ && keys_.size() < kBatch; ++next) keys_.push_back(KeyAt(next));
      CAPSTAN_RETURN_IF_ERROR(table_->Update(keys_, gradients_));
    }
    return absl::OkStatus();
  }
  const Table& table() const { return *table_; }

  Contestant Find() {
    return Operations(4.0, 0,
                      [this] { return table_->Read(keys_, values_.data()), absl::OkStatus(); });
  }
  Contestant Update() {
    return Operations(12.0 + 8.0, 0, [this] { return table_->Update(keys_, gradients_); });
  }
  Contestant FindOrCreate() {
    return Operations(12.0 + 8.0, kNewEvery, [this] { return table_->Update(keys_, gradients_); });
  }

 private:
  // An operation is a batch, its keys different with all but certainty; every so many keys a new
  // one.
  Contestant Operations(double bytes, int64_t new_every, std::function<absl::Status()> work) {
    return {.name = name_, .run = [=, this](int64_t count) -> absl::StatusOr<Turn> {
              OperationTimer timer(ProcessorSeconds);
              for (int64_t i = 0; i < count; ++i) {
                keys_.resize(kBatch);
                for (int64_t k = 0; k < kBatch; ++k) {
                  const bool is_new = new_every > 0 && k % new_every == 0;
                  const uint64_t draw = MixKey(2, ++draws_) % static_cast<uint64_t>(rows_);
                  keys_[static_cast<size_t>(k)] =
                      KeyAt(is_new ? rows_ + created_++ : static_cast<int64_t>(draw));
                }
                timer.Begin();
                CAPSTAN_RETURN_IF_ERROR(work());
                timer.End(bytes * static_cast<double>(kBatch * dim_));
              }
              return timer.Take();
            }};
  }

  const std::string name_;
  const std::unique_ptr<Table> table_;
  const int64_t dim_;
  const int64_t rows_;
  uint64_t draws_ = 0;
  int64_t created_ = 0;
  Keys keys_;
  std::vector<float> values_;
  const std::vector<float> gradients_;
};

struct Measure {
  const char* name;
  Contestant (Course::*contestant)();
};
constexpr Measure kMeasures[] = {{"find", &Course::Find},
                                 {"Adagrad update", &Course::Update},
                                 {"find or create, Adagrad update", &Course::FindOrCreate}};

struct Entry {
  const char* name;
  std::function<absl::StatusOr<std::unique_ptr<Table>>()> make;
  double goal;  // Our speed divided by its.
};

std::vector<Entry> Entries(int64_t dim) {
  return {{"Capstan", [dim] { return Ours::Make(dim); }, 0},
          {"absl::flat_hash_map", [dim] { return std::make_unique<AbslTable>(dim); }, kAbslGoal},
          {"std::unordered_map", [dim] { return std::make_unique<StdTable>(dim); }, kStdGoal}};
}

absl::StatusOr<std::unique_ptr<Course>> MakeCourse(const Entry& entry, const Flags& flags) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, entry.make());
  auto course = std::make_unique<Course>(entry.name, std::move(table), flags);
  CAPSTAN_RETURN_IF_ERROR(course->Fill());
  return course;
}

void AddBytesPerRow(const Table& table, const Flags& flags, Report* report) {
  const double needed = sizeof(uint64_t) + 2.0 * static_cast<double>(flags.dim) * sizeof(float);
  report->Add(Bound{.measure = "bytes a row, of key, weights and state",
                    .unit = "times",
                    .value = table.BytesPerRow() / needed,
                    .goal = kBytesGoal});
}

// One list of series for each measure.
using Results = std::vector<std::vector<Series>>;

absl::Status MeasureTogether(const std::vector<std::unique_ptr<Course>>& courses,
                             const TurnOptions& turns, Results* results) {
  for (size_t i = 0; i < std::size(kMeasures); ++i) {
    std::vector<Contestant> contestants;
    for (const auto& course : courses) {
      contestants.push_back((course.get()->*kMeasures[i].contestant)());
    }
    CAPSTAN_ASSIGN_OR_RETURN(std::vector<Series> series, MeasureInTurn(contestants, turns));
    for (Series& one : series) (*results)[i].push_back(std::move(one));
  }
  return absl::OkStatus();
}

absl::StatusOr<Results> MeasureTables(const Flags& flags, Report* report) {
  Results results(std::size(kMeasures));
  std::vector<std::unique_ptr<Course>> courses;
  for (const Entry& entry : Entries(flags.dim)) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Course> course, MakeCourse(entry, flags));
    if (entry.goal == 0) AddBytesPerRow(course->table(), flags, report);
    courses.push_back(std::move(course));
    if (!flags.one_by_one) continue;
    CAPSTAN_RETURN_IF_ERROR(MeasureTogether(courses, flags.report.turns, &results));
    courses.clear();
  }
  CAPSTAN_RETURN_IF_ERROR(MeasureTogether(courses, flags.report.turns, &results));
  return results;
}

absl::Status MeasureAll(const Flags& flags, Report* report) {
  CAPSTAN_ASSIGN_OR_RETURN(Results results, MeasureTables(flags, report));
  std::vector<double> goals;
  for (const Entry& entry : Entries(flags.dim)) goals.push_back(entry.goal);
  for (size_t i = 0; i < std::size(kMeasures); ++i) {
    report->Add({.measure = absl::StrCat("sparse table, ", flags.rows, " rows of ", flags.dim,
                                         " floats, ", kMeasures[i].name),
                 .series = std::move(results[i]),
                 .goals = goals});
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  Program program("Measures the rows of a sparse table against maps.");
  AddReportFlags(program, &flags.report);
  program.AddOption("--rows", flags.rows, "Of each table").Between(10'000, int64_t{1} << 31);
  program.AddOption("--dim", flags.dim, "Floats a row").Between(1, 1024);
  program.AddFlag("--one-by-one", flags.one_by_one, "One table in memory at a time");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  Report report(flags.report.json);
  return report.Finish(MeasureAll(flags, &report));
}

}  // namespace
}  // namespace capstan::benchmark

int main(int argc, char** argv) { return capstan::benchmark::Main(argc, argv); }
