#include "common/observability/trace.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time/instant.h"

namespace capstan::trace_test {
namespace {

Instant At(int64_t microseconds) {
  return Instant::FromOrigin(absl::Seconds(50) + absl::Microseconds(microseconds));
}

// An event as a reader of the file sees it.
struct Event {
  std::string kind, name, label;
  double process = 0, lane = 0, begin = 0, duration = 0;
};

std::vector<Event> Read(const Trace& trace) {
  google::protobuf::Struct json;
  REQUIRE(google::protobuf::util::JsonStringToMessage(trace.ToJson(), &json).ok());
  std::vector<Event> events;
  for (const auto& value : json.fields().at("traceEvents").list_value().values()) {
    auto fields = value.struct_value().fields();
    Event event;
    event.kind = fields["ph"].string_value();
    event.name = fields["name"].string_value();
    event.label = fields["args"].struct_value().fields().count("name") == 0
                      ? ""
                      : fields["args"].struct_value().fields().at("name").string_value();
    event.process = fields["pid"].number_value();
    event.lane = fields["tid"].number_value();
    event.begin = fields["ts"].number_value();
    event.duration = fields["dur"].number_value();
    events.push_back(event);
  }
  return events;
}

std::vector<Event> Spans(const Trace& trace) {
  std::vector<Event> spans;
  for (const Event& event : Read(trace)) {
    if (event.kind == "X") spans.push_back(event);
  }
  return spans;
}

TEST_CASE("Trace: times count from the first begin, in microseconds", "[common][trace]") {
  Trace trace("lenet/0", 3, {"forward", "push"});
  trace.Add("push", "shard 1", At(20), At(45));
  trace.Add("forward", "conv \"1\"", At(10), At(15));
  const std::vector<Event> spans = Spans(trace);
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].name == "conv \"1\"");
  CHECK(spans[0].begin == 0);
  CHECK(spans[0].duration == 5);
  CHECK(spans[1].begin == 10);
  CHECK(spans[1].duration == 25);
  CHECK(spans[1].process == 3);
}

TEST_CASE("Trace: tracks have names in their order, and only those that are used",
          "[common][trace]") {
  Trace trace("lenet/0", 0, {"forward", "backward", "push"});
  trace.Add("push", "a", At(0), At(1));
  trace.Add("forward", "b", At(0), At(1));
  std::map<double, std::string> names;
  for (const Event& event : Read(trace)) {
    if (event.name == "thread_name") names[event.lane] = event.label;
    if (event.name == "process_name") CHECK(event.label == "lenet/0");
  }
  REQUIRE(names.size() == 2);
  CHECK(names.begin()->second == "forward");
  CHECK(names.rbegin()->second == "push");
}

TEST_CASE("Trace: spans of a track that overlap lie in lanes of their own", "[common][trace]") {
  Trace trace("lenet/0", 0, {"push", "pull"});
  trace.Add("push", "a", At(0), At(10));
  trace.Add("push", "b", At(5), At(20));
  trace.Add("push", "c", At(10), At(12));  // Where a was.
  trace.Add("pull", "d", At(0), At(30));
  std::map<std::string, double> lane;
  for (const Event& span : Spans(trace)) lane[span.name] = span.lane;
  CHECK(lane["a"] == lane["c"]);
  CHECK(std::set<double>{lane["a"], lane["b"], lane["d"]}.size() == 3);
}

TEST_CASE("Trace: what is beyond the bound is left out and counted", "[common][trace]") {
  Trace trace("lenet/0", 0, {"push"}, /*events_max=*/2);
  for (int i = 0; i < 5; ++i) trace.Add("push", "a", At(i), At(i + 1));
  CHECK(Spans(trace).size() == 2);
  CHECK(trace.left_out() == 3);
}

TEST_CASE("Trace: one without spans is a valid file", "[common][trace]") {
  CHECK(Spans(Trace("lenet/0", 0, {"push"})).empty());
}

}  // namespace
}  // namespace capstan::trace_test
