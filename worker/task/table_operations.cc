#include "worker/task/table_operations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/sparse/key_batch.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/finite_values.h"

namespace capstan::worker {
namespace {

TableKeys KeysOf(absl::Span<const int64_t> keys, const v1::TableSpec& table,
                 std::vector<uint32_t>* places) {
  const std::vector<uint64_t> bits(keys.begin(), keys.end());
  return {.batch = std::make_shared<const KeyBatch>(
              MakeKeyBatch(bits, table.sparse().buckets(), places)),
          .dim = table.sparse().dim()};
}

absl::Status RunIsOver() { return absl::CancelledError("the run of the program is over"); }

}  // namespace

TableOperations::TableOperations(PushPullClient* client, std::vector<v1::TableSpec> tables,
                                 Progress progress)
    : client_(client),
      tables_(std::move(tables)),
      progress_(std::move(progress)),
      pushes_(tables_.size()) {}

std::string TableOperations::NameOf(int table) const {
  return absl::StrCat("\"", tables_[static_cast<size_t>(table)].name(), "\"");
}

// ---------------------------------------------------------------- starting

absl::StatusOr<const v1::TableSpec*> TableOperations::CheckTable(int table, const Keys& keys,
                                                                 size_t values) const {
  if (table < 0 || table >= static_cast<int>(tables_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, ", expected 0 to ", tables_.size() - 1));
  }
  const v1::TableSpec& spec = tables_[static_cast<size_t>(table)];
  if (spec.has_sparse() != keys.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(table), spec.has_sparse() ? " has rows: keys are expected"
                                                      : " has no rows: no keys are expected"));
  }
  if (!keys.has_value()) {
    if (values == static_cast<size_t>(spec.elements())) return &spec;
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(table), " has ", spec.elements(), " elements, and got ", values));
  }
  const auto dim = static_cast<size_t>(spec.sparse().dim());
  if (keys->size() > kBatchKeysMax || values != keys->size() * dim) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(table), " got ", values, " values for ",
                                                   keys->size(), " keys, expected ", dim,
                                                   " a key, and at most ", kBatchKeysMax, " keys"));
  }
  return &spec;
}

absl::StatusOr<int64_t> TableOperations::Push(int table, Keys keys,
                                              absl::Span<const float> values) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::TableSpec* const spec, CheckTable(table, keys, values.size()));
  if (!AllFinite(values)) {
    const auto* const wrong =
        std::find_if(values.begin(), values.end(), [](float value) { return !(value * 0 == 0); });
    return absl::OutOfRangeError(absl::StrCat("what is pushed to ", NameOf(table), " has ", *wrong,
                                              " at ", wrong - values.begin()));
  }
  Operation operation{.table = table, .push = true};
  if (!keys.has_value()) {
    operation.released = std::make_shared<absl::Notification>();
    std::shared_ptr<const void> owner(
        values.data(), [released = operation.released](const void*) { released->Notify(); });
    return Start(std::move(operation), [&](Iteration iteration) {
      return client_->PushTable(TableId(table), iteration, values, std::move(owner));
    });
  }
  std::vector<uint32_t> places;
  TableKeys named = KeysOf(*keys, *spec, &places);
  auto sums = std::make_shared<const std::vector<float>>(
      SumByKey(values, places, named.batch->size(), named.dim));
  if (!AllFinite(*sums)) {
    return absl::OutOfRangeError(
        absl::StrCat("what is pushed to ", NameOf(table), " for one key adds up to infinity"));
  }
  return Start(std::move(operation), [&](Iteration iteration) {
    return client_->PushTable(TableId(table), iteration, *sums, sums, std::move(named));
  });
}

absl::StatusOr<int64_t> TableOperations::Pull(int table, Keys keys, absl::Span<float> values) {
  CAPSTAN_ASSIGN_OR_RETURN(const v1::TableSpec* const spec, CheckTable(table, keys, values.size()));
  Operation operation{.table = table, .values = values};
  if (!keys.has_value()) {
    return Start(std::move(operation), [&](Iteration iteration) {
      return client_->PullTable(TableId(table), iteration, values);
    });
  }
  TableKeys named = KeysOf(*keys, *spec, &operation.places);
  const auto rows =
      std::make_shared<std::vector<float>>(static_cast<size_t>(named.batch->size() * named.dim));
  operation.rows = rows;
  return Start(std::move(operation), [&](Iteration iteration) {
    return client_->PullTable(TableId(table), iteration, absl::MakeSpan(*rows), std::move(named));
  });
}

absl::Status TableOperations::Begin(int table, bool push, Iteration* iteration) {
  const auto may_start = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return state_ != State::kPaused;
  };
  absl::MutexLock lock(&mutex_);
  // The scheduler bounds how long a job stands still.
  mutex_.Await(absl::Condition(&may_start));
  if (state_ != State::kOpen) return RunIsOver();
  if (operations_.size() + static_cast<size_t>(starting_) >= size_t{kOperationsMax}) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kOperationsMax, " operations have not been waited for, which is the most"));
  }
  ++starting_;
  int64_t& pushes = pushes_[static_cast<size_t>(table)];
  *iteration = Iteration(pushes);
  if (push) ++pushes;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TableOperations::Start(Operation operation, const StartOp& start) {
  Iteration iteration;
  CAPSTAN_RETURN_IF_ERROR(Begin(operation.table, operation.push, &iteration));
  const absl::StatusOr<OpId> op = start(iteration);
  absl::MutexLock lock(&mutex_);
  --starting_;
  if (state_ != State::kOpen) client_->Interrupt();  // The task's thread waits for this.
  if (!op.ok()) return Annotate(op.status(), NameOf(operation.table));
  operation.op = *op;
  operations_.emplace(++last_, std::move(operation));
  return last_;
}

// ---------------------------------------------------------------- waiting

TableOperations::Waited TableOperations::Wait(int64_t number, absl::Duration patience) {
  const Instant deadline = clock_.Now() + patience;
  Operation* const operation = Await(number);
  if (operation == nullptr) {
    return {.ended = true,
            .status = absl::NotFoundError(absl::StrCat(
                "operation ", number, " was never started, or another call waits for it")),
            .text = ""};
  }
  const std::string text = AwaitResult(*operation, deadline);
  const bool lent = operation->released != nullptr;
  if (text.empty() && lent) {
    const absl::Duration left = std::max(deadline - clock_.Now(), absl::ZeroDuration());
    operation->released->WaitForNotificationWithTimeout(left);
  }
  if (text.empty() && operation->result->ok()) CopyRows(*operation);
  absl::MutexLock lock(&mutex_);
  if (text.empty() && (!lent || operation->released->HasBeenNotified())) {
    const Waited waited{.ended = true,
                        .status = Annotate(*operation->result, NameOf(operation->table)),
                        .text = ""};
    operations_.erase(number);
    return waited;
  }
  operation->awaited = false;
  return {.ended = false,
          .status = absl::OkStatus(),
          .text = absl::StrCat(NameOf(operation->table), ": ",
                               text.empty() ? "its values are still being sent" : text)};
}

TableOperations::Operation* TableOperations::Await(int64_t number) {
  absl::MutexLock lock(&mutex_);
  const auto found = operations_.find(number);
  if (found == operations_.end() || found->second.awaited) return nullptr;
  found->second.awaited = true;
  return &found->second;
}

std::string TableOperations::AwaitResult(Operation& operation, Instant deadline) {
  {
    absl::MutexLock lock(&mutex_);
    if (operation.result.has_value()) return "";
    if (state_ == State::kClosed) return AwaitEnd(operation, deadline);
    ++waiting_;
  }
  const auto result = client_->WaitUntil(operation.op, deadline);
  const std::string text = result.has_value() ? "" : client_->TextOf(operation.op);
  if (result.has_value() && progress_ != nullptr) progress_("operations", 1);
  absl::MutexLock lock(&mutex_);
  --waiting_;
  if (result.has_value()) {
    operation.result = result->status();
    return "";
  }
  if (state_ == State::kClosed) return AwaitEnd(operation, deadline);
  return text.empty() ? "it has ended just now" : text;
}

std::string TableOperations::AwaitEnd(const Operation& operation, Instant deadline) {
  const auto has_result = [&operation] { return operation.result.has_value(); };
  const absl::Duration left = std::max(deadline - clock_.Now(), absl::ZeroDuration());
  const bool written = mutex_.AwaitWithTimeout(absl::Condition(&has_result), left);
  return written ? "" : "the run of the program ends";
}

void TableOperations::CopyRows(const Operation& operation) const {
  if (operation.rows == nullptr) return;
  const auto dim =
      static_cast<size_t>(tables_[static_cast<size_t>(operation.table)].sparse().dim());
  float* to = operation.values.data();
  for (const uint32_t place : operation.places) {
    to = std::copy_n(operation.rows->data() + place * dim, dim, to);
  }
}

// ---------------------------------------------------------------- the task's thread

void TableOperations::Open() {
  client_->EndWaits(false);
  absl::MutexLock lock(&mutex_);
  state_ = State::kOpen;
}

void TableOperations::SetPaused(bool paused) {
  absl::MutexLock lock(&mutex_);
  state_ = paused ? State::kPaused : State::kOpen;
}

void TableOperations::Close() {
  absl::MutexLock lock(&mutex_);
  state_ = State::kDraining;
}

bool TableOperations::IsIdle() const {
  absl::MutexLock lock(&mutex_);
  return starting_ == 0 && client_->IsIdle();
}

void TableOperations::AwaitIdle() {
  using Attend = PushPullClient::Attend;
  bool starting = false;
  {
    absl::MutexLock lock(&mutex_);
    starting = starting_ > 0;
  }
  // Start interrupts the client once the operation has begun. Whether the client is idle is not
  // asked here: its last operation may end between the question and the wait.
  client_->AttendOperations(starting ? Attend::kUntilInterrupted : Attend::kUntilIdle);
}

absl::Status TableOperations::Drain() {
  absl::Status first;
  absl::MutexLock lock(&mutex_);
  for (auto& [number, operation] : operations_) {
    if (operation.awaited || operation.result.has_value()) continue;
    const auto result = client_->WaitUntil(operation.op, clock_.Now());
    operation.result = result.has_value() ? result->status() : RunIsOver();
    first.Update(Annotate(*operation.result, NameOf(operation.table)));
  }
  return first;
}

void TableOperations::End() {
  const auto unused = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return starting_ == 0 && waiting_ == 0;
  };
  absl::MutexLock lock(&mutex_);
  state_ = State::kClosed;
  client_->EndWaits(true);
  mutex_.Await(absl::Condition(&unused));
  for (auto& [number, operation] : operations_) {
    if (operation.result.has_value()) continue;
    if (!operation.push) client_->CancelPull(operation.op);
    operation.result = RunIsOver();
  }
}

}  // namespace capstan::worker
