#include "common/security/audit_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/observability/json_quote.h"
#include "common/observability/log.h"
#include "common/report/line_file.h"
#include "common/security/call_policy.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/private_files.h"

namespace capstan {
namespace {

constexpr size_t kFieldBytesMax = 512;
constexpr size_t kReasonBytesMax = 2048;

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
  absl::StrAppend(line, "}\n");
}

// Opens the file, or makes it, and closes it to all but its owner. The operator has named it, so it
// need not lie below a folder that jobs may name (path_access.h).
absl::StatusOr<std::unique_ptr<LineFile>> OpenForOwner(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, kPrivateFileMode));
  if (!file.ok()) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  fchmod(file.get(), kPrivateFileMode);
  return LineFile::Take(std::move(file), path);
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

// The file, which becomes audit.1.jsonl before a line that would make it too large; an older
// audit.1.jsonl becomes audit.2.jsonl, and so on. Until a new file is open, lines go to the old
// one. Thread safety: thread-compatible.
class AuditLog::File {
 public:
  // `bytes_max` and `old_files_max` > 0. Errors: those of open(2) and LineFile::Take.
  static absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, int64_t bytes_max,
                                                    int old_files_max) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LineFile> lines, OpenForOwner(path));
    return std::unique_ptr<File>(new File(path, bytes_max, old_files_max, std::move(lines)));
  }

  // `line` has its newline. An error of writing is logged when it is the first in a row.
  void Append(const std::string& line) {
    const int64_t bytes = lines_->bytes() + static_cast<int64_t>(line.size());
    if (bytes > rotate_above_) {
      const absl::Status rotated = Rotate();
      rotate_above_ = rotated.ok() ? bytes_max_ : bytes + bytes_max_ / kTriesPerFile;
      if (!rotated.ok()) {
        LogError({}, "audit log: its file grows on: {}", std::string(rotated.message()));
      }
    }
    const absl::Status written = lines_->Append(line);
    if (!written.ok() && !failed_) LogError({}, "audit log: {}", std::string(written.message()));
    failed_ = !written.ok();
  }

 private:
  // A file that could not be rotated is tried again when it has grown by this part of bytes_max_.
  static constexpr int64_t kTriesPerFile = 16;

  File(const std::string& path, int64_t bytes_max, int old_files_max,
       std::unique_ptr<LineFile> lines)
      : path_(path),
        bytes_max_(bytes_max),
        old_files_max_(old_files_max),
        lines_(std::move(lines)),
        rotate_above_(bytes_max) {}

  // Returns audit.jsonl for age 0, audit.1.jsonl for age 1.
  std::string NameOf(int age) const {
    if (age == 0) return path_;
    std::filesystem::path name(path_);
    const std::string extension = name.extension().string();
    return absl::StrCat(name.replace_extension().string(), ".", age, extension);
  }

  // Renames no file that has a free name between itself and the oldest, so that attempts that fail
  // in the middle lose none.
  absl::Status Rotate() {
    int last = 0;
    while (last < old_files_max_ && access(NameOf(last).c_str(), F_OK) == 0) ++last;
    for (int age = last; age > 0; --age) {
      const std::string from = NameOf(age - 1);
      if (rename(from.c_str(), NameOf(age).c_str()) == 0) continue;
      return absl::ErrnoToStatus(errno, absl::StrCat("renaming ", from));
    }
    CAPSTAN_ASSIGN_OR_RETURN(lines_, OpenForOwner(path_));
    return absl::OkStatus();
  }

  const std::string path_;
  const int64_t bytes_max_;
  const int old_files_max_;
  std::unique_ptr<LineFile> lines_;
  int64_t rotate_above_;  // The size, in bytes, above which the file is to be rotated.
  bool failed_ = false;   // The last line could not be written.
};

AuditLog::AuditLog(Options options)
    : options_(std::move(options)), counts_(CallPolicy().size() + 1) {}

AuditLog::~AuditLog() { WriteLeftOut(/*all=*/true); }

absl::Status AuditLog::Open(const std::string& path) {
  absl::StatusOr<std::unique_ptr<File>> file =
      File::Open(path, options_.file_bytes_max, options_.old_files_max);
  if (!file.ok()) {
    return absl::UnavailableError(absl::StrCat("audit log: ", file.status().message()));
  }
  absl::MutexLock lock(&file_mutex_);
  file_ = *std::move(file);
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
