#include "common/security/audit_log.h"

#include <fcntl.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/observability/json_quote.h"
#include "common/observability/log.h"
#include "common/security/call_policy.h"
#include "common/storage/descriptor.h"

namespace capstan {
namespace {

constexpr size_t kFieldBytesMax = 512;
constexpr size_t kReasonBytesMax = 2048;
constexpr mode_t kOwnerOnly = 0600;

// Appends `,"name":"text"`, unless the text is empty.
void AddField(absl::string_view name, absl::string_view text, std::string* line,
              size_t bytes_max = kFieldBytesMax) {
  if (text.empty()) return;
  absl::StrAppend(line, ",\"", name, "\":", JsonQuote(text.substr(0, bytes_max)));
}

std::string BeginLine(absl::Time now, absl::string_view daemon) {
  std::string line = absl::StrCat(
      R"({"time":")", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone()), "\"");
  AddField("daemon", daemon, &line);
  return line;
}

void AddCall(const AuditedCall& call, bool allowed, std::string* line) {
  AddField("peer", call.peer, line);
  AddField("identity", call.caller, line);
  AddField("method", call.method, line);
  AddField("job", call.job, line);
  AddField("node", call.node, line);
  absl::StrAppend(line, ",\"allowed\":", allowed ? "true" : "false");
}

void EndLine(int64_t suppressed, std::string* line) {
  if (suppressed > 0) absl::StrAppend(line, ",\"suppressed\":", suppressed);
  absl::StrAppend(line, "}");
}

// Returns whom the limit of lines is for: an identity, or else a host.
std::string CallerOrHost(const AuditedCall& call) {
  const std::string& whole = call.caller.empty() ? call.peer : call.caller;
  std::string who = whole.substr(0, kFieldBytesMax);
  if (call.caller.empty()) who.resize(std::min(who.size(), who.rfind(':')));
  return who;
}

}  // namespace

absl::string_view CallOutcomeName(CallOutcome outcome) {
  switch (outcome) {
    case CallOutcome::kAllowed:
      return "allowed";
    case CallOutcome::kHandshake:
      return "handshake";
    case CallOutcome::kBadGreeting:
      return "greeting";
    case CallOutcome::kGate:
      return "gate";
    case CallOutcome::kHandler:
      return "handler";
  }
  return "";
}

// A file that spdlog rotates. Thread safety: thread-compatible.
class AuditLog::File {
 public:
  // Throws spdlog_ex if it cannot be opened.
  File(const std::string& path, int64_t bytes_max, int old_files_max)
      : sink_(path, static_cast<size_t>(bytes_max), static_cast<size_t>(old_files_max),
              /*rotate_on_open=*/false, Handlers()) {
    sink_.set_pattern("%v");
  }

  // An error is logged when it is the first in a row.
  void Append(const std::string& line) {
    std::string problem;
    try {
      sink_.log(spdlog::details::log_msg("audit", spdlog::level::info, line));
      sink_.flush();
    } catch (const spdlog::spdlog_ex& error) {  // spdlog reports it only this way.
      problem = error.what();
    }
    if (!problem.empty() && !failed_) LogError({}, "audit log: {}", problem);
    failed_ = !problem.empty();
  }

 private:
  // Makes the file before spdlog opens it, since spdlog would make it for everybody to read.
  static spdlog::file_event_handlers Handlers() {
    spdlog::file_event_handlers handlers;
    handlers.before_open = [](const spdlog::filename_t& path) {
      const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kOwnerOnly));
      if (file.ok()) fchmod(file.get(), kOwnerOnly);
    };
    return handlers;
  }

  spdlog::sinks::rotating_file_sink_st sink_;
  bool failed_ = false;
};

AuditLog::AuditLog(Options options)
    : options_(std::move(options)), counts_(CallPolicy().size() + 1) {}

AuditLog::~AuditLog() { WriteLeftOut(/*all=*/true); }

absl::Status AuditLog::Open(const std::string& path) {
  absl::MutexLock lock(&file_mutex_);
  try {
    file_ = std::make_unique<File>(path, options_.file_bytes_max, options_.old_files_max);
  } catch (const spdlog::spdlog_ex& error) {  // spdlog reports it only this way.
    return absl::UnavailableError(absl::StrCat("audit log ", path, ": ", error.what()));
  }
  return absl::OkStatus();
}

void AuditLog::Count(absl::string_view method, CallOutcome outcome) {
  const MethodPolicy* const policy = FindMethodPolicy(method);
  const size_t index =
      policy == nullptr ? CallPolicy().size() : static_cast<size_t>(policy - CallPolicy().data());
  counts_[index][static_cast<size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
}

std::vector<CallCount> AuditLog::Counts() const {
  std::vector<CallCount> counts;
  for (size_t index = 0; index < counts_.size(); ++index) {
    for (size_t outcome = 0; outcome < kCallOutcomes; ++outcome) {
      const int64_t calls = counts_[index][outcome].load(std::memory_order_relaxed);
      if (calls == 0) continue;
      const bool known = index < CallPolicy().size();
      counts.push_back({.method = known ? CallPolicy()[index].method : "",
                        .outcome = static_cast<CallOutcome>(outcome),
                        .calls = calls});
    }
  }
  return counts;
}

void AuditLog::CountAllowed(absl::string_view method) { Count(method, CallOutcome::kAllowed); }

void AuditLog::Allowed(const AuditedCall& call, const absl::Status& answer) {
  Count(call.method, CallOutcome::kAllowed);
  WriteLeftOut(/*all=*/false);
  const MethodPolicy* const policy = FindMethodPolicy(call.method);
  const absl::Time now = options_.now();
  int64_t suppressed = 0;
  if (policy != nullptr && policy->audit == Audit::kReads) {
    absl::MutexLock lock(&mutex_);
    const std::optional<int64_t> taken =
        limiter_.Take(absl::StrCat(CallerOrHost(call), " ", call.method), options_.reads, now);
    if (!taken.has_value()) return;
    suppressed = *taken;
  }
  std::string line = BeginLine(now, options_.daemon);
  AddCall(call, /*allowed=*/true, &line);
  if (!answer.ok()) AddField("status", absl::StatusCodeToString(answer.code()), &line);
  EndLine(suppressed, &line);
  Write(line);
}

void AuditLog::Refused(const AuditedCall& call, CallOutcome by, const absl::Status& why) {
  Count(call.method, by);
  WriteLeftOut(/*all=*/false);
  const absl::Time now = options_.now();
  std::optional<int64_t> suppressed;
  {
    absl::MutexLock lock(&mutex_);
    suppressed = limiter_.Take(CallerOrHost(call), options_.refusals, now);
  }
  if (!suppressed.has_value()) return;
  const std::string reason(why.message().substr(0, kReasonBytesMax));
  LogWarning({}, "refused: {}{}", reason, call.peer.empty() ? "" : ", from " + call.peer);
  std::string line = BeginLine(now, options_.daemon);
  AddCall(call, /*allowed=*/false, &line);
  AddField("refused_by", CallOutcomeName(by), &line);
  AddField("reason", reason, &line, kReasonBytesMax);
  EndLine(*suppressed, &line);
  Write(line);
}

void AuditLog::WriteLeftOut(bool all) {
  const absl::Time now = options_.now();
  std::vector<LineLimiter::LeftOut> left_out;
  {
    absl::MutexLock lock(&mutex_);
    if (!limiter_.has_left_out()) return;
    left_out = limiter_.TakeLeftOut(now, all);
  }
  for (const LineLimiter::LeftOut& each : left_out) {
    std::string line = BeginLine(now, options_.daemon);
    AddField("suppressed_of", each.peer, &line);
    EndLine(each.lines, &line);
    Write(line);
  }
}

void AuditLog::Write(const std::string& line) {
  absl::MutexLock lock(&file_mutex_);
  if (file_ != nullptr) file_->Append(line);
}

}  // namespace capstan
