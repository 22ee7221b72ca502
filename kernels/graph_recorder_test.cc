#include "kernels/graph_recorder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"

namespace capstan::kernels::graph_recorder_test {
namespace {

// Logs the calls that it gets, in order.
class FakeDevice : public GraphDevice {
 public:
  std::vector<std::string> log;
  absl::Status begin;
  absl::Status end;
  absl::Status launch;
  std::vector<std::string> refused;

  void CaptureRefused(const std::string& reason) override {
    GraphDevice::CaptureRefused(reason);
    refused.push_back(reason);
  }
  absl::Status BeginCapture() override {
    log.push_back("begin");
    return begin;
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    log.push_back("end");
    if (!end.ok()) return end;
    return std::unique_ptr<DeviceGraph>(std::make_unique<Graph>(*this));
  }
  // Enqueues an op.
  absl::Status Op(const std::string& name) {
    log.push_back(name);
    return absl::OkStatus();
  }

 private:
  class Graph : public DeviceGraph {
   public:
    explicit Graph(FakeDevice& device) : device_(device) {}
    absl::Status Launch() override {
      device_.log.push_back("launch");
      return device_.launch;
    }

   private:
    FakeDevice& device_;
  };
};

using Log = std::vector<std::string>;

TEST_CASE("Graph recorder: runs once plainly, records, then launches", "[kernels]") {
  FakeDevice device;
  GraphRecorder recorder(device);
  const auto step = [&] { return device.Op("op"); };
  REQUIRE_OK(recorder.Run(step));
  CHECK_FALSE(recorder.recorded());
  REQUIRE_OK(recorder.Run(step));
  CHECK(recorder.recorded());
  REQUIRE_OK(recorder.Run(step));
  CHECK(device.log == Log{"op", "begin", "op", "end", "launch", "launch"});
  CHECK(recorder.reason().empty());
  CHECK(device.captures_refused() == 0);
}

TEST_CASE("Graph recorder: a step that cannot be recorded runs plainly, with the reason",
          "[kernels]") {
  FakeDevice device;
  GraphRecorder recorder(device);
  bool recording = false;
  const auto step = [&]() -> absl::Status {
    recording = device.log.size() == 2;  // "op", "begin".
    if (recording) return absl::FailedPreconditionError("a wait cannot");
    return device.Op("op");
  };
  for (int i = 0; i < 3; ++i) REQUIRE_OK(recorder.Run(step));
  CHECK(device.log == Log{"op", "begin", "end", "op", "op"});
  CHECK(recorder.reason() == "a wait cannot");
  CHECK(device.refused == std::vector<std::string>{"a wait cannot"});
  CHECK(device.captures_refused() == 1);
  CHECK(device.last_refusal() == "a wait cannot");
  CHECK_FALSE(recorder.recorded());
}

TEST_CASE("Graph recorder: a device that refuses is asked once", "[kernels]") {
  FakeDevice device;
  GraphRecorder recorder(device);
  const auto step = [&] { return device.Op("op"); };
  SECTION("at the beginning") {
    device.begin = absl::FailedPreconditionError("busy");
    for (int i = 0; i < 3; ++i) REQUIRE_OK(recorder.Run(step));
    CHECK(device.log == Log{"op", "begin", "op", "op"});
    CHECK(recorder.reason() == "busy");
  }
  SECTION("at the end") {
    device.end = absl::FailedPreconditionError("invalid");
    for (int i = 0; i < 3; ++i) REQUIRE_OK(recorder.Run(step));
    CHECK(device.log == Log{"op", "begin", "op", "end", "op", "op"});
    CHECK(recorder.reason() == "invalid");
  }
}

TEST_CASE("Graph recorder: errors of the step and of the launch are told", "[kernels]") {
  FakeDevice device;
  GraphRecorder recorder(device);
  CHECK_STATUS(recorder.Run([] { return absl::InternalError("broken"); }),
               absl::StatusCode::kInternal, "broken");
  const auto step = [&] { return device.Op("op"); };
  REQUIRE_OK(recorder.Run(step));  // The failed run does not count as the first.
  CHECK(device.log == Log{"op"});
  device.launch = absl::InternalError("lost");
  CHECK_STATUS(recorder.Run(step), absl::StatusCode::kInternal, "lost");
}

TEST_CASE("Graph recorder: after a reset it begins again", "[kernels]") {
  FakeDevice device;
  GraphRecorder recorder(device);
  const auto step = [&] { return device.Op("op"); };
  for (int i = 0; i < 2; ++i) REQUIRE_OK(recorder.Run(step));
  recorder.Reset();
  CHECK_FALSE(recorder.recorded());
  device.log.clear();
  for (int i = 0; i < 2; ++i) REQUIRE_OK(recorder.Run(step));
  CHECK(device.log == Log{"op", "begin", "op", "end", "launch"});
}

}  // namespace
}  // namespace capstan::kernels::graph_recorder_test
