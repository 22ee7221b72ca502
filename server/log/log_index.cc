#include "server/log/log_index.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/storage/little_endian.h"
#include "server/core/messages/shard_record.h"

namespace capstan::server {

void EncodeLogFrame(const LogFrame& frame, std::string* payload) {
  PutLe32(static_cast<uint32_t>(frame.shard.table.value()), payload);
  PutLe32(static_cast<uint32_t>(frame.shard.shard.value()), payload);
  PutLe64(frame.base, payload);
  PutLe64(frame.term.value(), payload);
  PutLe64(static_cast<uint64_t>(frame.position.value()), payload);
  PutLe64(frame.incarnation.value(), payload);
  PutLe64(frame.seen.scheduler, payload);
  PutLe64(frame.seen.count, payload);
}

void DecodeLogFrame(absl::string_view payload, LogFrame* frame) {
  frame->shard = {TableId(static_cast<int32_t>(GetLe32(payload, 0))),
                  ShardId(static_cast<int32_t>(GetLe32(payload, 4)))};
  frame->base = GetLe64(payload, 8);
  frame->term = Term(GetLe64(payload, 16));
  frame->position = Position(static_cast<int64_t>(GetLe64(payload, 24)));
  frame->incarnation = Incarnation(GetLe64(payload, 32));
  frame->seen = {.scheduler = GetLe64(payload, 40), .count = GetLe64(payload, 48)};
}

std::string EncodeSegmentHead(const SegmentHead& head) {
  std::string payload;
  PutLe64(head.number, &payload);
  for (const auto& [number, bytes] : head.before) {
    PutLe64(number, &payload);
    PutLe64(static_cast<uint64_t>(bytes), &payload);
  }
  return payload;
}

absl::StatusOr<SegmentHead> DecodeSegmentHead(absl::string_view payload) {
  if (payload.size() % 16 != 8) {
    return absl::DataLossError(
        absl::StrCat("the first frame has ", payload.size(), " bytes, which is no segment's head"));
  }
  SegmentHead head;
  head.number = GetLe64(payload, 0);
  for (size_t at = 8; at < payload.size(); at += 16) {
    head.before[GetLe64(payload, at)] = static_cast<int64_t>(GetLe64(payload, at + 8));
  }
  return head;
}

void LogIndex::SetBytes(uint64_t segment, int64_t bytes) {
  Segment& entry = segments_[segment];
  bytes_ += bytes - entry.bytes;
  entry.bytes = bytes;
}

void LogIndex::Count(const LogFrame& frame) {
  segments_[frame.segment].live += frame.bytes;
  live_bytes_ += frame.bytes;
}

void LogIndex::Discount(const LogFrame& frame) {
  segments_[frame.segment].live -= frame.bytes;
  live_bytes_ -= frame.bytes;
}

void LogIndex::Add(const LogFrame& frame) {
  base_max_ = std::max(base_max_, frame.base);
  Shard& shard = shards_[frame.shard];
  if (frame.base < shard.base) return;
  if (frame.base > shard.base) {
    if (shard.begun) Discount(shard.base_frame);
    for (const auto& [position, record] : shard.records) Discount(record);
    for (const auto& [position, term] : shard.terms) Discount(term);
    shard = Shard{.base = frame.base};
  }
  if (frame.type == LogFrameType::kBase || frame.type == LogFrameType::kForget) {
    if (shard.begun) Discount(shard.base_frame);
    shard.base_frame = frame;
    shard.begun = true;
    return Count(frame);
  }
  for (const auto& [position, later] : shard.terms) {
    if (position < frame.position && later.term > frame.term) return;
  }
  AddTo(frame.type == LogFrameType::kTerm ? &shard.terms : &shard.records, frame);
  if (frame.type != LogFrameType::kTerm) return;
  CutBehind(&shard.records, frame);
  CutBehind(&shard.terms, frame);
}

void LogIndex::AddTo(std::map<Position, LogFrame>* frames, const LogFrame& frame) {
  const auto [entry, added] = frames->try_emplace(frame.position, frame);
  if (!added) {
    if (entry->second.term > frame.term) return;
    Discount(entry->second);
    entry->second = frame;
  }
  Count(frame);
}

void LogIndex::CutBehind(std::map<Position, LogFrame>* frames, const LogFrame& frame) {
  for (auto it = frames->upper_bound(frame.position); it != frames->end();) {
    if (it->second.term >= frame.term) {
      ++it;
      continue;
    }
    Discount(it->second);
    it = frames->erase(it);
  }
}

void LogIndex::RemoveSegment(uint64_t segment) {
  const auto entry = segments_.find(segment);
  if (entry == segments_.end()) return;
  assert(entry->second.live == 0);
  bytes_ -= entry->second.bytes;
  segments_.erase(entry);
}

absl::Status LogIndex::Check() const {
  if (base_max_ > kLogNumberMax) {
    return absl::DataLossError(absl::StrCat("there is a frame of base ", base_max_,
                                            ", expected a number up to ", kLogNumberMax));
  }
  for (const auto& [key, shard] : shards_) {
    CAPSTAN_RETURN_IF_ERROR(Annotate(CheckShard(shard), NameOf(key)));
  }
  return absl::OkStatus();
}

absl::Status LogIndex::CheckShard(const Shard& shard) {
  if (!shard.begun) {
    return absl::DataLossError("there are records, but not the state that they follow");
  }
  Term term = shard.base_frame.term;
  Position last = shard.base_frame.position;
  if (last < Position(0) || last > kPositionMax) {
    return absl::DataLossError(absl::StrCat("its state is of position ", last.value(),
                                            ", expected 0 to ", kPositionMax.value()));
  }
  auto later = shard.terms.begin();
  for (const auto& [position, record] : shard.records) {
    if (later != shard.terms.end() && later->first == last) term = (later++)->second.term;
    if (position != last.Next() || record.term != term) {
      return absl::DataLossError(absl::StrCat(
          "there is the record of position ", position.value(), ", term ", record.term.value(),
          ", expected position ", last.Next().value(), ", term ", term.value()));
    }
    last = position;
  }
  if (later != shard.terms.end() && later->first == last) ++later;
  if (later == shard.terms.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("term ", later->second.term.value(),
                                          " begins behind position ", later->first.value(),
                                          ", which is not there"));
}

std::vector<LogFrame> LogIndex::LiveIn(uint64_t segment) const {
  std::vector<LogFrame> frames;
  for (const auto& [key, shard] : shards_) {
    if (shard.begun && shard.base_frame.segment == segment) frames.push_back(shard.base_frame);
    for (const auto& [position, record] : shard.records) {
      if (record.segment == segment) frames.push_back(record);
    }
    for (const auto& [position, term] : shard.terms) {
      if (term.segment == segment) frames.push_back(term);
    }
  }
  std::sort(frames.begin(), frames.end(),
            [](const LogFrame& a, const LogFrame& b) { return a.begin < b.begin; });
  return frames;
}

}  // namespace capstan::server
