#include "worker/task/task_trace.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/observability/log.h"
#include "common/tensor/safetensors/durable_file.h"

namespace capstan::worker {
namespace {

constexpr char kPush[] = "push", kPull[] = "pull", kWait[] = "wait";

const char* TrackOf(StepObserver::Part part) {
  switch (part) {
    case StepObserver::Part::kForward:
      return "forward";
    case StepObserver::Part::kBackward:
      return "backward";
    case StepObserver::Part::kUpload:
      return "upload";
    case StepObserver::Part::kDownload:
      return "download";
  }
  return kWait;
}

// "table 0 shards 3-5 iteration 7".
std::string NameOf(const SendMessage& message) {
  if (message.shards.empty()) return "nothing";
  const SendMessage::Shard& first = message.shards.front();
  const int32_t last = message.shards.back().key.shard.value();
  std::string name =
      absl::StrCat("table ", first.key.table.value(), " shard",
                   last == first.key.shard.value() ? " " : "s ", first.key.shard.value());
  if (last != first.key.shard.value()) absl::StrAppend(&name, "-", last);
  absl::StrAppend(&name, " iteration ", message.request.iteration.value());
  return name;
}

}  // namespace

std::unique_ptr<TaskTrace> TaskTrace::Create(const v1::TaskAssignment& assignment,
                                             const Clock& clock) {
  const v1::Output& output = assignment.spec().output();
  if (output.trace_batches() <= 0) return nullptr;
  return std::make_unique<TaskTrace>(absl::StrCat(output.directory(), "/trace-", assignment.rank(),
                                                  "-", assignment.incarnation(), ".json"),
                                     assignment, clock);
}

TaskTrace::TaskTrace(std::string path, const v1::TaskAssignment& assignment, const Clock& clock)
    : path_(std::move(path)),
      job_(assignment.job_id()),
      clock_(clock),
      trace_(absl::StrCat(assignment.job_id(), "/", assignment.rank()), assignment.rank(),
             {kWait, "forward", "backward", "upload", "download", kPush, kPull}),
      batches_left_(assignment.spec().output().trace_batches()) {}

void TaskTrace::BatchDone() {
  if (writing_ && --batches_left_ == 0) Write();
}

void TaskTrace::Write() {
  if (!writing_.exchange(false)) return;
  const std::string json = trace_.ToJson();
  const absl::Status status = WriteFileDurably(path_, {json});
  if (!status.ok()) {
    LogWarning({.job = job_}, "the trace is not written: {}", std::string(status.message()));
    return;
  }
  LogInfo({.job = job_}, "wrote a trace to {} ({} spans left out)", path_, trace_.left_out());
}

void TaskTrace::Message(const SendMessage& message, Instant begin, Instant end) {
  if (!writing_) return;
  trace_.Add(message.request.kind == OpKind::kPush ? kPush : kPull, NameOf(message), begin, end);
}

void TaskTrace::Waited(const std::string& what, Instant begin, Instant end) {
  if (writing_) trace_.Add(kWait, what, begin, end);
}

void TaskTrace::Ran(Part part, const std::string& what, Instant begin, Instant end) {
  trace_.Add(TrackOf(part), what, begin, end);
}

}  // namespace capstan::worker
