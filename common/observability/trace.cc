#include "common/observability/trace.h"

#include <algorithm>
#include <cassert>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/observability/json_quote.h"

namespace capstan {
namespace {

// Names a process, or one of its lanes, to which events refer by number.
void AppendName(absl::string_view what, int64_t process, int64_t lane, absl::string_view name,
                std::string* out) {
  absl::StrAppend(out, "{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", process, ",\"tid\":", lane,
                  ",\"args\":{\"name\":", JsonQuote(name), "}},\n");
  if (what != "thread_name") return;
  absl::StrAppend(out, "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":", process,
                  ",\"tid\":", lane, ",\"args\":{\"sort_index\":", lane, "}},\n");
}

}  // namespace

Trace::Trace(std::string process, int64_t number, std::vector<std::string> tracks,
             size_t events_max)
    : process_(std::move(process)),
      number_(number),
      tracks_(std::move(tracks)),
      events_max_(events_max) {}

void Trace::Add(absl::string_view track, absl::string_view name, Instant begin, Instant end) {
  const auto found = std::find(tracks_.begin(), tracks_.end(), track);
  assert(found != tracks_.end() && begin <= end);
  absl::MutexLock lock(&mutex_);
  if (spans_.size() >= events_max_) {
    ++left_out_;
    return;
  }
  spans_.push_back({static_cast<size_t>(found - tracks_.begin()), std::string(name), begin, end});
}

int64_t Trace::left_out() const {
  absl::MutexLock lock(&mutex_);
  return left_out_;
}

Trace::Lanes Trace::Place(std::vector<Span> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.track, a.begin) < std::tie(b.track, b.begin);
  });
  Lanes placed;
  std::vector<Instant> busy_until;  // End of the last span in each lane of the track.
  for (Span& span : spans) {
    if (placed.empty() || placed.back().first.track != span.track) busy_until.clear();
    size_t lane = 0;
    while (lane < busy_until.size() && busy_until[lane] > span.begin) ++lane;
    if (lane == busy_until.size()) busy_until.emplace_back();
    busy_until[lane] = span.end;
    placed.emplace_back(std::move(span), static_cast<int>(lane));
  }
  return placed;
}

std::vector<int> Trace::CountLanes(const Lanes& placed, size_t tracks) {
  std::vector<int> lanes(tracks, 0);
  for (const auto& [span, lane] : placed) lanes[span.track] = std::max(lanes[span.track], lane + 1);
  return lanes;
}

std::string Trace::ToJson() const {
  std::vector<Span> spans;
  {
    absl::MutexLock lock(&mutex_);
    spans = spans_;
  }
  const Lanes placed = Place(std::move(spans));
  const std::vector<int> lanes = CountLanes(placed, tracks_.size());
  Instant start = Instant::InfiniteFuture();
  for (const auto& [span, lane] : placed) start = std::min(start, span.begin);
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  AppendName("process_name", number_, 0, process_, &json);
  std::vector<int> first(tracks_.size());  // The number of each track's first lane.
  int next = 1;
  for (size_t track = 0; track < tracks_.size(); ++track) {
    first[track] = next;
    for (int lane = 0; lane < lanes[track]; ++lane) {
      AppendName("thread_name", number_, next++,
                 lane == 0 ? tracks_[track] : absl::StrCat(tracks_[track], " ", lane + 1), &json);
    }
  }
  for (const auto& [span, lane] : placed) {
    absl::StrAppend(&json, "{\"ph\":\"X\",\"name\":", JsonQuote(span.name),
                    ",\"cat\":", JsonQuote(tracks_[span.track]), ",\"pid\":", number_,
                    ",\"tid\":", first[span.track] + lane);
    absl::StrAppendFormat(&json, ",\"ts\":%.3f,\"dur\":%.3f},\n",
                          absl::ToDoubleMicroseconds(span.begin - start),
                          absl::ToDoubleMicroseconds(span.end - span.begin));
  }
  json.erase(json.size() - 2, 1);  // JSON allows no comma behind the last element.
  absl::StrAppend(&json, "]}\n");
  return json;
}

}  // namespace capstan
