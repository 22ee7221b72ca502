#include "worker/client/call_history.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/observability/log.h"

namespace capstan::worker {
namespace {

const char* NameOf(const OpRequest& request) {
  if (request.kind == OpKind::kPush) return "push";
  return request.snapshot ? "snapshot" : "pull";
}

const char* NameOf(ShardReply::Outcome outcome) {
  switch (outcome) {
    case ShardReply::Outcome::kDone:
      return "done";
    case ShardReply::Outcome::kNotReady:
      return "not_ready";
    case ShardReply::Outcome::kPast:
      return "past";
  }
  return "done";
}

std::string ShortNameOf(const ShardKey& key) {
  return absl::StrCat(key.table.value(), "/", key.shard.value());
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallHistory>> CallHistory::OfEnvironment(const JobId& job, Rank rank,
                                                                        Incarnation incarnation,
                                                                        const Clock& clock) {
  const char* folder = std::getenv(kVariable);
  if (folder == nullptr || *folder == '\0') return std::unique_ptr<CallHistory>();
  return Open(folder, job, rank, incarnation, clock);
}

absl::StatusOr<std::unique_ptr<CallHistory>> CallHistory::Open(const std::string& folder,
                                                               const JobId& job, Rank rank,
                                                               Incarnation incarnation,
                                                               const Clock& clock) {
  const std::string path =
      absl::StrCat(folder, "/", job, "-", rank.value(), "-", incarnation.value(), ".history");
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) {
    return absl::UnavailableError(
        absl::StrCat(kVariable, ": cannot open ", path, ": ", std::strerror(errno)));
  }
  std::unique_ptr<CallHistory> history(new CallHistory(file, clock));
  history->Write(absl::StrCat("H ", job, " ", rank.value(), " ", incarnation.value()));
  return history;
}

CallHistory::~CallHistory() { close(file_); }

std::string CallHistory::Head(absl::string_view kind) const {
  return absl::StrCat(kind, " ", absl::ToInt64Nanoseconds(clock_.Now() - Instant()));
}

void CallHistory::Begun(const SendMessage& message) {
  const OpRequest& request = message.request;
  std::string line =
      absl::StrCat(Head("B"), " ", message.message.value(), " ", NameOf(request), " ",
                   request.iteration.value(), " ", request.slots.begin, "-", request.slots.end);
  for (const SendMessage::Shard& shard : message.shards) {
    absl::StrAppend(&line, " ", ShortNameOf(shard.key), ":", shard.sequence.value());
  }
  Write(std::move(line));
}

void CallHistory::Answered(const SendMessage& message, const std::vector<ShardReply>& replies) {
  std::string line = absl::StrCat(Head("A"), " ", message.message.value());
  for (size_t i = 0; i < message.shards.size() && i < replies.size(); ++i) {
    absl::StrAppend(&line, " ", ShortNameOf(message.shards[i].key), ":", NameOf(replies[i].outcome),
                    ":", replies[i].version.value());
  }
  Write(std::move(line));
}

void CallHistory::Assigned(bool trains, Iteration start_iteration) {
  Write(absl::StrCat(Head("W"), " ", trains ? "train" : "other", " ", start_iteration.value()));
}

void CallHistory::Write(std::string line) {
  line += '\n';
  // Each line is one call of write: lines of several threads do not mix.
  if (write(file_, line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  LogError({}, "{}: cannot write: {}", kVariable, std::strerror(errno));
}

}  // namespace capstan::worker
