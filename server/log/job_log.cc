#include "server/log/job_log.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/planted/planted_bug.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "server/log/frames/record_file.h"
#include "server/log/segment_file.h"

namespace capstan::server {
namespace {

absl::Status IgnoreMissing(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

// A segment is at least this many times as large as its head. A head lists all segments before it:
// the heads of many small segments would outweigh what follows them, and cleaning would make no
// progress.
constexpr int64_t kHeadShare = 8;

// Returns `frame` with the place where its copy will lie.
LogFrame Moved(LogFrame frame, uint64_t segment, uint64_t sequence, int64_t begin) {
  frame.segment = segment;
  frame.sequence = sequence;
  frame.begin = begin;
  return frame;
}

}  // namespace

JobLog::JobLog(Disk* disk, std::string folder, const Options& options)
    : disk_(disk), folder_(std::move(folder)), options_(options), batch_(options.lent_bytes_min) {}

absl::StatusOr<std::unique_ptr<JobLog>> JobLog::Open(Disk* disk, const std::string& folder,
                                                     const Options& options, int64_t* copied) {
  auto log = std::unique_ptr<JobLog>(new JobLog(disk, folder, options));
  CAPSTAN_RETURN_IF_ERROR(disk->MakeFolder(folder));
  CAPSTAN_RETURN_IF_ERROR(log->Recover());
  const absl::Status settled = log->SettleDoubt(copied);
  if (!settled.ok()) {
    // On a full disk, the segment that was begun would keep space that the next try needs.
    if (log->file_ != nullptr) {
      log->file_.reset();
      (void)disk->Remove(log->PathOf(log->segment_));
    }
    return settled;
  }
  CAPSTAN_RETURN_IF_ERROR(log->RemoveUnlisted());
  return log;
}

absl::Status JobLog::Remove(Disk& disk, const std::string& folder) {
  const absl::StatusOr<std::vector<std::string>> names = disk.List(folder);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    CAPSTAN_RETURN_IF_ERROR(IgnoreMissing(disk.Remove(absl::StrCat(folder, "/", name))));
  }
  return IgnoreMissing(disk.Remove(folder));
}

std::string JobLog::PathOf(uint64_t segment) const { return SegmentPath(folder_, segment); }

// ---------------------------------------------------------------- recovery

absl::Status JobLog::Recover() {
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<uint64_t> numbers, ListSegments(*disk_, folder_));
  if (!numbers.empty()) segment_ = numbers.back();
  if (segment_ > kLogNumberMax) {
    return absl::DataLossError(
        absl::StrCat(PathOf(segment_), ": expected a number up to ", kLogNumberMax));
  }
  CAPSTAN_RETURN_IF_ERROR(RecoverFrom(numbers));
  CAPSTAN_RETURN_IF_ERROR(Annotate(index_.Check(), folder_));
  for (const auto& [key, shard] : index_.shards()) {
    if (shard.base_frame.type == LogFrameType::kForget) continue;
    tails_[key] = {.base = shard.base,
                   .term = shard.term(),
                   .position = shard.position(),
                   .base_position = shard.base_frame.position};
  }
  next_base_ = index_.base_max() + 1;
  return absl::OkStatus();
}

absl::Status JobLog::RecoverFrom(const std::vector<uint64_t>& numbers) {
  // The last segment that has a head says which others there must be. A segment without one was
  // being begun when the power failed: nothing in it was acknowledged.
  std::optional<SegmentContents> last;
  for (auto number = numbers.rbegin(); number != numbers.rend() && !last.has_value(); ++number) {
    CAPSTAN_ASSIGN_OR_RETURN(last, ReadSegment(*disk_, folder_, *number, std::nullopt));
  }
  if (!last.has_value()) return absl::OkStatus();
  const std::set<uint64_t> removed(last->removed.begin(), last->removed.end());
  const auto add = [&](uint64_t number, const SegmentContents& contents) {
    index_.SetBytes(number, contents.whole_bytes);
    for (const LogFrame& frame : contents.frames) index_.Add(frame);
  };
  for (const auto& [number, size] : last->head.before) {
    // A removed segment that is still there counts: its removal may not be durable, nor the copies
    // of its frames.
    const bool present = std::binary_search(numbers.begin(), numbers.end(), number);
    if (!present && removed.contains(number)) continue;
    const bool doubt = size < 0;
    CAPSTAN_ASSIGN_OR_RETURN(
        const std::optional<SegmentContents> contents,
        ReadSegment(*disk_, folder_, number, doubt ? std::nullopt : std::optional<int64_t>(size)));
    if (doubt) in_doubt_.push_back(number);
    if (contents.has_value()) {
      add(number, *contents);
    } else {
      index_.AddSegment(number);
    }
  }
  in_doubt_.push_back(last->head.number);
  add(last->head.number, *last);
  return absl::OkStatus();
}

absl::Status JobLog::SettleDoubt(int64_t* copied) {
  if (in_doubt_.empty()) return absl::OkStatus();
  for (const uint64_t segment : in_doubt_) CAPSTAN_RETURN_IF_ERROR(AddCopies(segment));
  if (copied != nullptr) *copied = batch_.bytes();
  CAPSTAN_RETURN_IF_ERROR(WriteBatch());
  for (const uint64_t segment : in_doubt_) index_.RemoveSegment(segment);
  in_doubt_.clear();
  return absl::OkStatus();
}

absl::Status JobLog::RemoveUnlisted() {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<uint64_t> numbers, ListSegments(*disk_, folder_));
  for (const uint64_t number : numbers) {
    if (index_.segments().contains(number)) continue;
    CAPSTAN_RETURN_IF_ERROR(IgnoreMissing(disk_->Remove(PathOf(number))));
  }
  return absl::OkStatus();
}

// ---------------------------------------------------------------- writing

void JobLog::StartBatch() {
  if (!batch_.empty()) return;
  const auto current = index_.segments().find(segment_);
  rotate_ = file_ == nullptr ||
            current->second.bytes >= std::max(options_.segment_bytes_max, kHeadShare * head_bytes_);
  if (!rotate_) return;
  SegmentHead head{.number = segment_ + 1};
  for (const auto& [number, segment] : index_.segments()) {
    const bool doubt = std::find(in_doubt_.begin(), in_doubt_.end(), number) != in_doubt_.end();
    head.before[number] = doubt ? -1 : segment.bytes;
  }
  segment_ = head.number;
  sequence_ = 0;
  synced_bytes_ = 0;
  batch_offset_ = 0;
  batch_.Append(NextHead(LogFrameType::kSegment), EncodeSegmentHead(head), nullptr);
  head_bytes_ = batch_.bytes();
}

FrameHead JobLog::NextHead(LogFrameType type) {
  return {
      .type = static_cast<uint32_t>(type), .sequence = sequence_++, .synced_bytes = synced_bytes_};
}

void JobLog::AddShardFrame(LogFrame frame, const google::protobuf::MessageLite* message) {
  StartBatch();
  const int64_t begin = batch_.bytes();
  frame = Moved(frame, segment_, sequence_, batch_offset_ + begin);
  frame.incarnation = incarnation_;
  frame.seen = seen_;
  std::string payload;
  EncodeLogFrame(frame, &payload);
  batch_.Append(NextHead(frame.type), payload, message);
  frame.bytes = batch_.bytes() - begin;
  frames_.push_back(frame);
}

void JobLog::Begin(const ShardKey& shard, Term term, const v1::ShardSnapshot& snapshot) {
  if (!failure_.ok()) return;
  const Position at(snapshot.position());
  const Tail tail{.base = next_base_++, .term = term, .position = at, .base_position = at};
  tails_[shard] = tail;
  AddShardFrame({.type = LogFrameType::kBase,
                 .shard = shard,
                 .base = tail.base,
                 .term = term,
                 .position = tail.position},
                &snapshot);
}

void JobLog::Append(const ShardKey& shard, Term term, const v1::ShardRecord& record) {
  if (!failure_.ok()) return;
  const auto tail = tails_.find(shard);
  const Position position(record.position());
  if (tail == tails_.end() || tail->second.term != term ||
      position != tail->second.position.Next()) {
    Fail(absl::InternalError(absl::StrCat(
             folder_, ": ", NameOf(shard), ": record of position ", position.value(), ", term ",
             term.value(), ", expected ",
             tail == tails_.end() ? "a whole shard first"
                                  : absl::StrCat("position ", tail->second.position.value() + 1,
                                                 ", term ", tail->second.term.value()))))
        .IgnoreError();
    return;
  }
  tail->second.position = position;
  AddShardFrame({.type = LogFrameType::kRecord,
                 .shard = shard,
                 .base = tail->second.base,
                 .term = term,
                 .position = position},
                &record);
}

void JobLog::Continue(const ShardKey& shard, Term term, Position position) {
  if (!failure_.ok()) return;
  const auto tail = tails_.find(shard);
  if (tail == tails_.end() || term <= tail->second.term || position > tail->second.position ||
      position < tail->second.base_position) {
    Fail(absl::InternalError(absl::StrCat(
             folder_, ": ", NameOf(shard), ": goes on from position ", position.value(),
             " in term ", term.value(), ", expected ",
             tail == tails_.end() ? "a whole shard first"
                                  : absl::StrCat("position ", tail->second.base_position.value(),
                                                 " to ", tail->second.position.value(),
                                                 " and a term after ", tail->second.term.value()))))
        .IgnoreError();
    return;
  }
  tail->second.term = term;
  tail->second.position = position;
  AddShardFrame({.type = LogFrameType::kTerm,
                 .shard = shard,
                 .base = tail->second.base,
                 .term = term,
                 .position = position},
                nullptr);
}

void JobLog::Forget(const ShardKey& shard) {
  if (!failure_.ok() || tails_.erase(shard) == 0) return;
  AddShardFrame({.type = LogFrameType::kForget, .shard = shard, .base = next_base_++}, nullptr);
}

absl::Status JobLog::Commit() {
  if (!failure_.ok()) return failure_;
  absl::Status status = WriteBatch();
  // Cleans while there is more garbage than live bytes, and enough of it to be worth it.
  while (status.ok() && index_.segments().size() > 1 &&
         index_.bytes() > 2 * index_.live_bytes() + 2 * options_.segment_bytes_max) {
    status = CleanOldest();
  }
  return Fail(status);
}

absl::Status JobLog::Fail(const absl::Status& status) {
  if (failure_.ok() && !status.ok()) {
    failure_ = Annotate(status, "the write-ahead log has failed");
    batch_.Clear();
    frames_.clear();
  }
  return failure_;
}

absl::Status JobLog::WriteBatch() {
  if (batch_.empty()) return absl::OkStatus();
  if (rotate_) {
    CAPSTAN_ASSIGN_OR_RETURN(file_, disk_->Create(PathOf(segment_)));
  }
  CAPSTAN_RETURN_IF_ERROR(batch_.WriteTo(*file_));
  if (!Planted(PlantedBug::kDropFsync)) CAPSTAN_RETURN_IF_ERROR(file_->Sync());
  if (rotate_) CAPSTAN_RETURN_IF_ERROR(disk_->SyncFolder(folder_));
  synced_bytes_ = batch_offset_ + batch_.bytes();
  index_.SetBytes(segment_, synced_bytes_);
  for (const LogFrame& frame : frames_) index_.Add(frame);
  batch_.Clear();
  frames_.clear();
  return WriteSynced();
}

absl::Status JobLog::WriteSynced() {
  std::string frame;
  AppendFrame(NextHead(LogFrameType::kSynced), "", &frame);
  batch_offset_ = synced_bytes_ + static_cast<int64_t>(frame.size());
  return file_->Append(frame);
}

absl::Status JobLog::AddCopies(uint64_t segment) {
  for (const LogFrame& frame : index_.LiveIn(segment)) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::string payload, ReadFrame(frame));
    StartBatch();
    frames_.push_back(Moved(frame, segment_, sequence_, batch_offset_ + batch_.bytes()));
    batch_.Append(NextHead(frame.type), payload, nullptr);
  }
  StartBatch();
  std::string number;
  PutLe64(segment, &number);
  batch_.Append(NextHead(LogFrameType::kSegmentRemoved), number, nullptr);
  return absl::OkStatus();
}

absl::Status JobLog::CleanOldest() {
  const uint64_t oldest = index_.segments().begin()->first;
  CAPSTAN_RETURN_IF_ERROR(AddCopies(oldest));
  CAPSTAN_RETURN_IF_ERROR(WriteBatch());
  index_.RemoveSegment(oldest);
  const bool next = Planted(PlantedBug::kRemoveLiveSegment);  // It is removed with all its frames.
  return IgnoreMissing(disk_->Remove(PathOf(next ? index_.segments().begin()->first : oldest)));
}

// ---------------------------------------------------------------- reading

std::vector<StoredState> JobLog::Stored() const {
  std::vector<StoredState> stored;
  for (const auto& [key, shard] : index_.shards()) {
    if (shard.base_frame.type == LogFrameType::kForget) continue;
    stored.push_back({.shard = key,
                      .term = shard.term(),
                      .position = shard.position(),
                      .incarnation = shard.incarnation(),
                      .seen = shard.seen()});
  }
  return stored;
}

absl::StatusOr<std::string> JobLog::ReadFrame(const LogFrame& frame) const {
  const std::string path = PathOf(frame.segment);
  absl::Status status;
  for (int attempt = 0; attempt < 2; ++attempt) {
    absl::StatusOr<std::string> bytes = disk_->ReadPart(path, frame.begin, frame.bytes);
    if (absl::IsNotFound(bytes.status())) return absl::DataLossError(bytes.status().message());
    if (!bytes.ok()) return bytes.status();
    RecordReader reader(path, *bytes, frame.sequence, frame.begin);
    const absl::StatusOr<std::optional<Frame>> read = reader.Next();
    if (read.ok() && read->has_value()) return std::string((*read)->payload);
    status = read.ok() ? reader.torn() : read.status();
  }
  return status;
}

absl::Status JobLog::Read(const ShardKey& shard, const Install& install,
                          const Replay& replay) const {
  const auto entry = index_.shards().find(shard);
  if (entry == index_.shards().end() || entry->second.base_frame.type == LogFrameType::kForget) {
    return absl::NotFoundError(absl::StrCat(folder_, " does not hold ", NameOf(shard)));
  }
  const auto parse = [&](const LogFrame& frame,
                         google::protobuf::MessageLite* message) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const std::string payload, ReadFrame(frame));
    const absl::string_view message_bytes = absl::string_view(payload).substr(kLogFrameHeadBytes);
    if (message->ParseFromArray(message_bytes.data(), static_cast<int>(message_bytes.size()))) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(PathOf(frame.segment), ": at byte ", frame.begin,
                                            " there is no ", message->GetTypeName()));
  };
  v1::ShardSnapshot snapshot;
  CAPSTAN_RETURN_IF_ERROR(parse(entry->second.base_frame, &snapshot));
  CAPSTAN_RETURN_IF_ERROR(install(snapshot));
  for (const auto& [position, frame] : entry->second.records) {
    v1::ShardRecord record;
    CAPSTAN_RETURN_IF_ERROR(parse(frame, &record));
    CAPSTAN_RETURN_IF_ERROR(replay(record));
  }
  return absl::OkStatus();
}

}  // namespace capstan::server
