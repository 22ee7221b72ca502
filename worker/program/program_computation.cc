#include "worker/program/program_computation.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/spec/program_tables.h"
#include "common/model/tables.h"
#include "common/random/philox.h"
#include "common/sparse/key_batch.h"
#include "common/status/status_macros.h"
#include "common/types/finite_values.h"

namespace capstan::worker {
namespace {

constexpr uint64_t kBatchStream = 4;
constexpr uint64_t kTestBatchStream = 5;

bool HasSamples(const Work& work) {
  const bool has = work.kind == Work::Kind::kTrain || work.kind == Work::Kind::kEvaluate;
  return has && !work.positions.empty();
}

bool HaveSameSamples(const Work& a, const Work& b) {
  return a.kind == b.kind && a.epoch == b.epoch && a.positions == b.positions;
}

bool NamesKeys(ProgramWork::Kind kind) {
  return kind == ProgramWork::Kind::kNameKeys || kind == ProgramWork::Kind::kNameTestKeys;
}

}  // namespace

ProgramComputation::ProgramComputation(const v1::JobSpec& job)
    : seed_(SeedOf(job.training())),
      tables_(ProgramTables(job.program())),
      has_rows_(HasRows(job)),
      order_(SeedOf(job.training()), job.program().samples()) {}

// ---------------------------------------------------------------- the program's thread

absl::StatusOr<std::optional<ProgramWork>> ProgramComputation::Next(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  if (offer_.has_value() && offer_->taken) {
    return absl::FailedPreconditionError("the last work is not finished");
  }
  const auto known = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ended_ || offer_.has_value();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&known), patience)) return std::nullopt;
  if (ended_) return absl::OutOfRangeError("the task has ended");
  offer_->taken = true;
  return offer_->batch.work;
}

absl::Span<const ProgramWork> ProgramComputation::Upcoming() const {
  absl::MutexLock lock(&mutex_);
  if (!CheckTaken().ok()) return {};
  return offer_->upcoming_works;
}

absl::Status ProgramComputation::CheckTaken() const {
  if (offer_.has_value() && offer_->taken) return absl::OkStatus();
  return absl::FailedPreconditionError("there is no work: Next has to come first");
}

absl::Status ProgramComputation::CheckRuns() const {
  CAPSTAN_RETURN_IF_ERROR(CheckTaken());
  if (offer_->batch.work.kind == ProgramWork::Kind::kRun) return absl::OkStatus();
  return absl::FailedPreconditionError("the work is a batch, and no run at the program's own pace");
}

absl::Status ProgramComputation::CheckIsBatch() const {
  CAPSTAN_RETURN_IF_ERROR(CheckTaken());
  if (offer_->batch.work.kind != ProgramWork::Kind::kRun) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the program runs at its own pace: it pushes and pulls its tables");
}

absl::Status ProgramComputation::CheckNamesKeys() const {
  CAPSTAN_RETURN_IF_ERROR(CheckIsBatch());
  if (NamesKeys(offer_->batch.work.kind)) return absl::OkStatus();
  return absl::FailedPreconditionError("the work does not ask for keys");
}

absl::Status ProgramComputation::CheckComputes() const {
  CAPSTAN_RETURN_IF_ERROR(CheckIsBatch());
  if (!NamesKeys(offer_->batch.work.kind)) return absl::OkStatus();
  return absl::FailedPreconditionError("the work asks for keys, which have to be named first");
}

absl::Status ProgramComputation::CheckTrains() const {
  CAPSTAN_RETURN_IF_ERROR(CheckComputes());
  if (offer_->batch.work.kind == ProgramWork::Kind::kTrain) return absl::OkStatus();
  return absl::FailedPreconditionError("the work is an evaluation, which has no gradient");
}

const v1::TableSpec* ProgramComputation::Find(int table) const {
  if (table < 0 || table >= static_cast<int>(tables_.size())) return nullptr;
  return &tables_[static_cast<size_t>(table)];
}

absl::Status ProgramComputation::NameKeys(int table, absl::Span<const int64_t> keys,
                                          absl::Span<int64_t> places) {
  const v1::TableSpec* const spec = Find(table);
  if (spec == nullptr || !spec->has_sparse() || keys.size() > kBatchKeysMax) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table, " and ", keys.size(),
                                                   " keys, expected a table of rows and at most ",
                                                   kBatchKeysMax));
  }
  std::vector<uint32_t> found;
  const std::vector<uint64_t> bits(keys.begin(), keys.end());
  KeyBatch batch = MakeKeyBatch(bits, spec->sparse().buckets(), &found);
  std::copy(found.begin(), found.end(), places.begin());
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(CheckNamesKeys());
  (*offer_->keys)[static_cast<size_t>(table)].batch =
      std::make_shared<const KeyBatch>(std::move(batch));
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> ProgramComputation::Parameters(int table) const {
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(CheckComputes());
  if (Find(table) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table, ", expected 0 to ", tables_.size() - 1));
  }
  return absl::MakeConstSpan((*offer_->parameters)[static_cast<size_t>(table)]);
}

std::string ProgramComputation::TensorAt(int table, int64_t element) const {
  const v1::TableSpec& spec = tables_[static_cast<size_t>(table)];
  for (const v1::TensorSpec& tensor : spec.tensors()) {
    if (element < tensor.offset() + ElementCount(tensor)) return tensor.name();
  }
  return spec.name();
}

absl::Status ProgramComputation::PutGradient(int table, int64_t first,
                                             absl::Span<const float> values) {
  float* to = nullptr;
  float scale = 1.0f;
  const Range elements = {first, first + static_cast<int64_t>(values.size())};
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(CheckTrains());
    const bool known = Find(table) != nullptr;
    const int64_t size =
        known ? static_cast<int64_t>((*offer_->gradient)[static_cast<size_t>(table)].size()) : 0;
    if (!known || first < 0 || first > size || elements.size() > size - first) {
      return absl::InvalidArgumentError(absl::StrCat("elements [", first, ", ", elements.end,
                                                     ") of table ", table, ", which has ", size));
    }
    to = (*offer_->gradient)[static_cast<size_t>(table)].data() + first;
    scale = offer_->scale;
    ++calls_inside_;
  }
  const bool finite = CopyScaled(values, scale, to);
  absl::MutexLock lock(&mutex_);
  --calls_inside_;
  if (finite) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(CheckTrains());  // The work may have failed meanwhile.
  Range& doubtful = offer_->doubtful.try_emplace(table, elements).first->second;
  doubtful = {std::min(doubtful.begin, elements.begin), std::max(doubtful.end, elements.end)};
  return CheckFinite(table, elements);
}

absl::Status ProgramComputation::CheckFinite(int table, const Range& elements) const {
  const std::vector<float>& gradient = (*offer_->gradient)[static_cast<size_t>(table)];
  for (int64_t i = elements.begin; i < elements.end; ++i) {
    const float value = gradient[static_cast<size_t>(i)];
    if (value * 0 == 0) continue;
    return absl::OutOfRangeError(
        absl::StrCat("the gradient of \"", TensorAt(table, i), "\" has ", value));
  }
  return absl::OkStatus();
}

absl::Status ProgramComputation::CheckResult(double loss_sum) const {
  if (!(loss_sum * 0 == 0)) return absl::OutOfRangeError(absl::StrCat("the loss is ", loss_sum));
  for (const auto& [table, elements] : offer_->doubtful) {
    CAPSTAN_RETURN_IF_ERROR(CheckFinite(table, elements));
  }
  return absl::OkStatus();
}

absl::Status ProgramComputation::Release(int64_t first) {
  const GradientPartReady* ready = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(CheckTrains());
    if (first < 0 || first > tables_[kParametersTable].elements()) {
      return absl::InvalidArgumentError(absl::StrCat("element ", first, ", expected 0 to ",
                                                     tables_[kParametersTable].elements()));
    }
    if (const auto found = offer_->doubtful.find(kParametersTable);
        found != offer_->doubtful.end()) {
      const Range& doubtful = found->second;
      CAPSTAN_RETURN_IF_ERROR(
          CheckFinite(kParametersTable, {std::max(first, doubtful.begin), doubtful.end}));
    }
    ready = offer_->ready;
    ++calls_inside_;
  }
  (*ready)(first);
  absl::MutexLock lock(&mutex_);
  --calls_inside_;
  return absl::OkStatus();
}

absl::Status ProgramComputation::Finish(double loss_sum, int64_t correct) {
  absl::MutexLock lock(&mutex_);
  const bool taken_away = tables_of_run_ != nullptr && !offer_.has_value() && !run_finished_;
  if (taken_away) return absl::CancelledError("the run was taken away");
  CAPSTAN_RETURN_IF_ERROR(CheckTaken());
  if (NamesKeys(offer_->batch.work.kind)) {
    offer_.reset();
    return absl::OkStatus();
  }
  if (CheckRuns().ok()) {
    FinishRun();
    return absl::OkStatus();
  }
  const auto samples = static_cast<int64_t>(offer_->batch.samples.size());
  if (correct < 0 || correct > samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("correct is ", correct, ", expected 0 to ", samples));
  }
  const absl::Status finite = CheckResult(loss_sum);
  failure_.Update(finite);
  result_ = WorkResult{.samples = samples, .loss_sum = loss_sum, .correct = correct};
  offer_.reset();
  return finite;
}

void ProgramComputation::Fail(absl::Status error) {
  absl::MutexLock lock(&mutex_);
  FailLocked(std::move(error));
}

void ProgramComputation::FailLocked(absl::Status error) {
  const bool idle = !offer_.has_value() || !offer_->awaited;
  if (failure_.ok() && idle) idle_failure_ = error;
  failure_.Update(std::move(error));
  if (offer_.has_value() && offer_->taken) failed_offer_ = std::move(offer_);
  offer_.reset();
  TellChanged();
}

void ProgramComputation::Leave() {
  absl::MutexLock lock(&mutex_);
  left_ = true;
  if (run_finished_) return;
  FailLocked(absl::InvalidArgumentError("the program has left before its job was done"));
}

absl::StatusOr<std::shared_ptr<TableOperations>> ProgramComputation::Tables() const {
  absl::MutexLock lock(&mutex_);
  if (ended_) return absl::CancelledError("the task has ended");
  if (CheckRuns().ok()) return tables_of_run_;
  return absl::FailedPreconditionError(
      "there is no run of a program at its own pace: Next has to give it first");
}

absl::StatusOr<std::shared_ptr<TableOperations>> ProgramComputation::TablesToWait() const {
  absl::MutexLock lock(&mutex_);
  if (tables_of_run_ != nullptr) return tables_of_run_;
  return absl::FailedPreconditionError("there was no run of a program at its own pace");
}

void ProgramComputation::FinishRun() {
  run_finished_ = true;
  result_ = WorkResult{.samples = 1};
  offer_.reset();
  TellChanged();
}

void ProgramComputation::TellChanged() {
  if (changed_ != nullptr) changed_();
}

absl::Status ProgramComputation::idle_failure() const {
  absl::MutexLock lock(&mutex_);
  return idle_failure_;
}

// ---------------------------------------------------------------- the task's thread

void ProgramComputation::End() {
  absl::MutexLock lock(&mutex_);
  ended_ = true;
}

void ProgramComputation::MakeRoom(const AllTableKeys& keys, TableArrays* arrays) const {
  arrays->resize(tables_.size());
  for (size_t i = 0; i < tables_.size(); ++i) {
    const bool sparse = tables_[i].has_sparse();
    const int64_t elements = sparse ? keys[i].batch->size() * keys[i].dim : tables_[i].elements();
    (*arrays)[i].resize(static_cast<size_t>(elements));
  }
}

AllTableKeys ProgramComputation::NoKeys() const {
  if (!has_rows_) return {};
  AllTableKeys keys(tables_.size());
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (!tables_[i].has_sparse()) continue;
    keys[i].batch =
        std::make_shared<const KeyBatch>(MakeKeyBatch({}, tables_[i].sparse().buckets()));
    keys[i].dim = tables_[i].sparse().dim();
  }
  return keys;
}

ProgramComputation::Offer ProgramComputation::QuestionOf(const Work& work) {
  Offer question = OfferOf(work);
  question.batch.work.kind = work.kind == Work::Kind::kTrain ? ProgramWork::Kind::kNameKeys
                                                             : ProgramWork::Kind::kNameTestKeys;
  question.keys = std::make_shared<AllTableKeys>(NoKeys());
  return question;
}

absl::StatusOr<AllTableKeys> ProgramComputation::KeysOf(const Work& work) {
  if (!has_rows_ || !HasSamples(work)) return NoKeys();
  absl::MutexLock lock(&mutex_);
  CAPSTAN_RETURN_IF_ERROR(AwaitNoOffer());
  const std::optional<KeysAhead> ahead = std::exchange(ahead_, std::nullopt);
  if (ahead.has_value() && HaveSameSamples(ahead->work, work)) return *ahead->keys;
  Offer question = QuestionOf(work);
  const std::shared_ptr<AllTableKeys> keys = question.keys;
  CAPSTAN_RETURN_IF_ERROR(Await(std::move(question)));
  return *keys;
}

void ProgramComputation::AskAhead() {
  if (!has_rows_ || ahead_.has_value()) return;
  const auto is_later = [this](const Work& work) {
    return HasSamples(work) && !HaveSameSamples(work, pulled_work_);
  };
  const auto next = std::find_if(planned_.begin(), planned_.end(), is_later);
  if (next == planned_.end()) return;
  Offer question = QuestionOf(*next);
  question.awaited = false;
  ahead_ = {.work = *next, .keys = question.keys};
  Post(std::move(question));
}

absl::StatusOr<AllTableKeys> ProgramComputation::BeginPull(const Work& work,
                                                           const std::vector<Work>& upcoming,
                                                           TableArrays* parameters) {
  planned_ = upcoming;
  pulled_work_ = work;
  CAPSTAN_ASSIGN_OR_RETURN(AllTableKeys keys, KeysOf(work));
  MakeRoom(keys, parameters);
  parameters_ = parameters;
  pulled_keys_ = keys;
  pulled_is_taken_ = false;
  return keys;
}

AllTableKeys ProgramComputation::BeginTraining(const Work&, TableArrays* parameters,
                                               GradientArrays* gradient) {
  // If they are taken already, this is the same work again.
  if (has_rows_ && !std::exchange(pulled_is_taken_, true)) {
    training_keys_ = pulled_keys_;
    training_parameters_.resize(tables_.size());
    for (size_t i = 0; i < tables_.size(); ++i) {
      // The next pull may come before Train. A dense table is copied, because servers send it again
      // only if it has changed.
      if (tables_[i].has_sparse()) {
        training_parameters_[i].swap((*parameters)[i]);
      } else {
        training_parameters_[i] = (*parameters)[i];
      }
    }
  }
  MakeRoom(training_keys_, &gradient->floats);
  for (std::vector<float>& table : gradient->floats) std::fill(table.begin(), table.end(), 0.0f);
  return training_keys_;
}

bool ProgramComputation::Forward(const Work&, const std::vector<Work>& upcoming, const TableArrays&,
                                 const ParametersNeeded&) {
  planned_ = upcoming;
  return true;
}

ProgramComputation::Batch ProgramComputation::BatchOf(const Work& work) {
  Batch batch;
  const bool trains = work.kind == Work::Kind::kTrain;
  if (trains) {
    const std::shared_ptr<const EpochOrder::Permutation> order = order_.Get(work.epoch.value());
    batch.samples.assign(order->begin() + work.positions.begin,
                         order->begin() + work.positions.end);
  } else {
    batch.samples.resize(static_cast<size_t>(work.positions.size()));
    std::iota(batch.samples.begin(), batch.samples.end(), work.positions.begin);
  }
  batch.work.kind = trains ? ProgramWork::Kind::kTrain : ProgramWork::Kind::kEvaluate;
  batch.work.epoch = work.epoch.value();
  batch.work.iteration = work.iteration.value();
  if (work.slots.size() > 0) batch.work.slot = static_cast<int>(work.slots.begin);
  const uint64_t epoch_key = MixKey(MixKey(seed_, trains ? kBatchStream : kTestBatchStream),
                                    static_cast<uint64_t>(work.epoch.value()));
  batch.work.seed = MixKey(epoch_key, static_cast<uint64_t>(work.positions.begin));
  return batch;
}

ProgramComputation::Offer ProgramComputation::OfferOf(const Work& work) {
  Offer offer;
  offer.batch = BatchOf(work);
  offer.scale = static_cast<float>(static_cast<double>(work.positions.size()) /
                                   static_cast<double>(work.gradient_samples));
  for (const Work& later : planned_) {
    if (later != work && !later.positions.empty()) offer.upcoming.push_back(BatchOf(later));
  }
  return offer;
}

void ProgramComputation::Post(Offer offer) {
  offer_ = std::move(offer);
  offer_->batch.work.samples = offer_->batch.samples;
  for (Batch& later : offer_->upcoming) {
    later.work.samples = later.samples;
    offer_->upcoming_works.push_back(later.work);
  }
}

absl::Status ProgramComputation::AwaitNoOffer() {
  if (offer_.has_value()) offer_->awaited = true;
  const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !offer_.has_value() && calls_inside_ == 0;
  };
  // The program's own time; the scheduler's watch over tasks bounds it.
  mutex_.Await(absl::Condition(&over));
  return failure_;
}

absl::Status ProgramComputation::Await(Offer offer) {
  CAPSTAN_RETURN_IF_ERROR(AwaitNoOffer());  // A question may be under way.
  Post(std::move(offer));
  return AwaitNoOffer();
}

absl::StatusOr<WorkResult> ProgramComputation::Compute(Offer offer) {
  absl::MutexLock lock(&mutex_);
  result_.reset();
  CAPSTAN_RETURN_IF_ERROR(Await(std::move(offer)));
  AskAhead();
  return *result_;
}

absl::StatusOr<WorkResult> ProgramComputation::Train(const Work& work, GradientArrays* gradient,
                                                     const GradientPartReady& ready) {
  if (work.positions.empty()) {  // A slot beyond the data: all zeros.
    absl::MutexLock lock(&mutex_);
    CAPSTAN_RETURN_IF_ERROR(failure_);
    return WorkResult();
  }
  Offer offer = OfferOf(work);
  offer.parameters = has_rows_ ? &training_parameters_ : parameters_;
  offer.gradient = &gradient->floats;
  offer.ready = &ready;
  return Compute(std::move(offer));
}

absl::StatusOr<WorkResult> ProgramComputation::Evaluate(const Work& work,
                                                        const TableArrays& parameters) {
  Offer offer = OfferOf(work);
  offer.parameters = &parameters;
  return Compute(std::move(offer));
}

void ProgramComputation::BeginRun(const Work& work, std::shared_ptr<TableOperations> tables,
                                  std::function<void()> changed) {
  absl::MutexLock lock(&mutex_);
  result_.reset();
  offer_.emplace();
  offer_->batch.work.kind = ProgramWork::Kind::kRun;
  offer_->batch.work.seed =
      MixKey(MixKey(seed_, kBatchStream), static_cast<uint64_t>(work.positions.begin));
  tables_of_run_ = std::move(tables);
  changed_ = std::move(changed);
  run_finished_ = false;
  if (left_) failure_.Update(absl::InvalidArgumentError("the program has left before this run"));
}

std::optional<absl::StatusOr<WorkResult>> ProgramComputation::RunResult() {
  absl::MutexLock lock(&mutex_);
  if (!failure_.ok()) return failure_;
  if (result_.has_value()) return *result_;
  return std::nullopt;
}

void ProgramComputation::EndRun() {
  absl::MutexLock lock(&mutex_);
  offer_.reset();
  changed_ = nullptr;
}

}  // namespace capstan::worker
