// A folder of segments on a simulated disk to JobLog: frames with right checksums, whose contents
// the input says. Open refuses them, or gives a log of which all that is stored can be read, that
// can be written on, and that a second Open finds as the first one left it.
#include "server/log/job_log.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/storage/little_endian.h"
#include "common/storage/testing/sim_disk.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/log/frames/record_file.h"
#include "server/log/log_index.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/sim_files.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {
namespace {

using server::JobLog;
using server::LogFrame;
using server::LogFrameType;

constexpr char kFolder[] = "log";

std::string NameOf(uint64_t segment) {
  return absl::StrCat("segment-", absl::StrFormat("%010d", segment), ".log");
}

class Maker {
 public:
  Maker(Input* input, SimDisk* disk) : input_(*input), disk_(*disk) {}

  void AddSegment() {
    std::string bytes;
    const uint64_t number = input_.Byte() % 8;
    const int frames = input_.Byte() % 16;
    AddFrame(LogFrameType::kSegment, Head(number), &bytes);
    for (int i = 0; i < frames; ++i) AddAny(&bytes);
    absl::StrAppend(&bytes, input_.Take(input_.Byte() % 64));
    WriteFile(disk_, kFolder, NameOf(number), bytes);
    sizes_.push_back(static_cast<int64_t>(bytes.size()));
    sequence_ = 0;
  }

 private:
  std::string Head(uint64_t number) {
    server::SegmentHead head{.number = input_.Byte() < 240 ? number : input_.Number()};
    for (int i = input_.Byte() % 4; i > 0; --i) {
      const uint8_t size = input_.Byte();  // Mostly that of a segment which is there.
      const bool there = size < 192 && !sizes_.empty();
      head.before[input_.Number()] = there ? sizes_[size % sizes_.size()] : int64_t{size} - 193;
    }
    return server::EncodeSegmentHead(head);
  }

  void AddAny(std::string* bytes) {
    const auto type = static_cast<LogFrameType>(input_.Byte() % 9);
    std::string payload;
    if (type == LogFrameType::kSegmentRemoved) {
      PutLe64(input_.Number(), &payload);
    } else if (type != LogFrameType::kSynced && type != LogFrameType::kSegment) {
      const LogFrame frame = AnyFrame();
      server::EncodeLogFrame(frame, &payload);
      AddMessage(type, frame.position, &payload);
    }
    AddFrame(type, payload, bytes);
  }

  LogFrame AnyFrame() {
    return {.shard = {TableId(0), ShardId(static_cast<int32_t>(input_.Byte() % 3))},
            .base = input_.Number(),
            .term = Term(input_.Number()),
            .position = Position(static_cast<int64_t>(input_.Number())),
            .incarnation = Incarnation(input_.Number()),
            .seen = {.scheduler = input_.Byte(), .count = input_.Byte()}};
  }

  static void AddMessage(LogFrameType type, Position position, std::string* payload) {
    v1::ShardSnapshot snapshot;
    snapshot.set_position(position.value());
    v1::ShardRecord record;
    record.set_position(position.value());
    if (type == LogFrameType::kBase) snapshot.AppendToString(payload);
    if (type == LogFrameType::kRecord) record.AppendToString(payload);
  }

  void AddFrame(LogFrameType type, const std::string& payload, std::string* bytes) {
    const uint8_t synced = input_.Byte();
    server::AppendFrame({.type = static_cast<uint32_t>(type),
                         .sequence = sequence_++,
                         .synced_bytes = static_cast<int64_t>(bytes->size()) * synced / 255},
                        payload, bytes);
  }

  Input& input_;
  SimDisk& disk_;
  uint64_t sequence_ = 0;
  std::vector<int64_t> sizes_;
};

absl::StatusOr<std::unique_ptr<JobLog>> Open(SimDisk* disk) {
  return JobLog::Open(disk, kFolder, {.segment_bytes_max = 512});
}

void CheckRead(const JobLog& log) {
  for (const server::StoredState& stored : log.Stored()) {
    const auto install = [](const v1::ShardSnapshot&) { return absl::OkStatus(); };
    const auto replay = [](const v1::ShardRecord&) { return absl::OkStatus(); };
    FUZZ_CHECK(log.Read(stored.shard, install, replay).ok());
  }
  FUZZ_CHECK(log.live_bytes() >= 0 && log.live_bytes() <= log.bytes());
}

void CheckWrite(JobLog& log) {
  const ShardKey shard{TableId(1), ShardId(0)};
  v1::ShardSnapshot snapshot;
  v1::ShardRecord record;
  record.set_position(1);
  log.Begin(shard, Term(1), snapshot);
  log.Append(shard, Term(1), record);
  FUZZ_CHECK(log.Commit().ok());
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  SimDisk disk(/*seed=*/1);
  Maker maker(&input, &disk);
  for (int segments = 0; segments < 8 && !input.empty(); ++segments) maker.AddSegment();
  std::vector<server::StoredState> stored;
  {
    const absl::StatusOr<std::unique_ptr<JobLog>> log = Open(&disk);
    if (!log.ok()) {
      FUZZ_CHECK(absl::IsDataLoss(log.status()));
      return 0;
    }
    CheckRead(**log);
    CheckWrite(**log);
    CheckRead(**log);
    stored = (*log)->Stored();
  }
  const absl::StatusOr<std::unique_ptr<JobLog>> again = Open(&disk);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK((*again)->Stored() == stored);
  CheckRead(**again);
  return 0;
}

}  // namespace capstan::fuzz
