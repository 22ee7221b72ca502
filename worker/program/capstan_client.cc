#include "worker/program/capstan_client.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/tables.h"
#include "worker/program/client_codes.h"
#include "worker/program/program_task.h"
#include "worker/task/table_operations.h"

namespace {

using capstan::worker::CheckArrays;
using capstan::worker::CheckSeconds;
using capstan::worker::ProgramTask;
using capstan::worker::ProgramWork;
using capstan::worker::TableOperations;
using capstan::worker::Tell;
using capstan::worker::Wrong;

constexpr double kPatienceMax = 3600.0;  // Seconds.

// A second task of the process would number its pushes from 1 again, as the same incarnation: the
// servers would take them for repetitions.
std::atomic<bool> process_has_started = false;

capstan_code CodeOf(const absl::Status& status, char* error) {
  if (status.ok()) return CAPSTAN_OK;
  Tell(status.message(), error);
  if (absl::IsCancelled(status)) return CAPSTAN_ENDED;
  return absl::IsOutOfRange(status) ? CAPSTAN_DIVERGED : CAPSTAN_WRONG;
}

// The code of an operation that has ended.
capstan_code CodeOfEnd(const absl::Status& status, char* error) {
  if (status.ok()) return CAPSTAN_OK;
  Tell(status.message(), error);
  if (absl::IsCancelled(status) || absl::IsAborted(status)) return CAPSTAN_ENDED;
  return absl::IsNotFound(status) ? CAPSTAN_WRONG : CAPSTAN_FAILED;
}

TableOperations::Keys KeysOf(const int64_t* keys, int64_t count) {
  if (keys == nullptr) return std::nullopt;
  return absl::MakeConstSpan(keys, static_cast<size_t>(count));
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::unique_ptr<ProgramTask>> StartOfEnvironment() {
  ProgramTask::Options options;
  options.spec = Variable("CAPSTAN_TASK_SPEC");
  options.scheduler = Variable("CAPSTAN_SCHEDULER");
  options.tls_dir = Variable("CAPSTAN_TLS_DIR");
  if (const std::string format = Variable("CAPSTAN_LOG_FORMAT"); !format.empty()) {
    options.log_format = format;
  }
  if (options.spec.empty() || options.scheduler.empty()) {
    return absl::InvalidArgumentError(
        "CAPSTAN_TASK_SPEC and CAPSTAN_SCHEDULER are not set: a job has to start this program");
  }
  return ProgramTask::Start(options);
}

// Whether the caller's structure has all fields of this version.
bool KnowsAll(const capstan_work& work, char* error) {
  if (work.size >= sizeof(capstan_work)) return true;
  Tell(absl::StrCat("capstan_work.size is ", work.size, ", expected at least ",
                    sizeof(capstan_work)),
       error);
  return false;
}

capstan_work_kind KindOf(ProgramWork::Kind kind) {
  switch (kind) {
    case ProgramWork::Kind::kTrain:
      return CAPSTAN_COMPUTE;
    case ProgramWork::Kind::kNameKeys:
      return CAPSTAN_NAME_KEYS;
    case ProgramWork::Kind::kEvaluate:
      return CAPSTAN_EVALUATE;
    case ProgramWork::Kind::kNameTestKeys:
      return CAPSTAN_NAME_TEST_KEYS;
    case ProgramWork::Kind::kRun:
      break;
  }
  return CAPSTAN_RUN;
}

void Describe(const ProgramWork& found, capstan_work* work) {
  *work = {.size = work->size,
           .epoch = found.epoch,
           .iteration = found.iteration,
           .slot = found.slot,
           .seed = found.seed,
           .samples = found.samples.data(),
           .sample_count = static_cast<int64_t>(found.samples.size()),
           .kind = KindOf(found.kind)};
}

// -1, which no table has, for numbers that are too large.
int TableIndex(int64_t table) {
  return table == static_cast<int>(table) ? static_cast<int>(table) : -1;
}

const capstan::v1::TableSpec* TableOf(const capstan_task* task, int64_t table) {
  const auto& tables = task->task->computation().tables();
  if (table < 0 || table >= static_cast<int64_t>(tables.size())) return nullptr;
  return &tables[static_cast<size_t>(table)];
}

// Whether there is such a table, and its arrays can have `count` entries. `are_null`: one of the
// arrays is NULL.
bool IsOfTable(const capstan_task* task, int64_t table, int64_t count, bool are_null,
               const char* what, char* error) {
  if (count >= 0 && (!are_null || count == 0) && TableOf(task, table) != nullptr) return true;
  Tell(absl::StrCat("table ", table, " and ", count, " ", what, are_null ? " of NULL" : "",
                    ", expected 0 to ", capstan_task_table_count(task) - 1,
                    " and at least 0, and no NULL but for 0 ", what),
       error);
  return false;
}

// Starts a push or a pull by `start`, and writes its number to *operation.
template <typename StartOperation, typename Value>
capstan_code Start(capstan_task* task, StartOperation start, int64_t table, const int64_t* keys,
                   int64_t key_count, Value* values, int64_t count, int64_t* operation,
                   char* error) {
  const capstan_code code = CheckArrays(keys, key_count, values, count, error);
  if (code != CAPSTAN_OK) return code;
  const auto tables = task->task->computation().Tables();
  if (!tables.ok()) return CodeOf(tables.status(), error);
  const absl::Span<Value> all(values, static_cast<size_t>(count));
  const absl::StatusOr<int64_t> number =
      (tables->get()->*start)(TableIndex(table), KeysOf(keys, key_count), all);
  if (number.ok()) *operation = *number;
  return CodeOf(number.status(), error);
}

}  // namespace

capstan_task* capstan_task_start(char* error) {
  if (process_has_started.exchange(true)) {
    Tell("this process has started its task already", error);
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<ProgramTask>> started = StartOfEnvironment();
  if (started.ok()) return new capstan_task{*std::move(started)};
  process_has_started = false;
  Tell(started.status().message(), error);
  return nullptr;
}

const char* capstan_task_job(const capstan_task* task) {
  return task->task->assignment().job_id().c_str();
}

int64_t capstan_task_rank(const capstan_task* task) { return task->task->assignment().rank(); }

int64_t capstan_task_workers(const capstan_task* task) {
  return task->task->assignment().spec().resources().workers();
}

int64_t capstan_task_table_count(const capstan_task* task) {
  return static_cast<int64_t>(task->task->computation().tables().size());
}

int64_t capstan_task_elements(const capstan_task* task, int64_t table) {
  const capstan::v1::TableSpec* const spec = TableOf(task, table);
  if (spec == nullptr) return -1;
  if (!spec->has_sparse()) return spec->elements();
  const auto rows = task->task->computation().Parameters(static_cast<int>(table));
  return rows.ok() ? static_cast<int64_t>(rows->size()) : -1;
}

capstan_code capstan_task_table(const capstan_task* task, int64_t index, capstan_table* table,
                                char* error) {
  const capstan::v1::TableSpec* const spec = TableOf(task, index);
  if (spec == nullptr) {
    return Wrong(absl::StrCat("there is no table ", index), error);
  }
  const bool averages = spec->rule() == capstan::v1::MOVING_AVERAGE;
  *table = {.name = spec->name().c_str(),
            .kind = spec->has_sparse() ? CAPSTAN_ROWS
                    : averages         ? CAPSTAN_AVERAGES
                                       : CAPSTAN_PARAMETERS,
            .dim = spec->sparse().dim()};
  return CAPSTAN_OK;
}

int64_t capstan_task_tensor_count(const capstan_task* task, int64_t table) {
  const capstan::v1::TableSpec* const spec = TableOf(task, table);
  return spec == nullptr ? -1 : spec->tensors_size();
}

capstan_code capstan_task_tensor(const capstan_task* task, int64_t table, int64_t index,
                                 capstan_tensor* tensor, char* error) {
  const capstan::v1::TableSpec* const spec = TableOf(task, table);
  if (spec == nullptr || index < 0 || index >= spec->tensors_size()) {
    return Wrong(absl::StrCat("there is no tensor ", index, " in a table ", table), error);
  }
  const capstan::v1::TensorSpec& found = spec->tensors(static_cast<int>(index));
  *tensor = {.name = found.name().c_str(),
             .shape = found.shape().data(),
             .dimensions = found.shape_size(),
             .first = found.offset(),
             .count = capstan::ElementCount(found)};
  return CAPSTAN_OK;
}

capstan_code capstan_task_next(capstan_task* task, double seconds, capstan_work* work,
                               char* error) {
  if (!KnowsAll(*work, error)) return CAPSTAN_WRONG;
  if (CheckSeconds(seconds, error) != CAPSTAN_OK) return CAPSTAN_WRONG;
  const absl::StatusOr<std::optional<ProgramWork>> next =
      task->task->computation().Next(absl::Seconds(std::min(seconds, kPatienceMax)));
  if (absl::IsOutOfRange(next.status())) return CAPSTAN_ENDED;
  if (!next.ok()) return CodeOf(next.status(), error);
  if (!next->has_value()) return CAPSTAN_TIMEOUT;
  Describe(**next, work);
  return CAPSTAN_OK;
}

int64_t capstan_task_upcoming_count(const capstan_task* task) {
  return static_cast<int64_t>(task->task->computation().Upcoming().size());
}

capstan_code capstan_task_upcoming(const capstan_task* task, int64_t index, capstan_work* work,
                                   char* error) {
  if (!KnowsAll(*work, error)) return CAPSTAN_WRONG;
  const absl::Span<const ProgramWork> upcoming = task->task->computation().Upcoming();
  if (index < 0 || index >= static_cast<int64_t>(upcoming.size())) {
    return Wrong(absl::StrCat("upcoming work ", index, ", expected 0 to below ", upcoming.size()),
                 error);
  }
  Describe(upcoming[static_cast<size_t>(index)], work);
  return CAPSTAN_OK;
}

capstan_code capstan_task_name_keys(capstan_task* task, int64_t table, const int64_t* keys,
                                    int64_t count, int64_t* places, char* error) {
  const bool are_null = keys == nullptr || places == nullptr;
  if (!IsOfTable(task, table, count, are_null, "keys", error)) return CAPSTAN_WRONG;
  const auto size = static_cast<size_t>(count);
  return CodeOf(
      task->task->computation().NameKeys(static_cast<int>(table), {keys, size}, {places, size}),
      error);
}

const float* capstan_task_parameters(capstan_task* task, int64_t table) {
  const auto values = task->task->computation().Parameters(TableIndex(table));
  return values.ok() ? values->data() : nullptr;
}

capstan_code capstan_task_put_gradient(capstan_task* task, int64_t table, int64_t first,
                                       const float* values, int64_t count, char* error) {
  if (!IsOfTable(task, table, count, values == nullptr, "elements", error)) return CAPSTAN_WRONG;
  return CodeOf(task->task->computation().PutGradient(static_cast<int>(table), first,
                                                      {values, static_cast<size_t>(count)}),
                error);
}

capstan_code capstan_task_release(capstan_task* task, int64_t first, char* error) {
  return CodeOf(task->task->computation().Release(first), error);
}

capstan_code capstan_task_finish(capstan_task* task, double loss_sum, int64_t correct,
                                 char* error) {
  return CodeOf(task->task->computation().Finish(loss_sum, correct), error);
}

capstan_code capstan_task_push(capstan_task* task, int64_t table, const int64_t* keys,
                               int64_t key_count, const float* values, int64_t count,
                               int64_t* operation, char* error) {
  return Start(task, &TableOperations::Push, table, keys, key_count, values, count, operation,
               error);
}

capstan_code capstan_task_pull(capstan_task* task, int64_t table, const int64_t* keys,
                               int64_t key_count, float* values, int64_t count, int64_t* operation,
                               char* error) {
  return Start(task, &TableOperations::Pull, table, keys, key_count, values, count, operation,
               error);
}

capstan_code capstan_task_wait(capstan_task* task, int64_t operation, double seconds, char* error) {
  if (CheckSeconds(seconds, error) != CAPSTAN_OK) return CAPSTAN_WRONG;
  const auto tables = task->task->computation().TablesToWait();
  if (!tables.ok()) return CodeOf(tables.status(), error);
  const TableOperations::Waited waited =
      (*tables)->Wait(operation, absl::Seconds(std::min(seconds, kPatienceMax)));
  if (waited.ended) return CodeOfEnd(waited.status, error);
  Tell(waited.text, error);
  return CAPSTAN_TIMEOUT;
}

void capstan_task_fail(capstan_task* task, const char* message) {
  task->task->computation().Fail(absl::InvalidArgumentError(message));
}

int capstan_task_close(capstan_task* task) {
  const std::unique_ptr<capstan_task> owned(task);
  return owned->task->Leave();
}
