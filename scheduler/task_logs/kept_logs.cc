#include "scheduler/task_logs/kept_logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "common/storage/files/descriptor.h"
#include "common/storage/files/disk_error.h"
#include "common/storage/files/file_bytes.h"
#include "common/storage/files/private_files.h"

namespace capstan::scheduler {
namespace {

namespace fs = std::filesystem;

// Returns false if KeptLogs did not name the file.
bool ParseName(const std::string& name, std::tuple<Rank, Incarnation, int64_t>& segment) {
  const std::vector<std::string> parts = absl::StrSplit(name, '-');
  int32_t rank = 0;
  uint64_t incarnation = 0;
  int64_t begin = 0;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &rank) ||
      !absl::SimpleAtoi(parts[1], &incarnation) || !absl::SimpleAtoi(parts[2], &begin)) {
    return false;
  }
  segment = {Rank(rank), Incarnation(incarnation), begin};
  return rank >= 0 && incarnation > 0 && begin >= 0;
}

// Removes the segments in `folder`, and the folder unless something else is in it: the folder of
// kept logs may have had another use before.
void RemoveSegments(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> segments;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::tuple<Rank, Incarnation, int64_t> segment;
    if (ParseName(it->path().filename().string(), segment)) segments.push_back(it->path());
  }
  for (const fs::path& segment : segments) fs::remove(segment, error);
  fs::remove(folder, error);
}

// Writes all of `data` or nothing: after an error the file gets its former size again.
absl::Status AppendTo(const std::string& path, int64_t bytes_before, const std::string& data) {
  const Descriptor file(
      open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, kPrivateFileMode));
  if (!file.ok()) return DiskError("open", path);
  if (WriteAllAt(file.get(), bytes_before, data)) return absl::OkStatus();
  const absl::Status status = DiskError("write", path);
  return ftruncate(file.get(), bytes_before) == 0 ? status : DiskError("cut", path);
}

absl::StatusOr<std::string> ReadFrom(const std::string& path, int64_t begin, int64_t bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.ok()) return DiskError("open", path);
  std::string data(static_cast<size_t>(bytes), '\0');
  const int64_t got = ReadAt(file.get(), begin, absl::MakeSpan(data));
  if (got < 0) return DiskError("read", path);
  data.resize(static_cast<size_t>(got));
  return data;
}

}  // namespace

KeptLogs::KeptLogs(Options options) : options_(std::move(options)) {}

std::string KeptLogs::PathOf(const JobId& job, const SegmentKey& segment) const {
  const auto& [rank, incarnation, begin] = segment;
  return absl::StrCat(options_.folder, "/", job, "/", rank.value(), "-", incarnation.value(), "-",
                      begin);
}

absl::Status KeptLogs::Open(const std::function<bool(const JobId&)>& is_known) {
  MakePrivateFolders(options_.folder);  // Checked below.
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, JobId>> by_time;
  for (const auto& folder : fs::directory_iterator(options_.folder, error)) {
    if (!folder.is_directory(error)) continue;
    const JobId id = folder.path().filename().string();
    if (!is_known(id)) {
      RemoveSegments(folder.path());
      continue;
    }
    Job& job = jobs_[id];
    fs::file_time_type newest = fs::file_time_type::min();
    for (const auto& file : fs::directory_iterator(folder.path(), error)) {
      SegmentKey segment;
      if (!ParseName(file.path().filename().string(), segment)) continue;
      const auto bytes = static_cast<int64_t>(file.file_size(error));
      if (error) continue;
      job.segments[segment] = bytes;
      bytes_ += bytes;
      newest = std::max(newest, file.last_write_time(error));
    }
    by_time.emplace_back(newest, id);
  }
  std::sort(by_time.begin(), by_time.end());
  for (const auto& [time, id] : by_time) jobs_[id].written = ++writes_;
  if (fs::is_directory(options_.folder)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot make the folder ", options_.folder));
}

std::map<KeptLogs::SegmentKey, int64_t>::const_iterator KeptLogs::LastOf(const Job& job, Rank rank,
                                                                         Incarnation incarnation) {
  auto next = job.segments.upper_bound({rank, incarnation, std::numeric_limits<int64_t>::max()});
  if (next == job.segments.begin()) return job.segments.end();
  --next;
  const bool same = std::get<0>(next->first) == rank && std::get<1>(next->first) == incarnation;
  return same ? next : job.segments.end();
}

absl::StatusOr<int64_t> KeptLogs::Keep(const JobId& id, Rank rank, Incarnation incarnation,
                                       int64_t offset, const std::string& data) {
  const auto known = jobs_.find(id);
  int64_t end = 0;
  SegmentKey segment{rank, incarnation, offset};
  int64_t in_segment = 0;
  if (known != jobs_.end()) {
    const auto last = LastOf(known->second, rank, incarnation);
    if (last != known->second.segments.end()) {
      end = std::get<2>(last->first) + last->second;
      if (offset <= end && last->second < kSegmentBytes) {
        segment = last->first;
        in_segment = last->second;
      }
    }
  }
  const int64_t there = std::max<int64_t>(0, end - offset);  // Bytes of `data` already stored.
  if (there >= static_cast<int64_t>(data.size())) return end;
  const std::string fresh = data.substr(static_cast<size_t>(there));
  const auto bytes = static_cast<int64_t>(fresh.size());
  CAPSTAN_RETURN_IF_ERROR(MakeRoom(id, bytes));
  if (in_segment == 0) {
    std::get<2>(segment) = offset + there;
    MakePrivateFolders(absl::StrCat(options_.folder, "/", id));  // Without it the write fails.
  }
  CAPSTAN_RETURN_IF_ERROR(AppendTo(PathOf(id, segment), in_segment, fresh));
  Job& job = jobs_[id];
  job.segments[segment] = in_segment + bytes;
  job.written = ++writes_;
  bytes_ += bytes;
  TrimRank(id, job, rank);
  return offset + static_cast<int64_t>(data.size());
}

void KeptLogs::RemoveFirst(const JobId& id, Job& job, Rank rank) {
  const auto first = job.segments.lower_bound({rank, Incarnation(0), 0});
  std::error_code error;
  fs::remove(PathOf(id, first->first), error);
  bytes_ -= first->second;
  job.segments.erase(first);
}

void KeptLogs::TrimRank(const JobId& id, Job& job, Rank rank) {
  while (true) {
    const auto first = job.segments.lower_bound({rank, Incarnation(0), 0});
    int64_t behind_first = 0;
    for (auto it = std::next(first); it != job.segments.end() && std::get<0>(it->first) == rank;
         ++it) {
      behind_first += it->second;
    }
    if (behind_first < options_.task_bytes) return;
    RemoveFirst(id, job, rank);
  }
}

absl::Status KeptLogs::MakeRoom(const JobId& writer, int64_t bytes) {
  while (bytes_ + bytes > options_.bytes_max) {
    const JobId* oldest = nullptr;
    for (const auto& [id, job] : jobs_) {
      if (id == writer) continue;
      if (oldest == nullptr || job.written < jobs_.at(*oldest).written) oldest = &id;
    }
    if (oldest == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the kept logs of ", writer, " alone have ", bytes_,
                       " bytes, expected at most ", options_.bytes_max, " with ", bytes, " more"));
    }
    Remove(JobId(*oldest));
  }
  return absl::OkStatus();
}

absl::Status NoKeptLog(const JobId& job, Rank rank) {
  return absl::NotFoundError(
      absl::StrCat("the scheduler keeps no log of ", job, " task ", rank.value()));
}

absl::StatusOr<KeptLogs::Part> KeptLogs::Read(const JobId& id, Rank rank, Incarnation incarnation,
                                              int64_t offset, int64_t bytes_max) const {
  const auto known = jobs_.find(id);
  const auto nothing = [&] { return NoKeptLog(id, rank); };
  if (known == jobs_.end()) return nothing();
  const Job& job = known->second;
  if (incarnation == Incarnation(0)) {
    auto next = job.segments.lower_bound({rank.Next(), Incarnation(0), 0});
    if (next == job.segments.begin()) return nothing();
    incarnation = std::get<1>(std::prev(next)->first);
  }
  const auto last = LastOf(job, rank, incarnation);
  if (last == job.segments.end()) return nothing();
  const int64_t end = std::get<2>(last->first) + last->second;
  if (offset < 0) offset = std::max<int64_t>(0, end + std::max(offset, -end));
  // Find the segment that contains `offset`, or else the first one behind it.
  auto segment = job.segments.lower_bound({rank, incarnation, 0});
  while (segment != last && std::get<2>(segment->first) + segment->second <= offset) ++segment;
  offset = std::max(offset, std::get<2>(segment->first));
  Part part{.data = "", .next_offset = std::min(offset, end), .incarnation = incarnation};
  if (offset >= end) return part;
  const int64_t in_segment = offset - std::get<2>(segment->first);
  CAPSTAN_ASSIGN_OR_RETURN(part.data, ReadFrom(PathOf(id, segment->first), in_segment,
                                               std::min(bytes_max, segment->second - in_segment)));
  part.next_offset = offset + static_cast<int64_t>(part.data.size());
  return part;
}

void KeptLogs::Remove(const JobId& id) {
  const auto job = jobs_.find(id);
  if (job == jobs_.end()) return;
  for (const auto& [segment, bytes] : job->second.segments) bytes_ -= bytes;
  RemoveSegments(fs::path(options_.folder) / id);
  jobs_.erase(job);
}

}  // namespace capstan::scheduler
