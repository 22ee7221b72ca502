#include "common/report/update_log.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/regular_file.h"
#include "common/storage/files/replace_file.h"

namespace capstan {
namespace {

constexpr char kTitle[] = "# capstan updates 1 of ";
constexpr char kColumns[] = "iteration,epoch,slot,begin,end,table,parameters,gradient,keys,rank\n";
constexpr size_t kColumnCount = 10;
constexpr size_t kHashDigits = 16;
constexpr size_t kReadBytes = 1 << 20;

std::string HeadOf(absl::string_view job) { return absl::StrCat(kTitle, job, "\n", kColumns); }

std::string Hash(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

bool ParseHash(absl::string_view text, uint64_t* value) {
  return text.size() == kHashDigits && absl::SimpleHexAtoi(text, value);
}

bool ParseKeys(absl::string_view text, uint64_t* value) {
  return text.empty() || ParseHash(text, value);
}

// Returns the index of `name`, which is added if it is new.
int32_t IndexOf(absl::string_view name, std::vector<std::string>& names) {
  const auto index = std::find(names.begin(), names.end(), name) - names.begin();
  if (index == std::ssize(names)) names.emplace_back(name);
  return static_cast<int32_t>(index);
}

bool ParseLine(absl::string_view line, std::vector<std::string>& names, TableUpdate* update) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != kColumnCount) return false;
  const bool numbers = absl::SimpleAtoi(fields[0], &update->iteration) &&
                       absl::SimpleAtoi(fields[1], &update->epoch) &&
                       absl::SimpleAtoi(fields[2], &update->slot) &&
                       absl::SimpleAtoi(fields[3], &update->positions.begin) &&
                       absl::SimpleAtoi(fields[4], &update->positions.end) &&
                       absl::SimpleAtoi(fields[9], &update->rank);
  if (!numbers || fields[5].empty() || !ParseHash(fields[6], &update->parameters) ||
      !ParseHash(fields[7], &update->gradient) || !ParseKeys(fields[8], &update->keys)) {
    return false;
  }
  update->table = IndexOf(fields[5], names);
  return true;
}

// Calls `take` with each line of the file, without its end.
template <typename Take>
absl::Status ForEachLine(const RegularFile& file, const std::string& path, const Take& take) {
  std::string room(kReadBytes, '\0');
  std::string pending;
  for (int64_t offset = 0;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const size_t bytes,
                             ReadFileAt(file, path, offset, absl::MakeSpan(room)));
    if (bytes == 0) break;
    offset += static_cast<int64_t>(bytes);
    pending.append(room, 0, bytes);
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take(absl::string_view(pending).substr(begin, end - begin));
    }
    pending.erase(0, begin);
  }
  if (!pending.empty()) take(pending);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<UpdateLog>> UpdateLog::Open(const std::string& path,
                                                           absl::string_view job) {
  const std::string head = HeadOf(job);
  std::string found(head.size(), '\0');
  size_t bytes = 0;
  if (const absl::StatusOr<RegularFile> file = OpenRegularFile(path); file.ok()) {
    CAPSTAN_ASSIGN_OR_RETURN(bytes, ReadFileAt(*file, path, 0, absl::MakeSpan(found)));
  }
  if (bytes != head.size() || found != head) {
    CAPSTAN_RETURN_IF_ERROR(ReplaceFile(path, head));
  }
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<LineFile> lines, LineFile::Open(path));
  return std::unique_ptr<UpdateLog>(new UpdateLog(std::move(lines)));
}

absl::Status UpdateLog::Append(const std::vector<TableUpdate>& updates,
                               const std::vector<std::string>& table_names) {
  std::string lines;
  for (const TableUpdate& update : updates) {
    absl::StrAppend(&lines, update.iteration, ",", update.epoch, ",", update.slot, ",");
    absl::StrAppend(&lines, update.positions.begin, ",", update.positions.end, ",",
                    table_names[static_cast<size_t>(update.table)], ",");
    absl::StrAppend(&lines, Hash(update.parameters), ",", Hash(update.gradient), ",",
                    update.keys == 0 ? "" : Hash(update.keys), ",", update.rank, "\n");
  }
  return file_->Append(lines);
}

absl::StatusOr<LoggedUpdates> ReadUpdateLog(const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  if (file.bytes > kUpdateLogBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", file.bytes, " bytes, expected at most ", kUpdateLogBytesMax));
  }
  LoggedUpdates logged;
  int64_t number = 0;
  bool titled = false;
  CAPSTAN_RETURN_IF_ERROR(ForEachLine(file, path, [&](absl::string_view line) {
    ++number;
    if (number == 1) titled = absl::StartsWith(line, kTitle);
    if (number <= 2 || line.empty()) return;
    TableUpdate update;
    if (ParseLine(line, logged.table_names, &update)) {
      logged.updates.push_back(update);
    } else {
      ++logged.torn_lines;
    }
  }));
  if (titled) return logged;
  return absl::InvalidArgumentError(absl::StrCat(path, ": begins otherwise than \"", kTitle,
                                                 "...\", as ", kUpdateLogName,
                                                 " of a job with output.record_updates does"));
}

}  // namespace capstan
