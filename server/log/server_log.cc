#include "server/log/server_log.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/types/message_limits.h"
#include "common/wire/store_revision_codec.h"
#include "server/log/kept_record.h"

namespace capstan::server {

namespace {

// A job's id has no '.' (common/job/validate/validate.h).
constexpr char kUniqueIdMark = '.';

std::string LogNameOf(const JobId& job, const std::string& unique_id) {
  return unique_id.empty() ? job : absl::StrCat(job, std::string(1, kUniqueIdMark), unique_id);
}

std::string UniqueIdIn(const std::string& log) {
  const size_t mark = log.find(kUniqueIdMark);
  return mark == std::string::npos ? "" : log.substr(mark + 1);
}

}  // namespace

ServerLog::ServerLog(Options options) : options_(std::move(options)), runner_(options_.execute) {}

ServerLog::~ServerLog() { Stop(); }

absl::Status ServerLog::Open() {
  CAPSTAN_RETURN_IF_ERROR(options_.disk->MakeFolder(options_.folder));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           options_.disk->List(options_.folder));
  for (const std::string& name : names) {
    // An entry that is not a folder is not a log.
    if (absl::IsNotFound(options_.disk->List(FolderOf(name)).status())) continue;
    const auto job = std::make_shared<Job>();
    {
      const absl::MutexLock lock(&job->mutex);
      OpenJob(name, *job);
    }
    const absl::MutexLock lock(&mutex_);
    jobs_[name] = job;
  }
  return absl::OkStatus();
}

void ServerLog::OpenJob(const std::string& log, Job& job) {
  absl::StatusOr<std::unique_ptr<JobLog>> opened =
      JobLog::Open(options_.disk, FolderOf(log), options_.job, &job.copied);
  job.failure = opened.status();
  job.log = opened.ok() ? *std::move(opened) : nullptr;
}

void ServerLog::ReopenFailed() {
  AwaitWritten(nullptr);
  for (const auto& [log, job] : AllJobs()) {
    const absl::MutexLock lock(&job->mutex);
    if (job->failure.ok()) continue;
    job->log.reset();  // Its files are closed before they are opened again.
    job->gone.clear();
    job->lent.clear();
    OpenJob(log, *job);
  }
}

void ServerLog::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  runner_.Stop();
}

std::string ServerLog::NameOf(const JobId& job) const {
  const auto known = unique_ids_.find(job);
  return LogNameOf(job, known == unique_ids_.end() ? "" : known->second);
}

std::shared_ptr<ServerLog::Job> ServerLog::Find(const std::string& log) const {
  const absl::MutexLock lock(&mutex_);
  const auto entry = jobs_.find(log);
  return entry == jobs_.end() ? nullptr : entry->second;
}

std::map<std::string, std::shared_ptr<ServerLog::Job>> ServerLog::AllJobs() const {
  const absl::MutexLock lock(&mutex_);
  return jobs_;
}

std::vector<v1::StoredShard> ServerLog::Stored() const {
  std::vector<v1::StoredShard> shards;
  for (const auto& [log, job] : AllJobs()) {
    const absl::MutexLock lock(&job->mutex);
    if (job->log == nullptr) continue;
    for (const StoredState& state : job->log->Stored()) {
      v1::StoredShard& shard = shards.emplace_back();
      shard.set_job_id(log.substr(0, log.find(kUniqueIdMark)));
      shard.set_unique_id(UniqueIdIn(log));
      shard.set_table(state.shard.table.value());
      shard.set_shard(state.shard.shard.value());
      shard.set_term(state.term.value());
      shard.set_position(state.position.value());
      shard.set_incarnation(state.incarnation.value());
      EncodeRevision(state.seen, *shard.mutable_seen());
    }
  }
  return shards;
}

std::vector<ServerLog::LogName> ServerLog::Names() const {
  std::vector<LogName> names;
  for (const auto& [log, job] : AllJobs()) {
    const std::string unique_id = UniqueIdIn(log);
    if (unique_id.empty() || !IsUniqueId(unique_id)) continue;
    const absl::MutexLock lock(&job->mutex);
    if (job->log != nullptr || !job->failure.ok()) names.push_back({log, unique_id});
  }
  return names;
}

std::vector<v1::KeptLog> ServerLog::Logs() const {
  std::vector<v1::KeptLog> logs;
  size_t bytes = 0;
  for (const LogName& name : Names()) {
    if (std::ssize(logs) == kLogsToldMax) break;
    v1::KeptLog& log = logs.emplace_back();
    log.set_job_id(name.name.substr(0, name.name.find(kUniqueIdMark)));
    log.set_unique_id(name.unique_id);
    absl::StatusOr<std::string> record = ReadKeptRecord(*options_.disk, FolderOf(name.name));
    if (!record.ok() && !absl::IsNotFound(record.status())) {
      log.set_damage(std::string(record.status().message()));
    }
    if (record.ok() && bytes + record->size() <= kRecordBytesToldMax) {
      bytes += record->size();
      log.set_record(*std::move(record));
    }
    const std::shared_ptr<Job> job = Find(name.name);
    const absl::MutexLock lock(&job->mutex);
    if (!job->failure.ok()) log.set_damage(std::string(job->failure.message()));
  }
  return logs;
}

void ServerLog::Heard(const StoreRevision& revision) {
  const absl::MutexLock lock(&mutex_);
  seen_ = revision;
}

void ServerLog::BeginIncarnation(Incarnation incarnation) {
  const absl::MutexLock lock(&mutex_);
  incarnation_ = incarnation;
  identified_.clear();
}

bool ServerLog::IsIdentified(const std::string& name) const {
  const absl::MutexLock lock(&mutex_);
  return identified_.contains(name);
}

std::vector<std::pair<std::string, absl::Status>> ServerLog::Unreadable() const {
  std::vector<std::pair<std::string, absl::Status>> unreadable;
  for (const auto& [log, job] : AllJobs()) {
    const absl::MutexLock lock(&job->mutex);
    if (job->log == nullptr && !job->failure.ok()) unreadable.emplace_back(log, job->failure);
  }
  return unreadable;
}

std::optional<int64_t> ServerLog::SpaceAwaited() const {
  std::optional<int64_t> least;
  for (const auto& [log, job] : AllJobs()) {
    const absl::MutexLock lock(&job->mutex);
    if (job->log != nullptr || !absl::IsResourceExhausted(job->failure)) continue;
    least = std::min(least.value_or(job->copied), job->copied);
  }
  return least;
}

absl::Status ServerLog::Read(const JobId& job, const ShardKey& shard,
                             const JobLog::Install& install, const JobLog::Replay& replay) {
  std::string log;
  {
    const absl::MutexLock lock(&mutex_);
    log = NameOf(job);
  }
  AwaitWritten(&log);
  const std::shared_ptr<Job> found = Find(log);
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat(options_.folder, " has no log of job ", job));
  }
  const absl::MutexLock lock(&found->mutex);
  found->gone.erase(shard);  // The reader goes on from what the log holds.
  if (found->log != nullptr) return found->log->Read(shard, install, replay);
  if (!found->failure.ok()) return found->failure;
  return absl::NotFoundError(absl::StrCat(FolderOf(log), " holds nothing"));
}

// ---------------------------------------------------------------- queue

void ServerLog::Identify(const JobId& job, const std::string& unique_id) {
  const absl::MutexLock lock(&mutex_);
  unique_ids_[job] = unique_id;
  identified_.insert(LogNameOf(job, unique_id));
}

void ServerLog::KeepRecord(const JobId& job, const std::string& record) {
  const int64_t bytes = static_cast<int64_t>(record.size());
  Enqueue({.kind = Entry::Kind::kKeepRecord, .job = job, .bytes = bytes, .kept = record});
}

void ServerLog::Remove(const std::string& name) {
  const size_t mark = name.find(kUniqueIdMark);
  Enqueue({.kind = Entry::Kind::kForgetJob, .job = name.substr(0, mark), .log = name});
}

void ServerLog::Begin(const JobId& job, const ShardKey& shard, Term term,
                      std::shared_ptr<const v1::ShardSnapshot> snapshot,
                      std::shared_ptr<CapturedRows> rows) {
  const int64_t bytes = static_cast<int64_t>(snapshot->ByteSizeLong());
  Enqueue({.kind = Entry::Kind::kBegin,
           .job = job,
           .log = {},
           .shard = shard,
           .term = term,
           .snapshot = std::move(snapshot),
           .rows = std::move(rows),
           .bytes = bytes});
}

void ServerLog::Append(const JobId& job, const ShardKey& shard, Term term,
                       std::shared_ptr<const v1::ShardRecord> record) {
  const int64_t bytes = static_cast<int64_t>(record->values().size());
  Enqueue({.kind = Entry::Kind::kAppend,
           .job = job,
           .log = {},
           .shard = shard,
           .term = term,
           .record = std::move(record),
           .bytes = bytes});
}

void ServerLog::Continue(const JobId& job, const ShardKey& shard, Term term, Position position) {
  Enqueue({.kind = Entry::Kind::kContinue,
           .job = job,
           .log = {},
           .shard = shard,
           .term = term,
           .position = position});
}

void ServerLog::Forget(const JobId& job, const ShardKey& shard) {
  Enqueue({.kind = Entry::Kind::kForget, .job = job, .shard = shard});
}

void ServerLog::ForgetJob(const JobId& job) {
  Enqueue({.kind = Entry::Kind::kForgetJob, .job = job});
}

void ServerLog::Enqueue(Entry entry) {
  {
    const absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    queue_bytes_ += entry.bytes;
    if (queue_bytes_ > options_.queue_bytes_max) {
      // The entry is queued without its bytes: the writer sees that they are missing and fails the
      // job.
      queue_bytes_ -= entry.bytes;
      entry.bytes = 0;
      entry.snapshot.reset();
      entry.rows.reset();
      entry.record.reset();
    }
    if (entry.log.empty()) entry.log = NameOf(entry.job);
    entry.incarnation = incarnation_;
    entry.seen = seen_;
    ++unwritten_[entry.log];
    queue_.push_back(std::move(entry));
    if (draining_) return;
    draining_ = true;
  }
  runner_.Run([this] { Drain(); });
}

void ServerLog::Drain() {
  while (WriteGroup()) {
    // An executor that was passed in decides when the next group is due.
    if (options_.execute != nullptr) return runner_.Run([this] { Drain(); });
  }
}

bool ServerLog::WriteGroup() {
  std::vector<Entry> group;
  {
    const absl::MutexLock lock(&mutex_);
    group.swap(queue_);
    queue_bytes_ = 0;
    draining_ = !group.empty();
    if (!draining_) return false;
  }
  std::map<std::string, std::vector<Entry>> by_log;
  for (Entry& entry : group) by_log[entry.log].push_back(std::move(entry));
  for (const auto& [log, entries] : by_log) WriteJob(log, entries);
  return true;
}

void ServerLog::AwaitWritten(const std::string* log) {
  const auto written = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return log == nullptr ? unwritten_.empty() : !unwritten_.contains(*log);
  };
  {
    const absl::MutexLock lock(&mutex_);
    if (options_.execute == nullptr) return mutex_.Await(absl::Condition(&written));
    if (written()) return;
  }
  WriteGroup();
}

// ---------------------------------------------------------------- writing

void ServerLog::WriteJob(const std::string& log, const std::vector<Entry>& entries) {
  const JobId& id = entries.front().job;
  std::shared_ptr<Job> job;
  {
    const absl::MutexLock lock(&mutex_);
    std::shared_ptr<Job>& entry = jobs_[log];
    if (entry == nullptr) entry = std::make_shared<Job>();
    job = entry;
  }
  Reached reached;
  absl::Status failed;
  {
    const absl::MutexLock lock(&job->mutex);
    failed = WriteEntries(entries, *job, reached);
  }
  {
    const absl::MutexLock lock(&mutex_);
    const auto unwritten = unwritten_.find(log);
    unwritten->second -= entries.size();
    if (unwritten->second == 0) unwritten_.erase(unwritten);
  }
  const std::string unique_id = UniqueIdIn(log);
  for (const auto& [shard, state] : reached) {
    options_.on_logged(id, unique_id, shard, state.first, state.second);
  }
  if (!failed.ok()) options_.on_failed(id, unique_id, failed);
}

absl::Status ServerLog::WriteEntries(const std::vector<Entry>& entries, Job& job,
                                     Reached& reached) {
  Reached written;  // This is not committed yet.
  const auto commit = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(job.mutex) -> absl::Status {
    if (job.log == nullptr) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(job.log->Commit());
    job.lent.clear();
    for (const auto& [shard, state] : written) reached[shard] = state;
    written.clear();
    return absl::OkStatus();
  };
  bool failed = false;
  for (const Entry& entry : entries) {
    const bool forget = entry.kind == Entry::Kind::kForgetJob;
    if (failed && !forget) continue;
    absl::Status status = WriteEntry(entry, job, written);
    if (forget) reached.clear();
    if (entry.kind == Entry::Kind::kForget) reached.erase(entry.shard);
    if (status.ok() && job.log != nullptr && job.log->batch_bytes() >= kBatchBytesMax) {
      status = commit();
    }
    failed = !status.ok();
    if (failed) job.failure = status;
  }
  if (Planted(PlantedBug::kReleaseGroupEarly)) {
    for (const auto& [shard, state] : written) {
      options_.on_logged(entries.front().job, UniqueIdIn(entries.front().log), shard, state.first,
                         state.second);
    }
  }
  if (const absl::Status status = commit(); !status.ok()) job.failure = status;
  return job.failure;
}

absl::Status ServerLog::WriteEntry(const Entry& entry, Job& job, Reached& written) {
  const std::string folder = FolderOf(entry.log);
  if (entry.kind == Entry::Kind::kForgetJob) {
    job.log.reset();
    job.failure = absl::OkStatus();
    job.gone.clear();
    job.lent.clear();
    job.kept.clear();
    written.clear();
    return JobLog::Remove(*options_.disk, folder);
  }
  if (entry.kind == Entry::Kind::kKeepRecord) {
    job.kept = entry.kept;
    WriteRecord(folder, job.kept);
    return absl::OkStatus();
  }
  if (job.log == nullptr) {
    if (entry.kind == Entry::Kind::kContinue && job.failure.ok()) {
      return absl::InternalError(absl::StrCat(folder, " holds nothing that could go on"));
    }
    if (entry.kind != Entry::Kind::kBegin) return job.failure;
    // A log that could not be read gives way to the new one.
    if (!job.failure.ok()) CAPSTAN_RETURN_IF_ERROR(JobLog::Remove(*options_.disk, folder));
    CAPSTAN_ASSIGN_OR_RETURN(job.log, JobLog::Open(options_.disk, folder, options_.job));
    if (!job.failure.ok() && !job.kept.empty()) WriteRecord(folder, job.kept);
    job.failure = absl::OkStatus();
  }
  if (!job.failure.ok()) return job.failure;
  job.log->set_writer(entry.incarnation, entry.seen);
  if (entry.kind == Entry::Kind::kForget) {
    job.log->Forget(entry.shard);
    job.gone.erase(entry.shard);
    written.erase(entry.shard);
    return absl::OkStatus();
  }
  if (job.gone.contains(entry.shard) && entry.kind != Entry::Kind::kBegin) return absl::OkStatus();
  if (entry.kind == Entry::Kind::kContinue) {
    job.log->Continue(entry.shard, entry.term, entry.position);
    written[entry.shard] = {entry.term, entry.position};
    return absl::OkStatus();
  }
  if (entry.snapshot == nullptr && entry.record == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("the write-ahead log of job ", entry.job,
                                                     " has more than ", options_.queue_bytes_max,
                                                     " bytes waiting for the disk"));
  }
  if (entry.kind == Entry::Kind::kBegin) return WriteBegin(entry, job, written);
  job.log->Append(entry.shard, entry.term, *entry.record);
  written[entry.shard] = {entry.term, Position(entry.record->position())};
  return absl::OkStatus();
}

void ServerLog::WriteRecord(const std::string& folder, const std::string& record) {
  absl::Status status = options_.disk->MakeFolder(folder);
  if (status.ok()) status = WriteKeptRecord(*options_.disk, folder, record);
  if (status.ok()) return;
  LogWarning({}, "the record of where a job stands is not kept: {}", std::string(status.message()));
}

absl::Status ServerLog::WriteBegin(const Entry& entry, Job& job, Reached& written) {
  auto whole = ReadWhole(entry.snapshot, entry.rows.get());
  if (absl::IsAborted(whole.status())) {
    job.gone.insert(entry.shard);
    return absl::OkStatus();
  }
  CAPSTAN_RETURN_IF_ERROR(Annotate(whole.status(), "a snapshot for the write-ahead log"));
  job.gone.erase(entry.shard);
  job.lent.push_back(*whole);
  job.log->Begin(entry.shard, entry.term, **whole);
  written[entry.shard] = {entry.term, Position((*whole)->position())};
  return absl::OkStatus();
}

}  // namespace capstan::server
