// Tests what a StepObserver is told of a network's steps, on the host and on a device.
#include "worker/training/step/step_observer.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/model/initial_values.h"
#include "common/model/tables.h"
#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/testing/fake_device.h"
#include "worker/training/network.h"
#include "worker/training/testing/small_nets.h"

namespace capstan::worker::step_observer_test {
namespace {

using Part = StepObserver::Part;

constexpr int64_t kBatch = 4;

// An observer whose clock advances by a microsecond per call, and that records all spans.
class Notes final : public StepObserver {
 public:
  struct Note {
    Part part;
    std::string what;
    Instant begin, end;
  };
  bool Watches() override { return watches; }
  Instant Now() override {
    now_ = now_ + absl::Microseconds(1);
    return now_;
  }
  void Ran(Part part, const std::string& what, Instant begin, Instant end) override {
    notes.push_back({part, what, begin, end});
  }
  std::vector<Note> Of(Part part) const {
    std::vector<Note> found;
    for (const Note& note : notes) {
      if (note.part == part) found.push_back(note);
    }
    return found;
  }

  bool watches = true;
  std::vector<Note> notes;

 private:
  Instant now_;
};

struct Steps {
  Steps(kernels::Backend& backend, StepObserver* observer)
      : plan(PlanSmallNet(kSmallNets[0].text, kSmallNets[0].input)) {
    auto created = Network::Create(plan, backend, kBatch, observer);
    REQUIRE_OK(created);
    network = std::move(created).value();
    parameters.resize(static_cast<size_t>(plan.parameter_count));
    FillInitialValues(MakeTables(plan)[0], 3, 0, absl::MakeSpan(parameters));
    gradient.resize(parameters.size());
  }
  void Train() {
    REQUIRE_OK(network->Train(batch().view(), parameters, 1.0f, 1, absl::MakeSpan(gradient), {}));
  }
  void Evaluate() { REQUIRE_OK(network->Evaluate(batch().view(), parameters, {})); }
  const Batch& batch() {
    if (batch_.labels.empty()) batch_ = RandomBatch(plan, kBatch);
    return batch_;
  }

  ModelPlan plan;
  std::unique_ptr<Network> network;
  std::vector<float> parameters, gradient;

 private:
  Batch batch_;
};

TEST_CASE("Step observer: learns of each layer on the host, in order", "[worker][training]") {
  const auto backend = kernels::MakeCpuBackend();
  Notes notes;
  Steps steps(*backend, &notes);
  steps.Train();
  const auto forward = notes.Of(Part::kForward);
  const auto backward = notes.Of(Part::kBackward);
  REQUIRE(forward.size() == 4);
  CHECK_THAT(forward[0].what, Catch::StartsWith("layer \"c\" convolution_forward"));
  CHECK_THAT(forward[3].what, Catch::StartsWith("loss softmax_cross_entropy_forward"));
  CHECK_THAT(backward.front().what, Catch::StartsWith("loss softmax_cross_entropy_backward"));
  CHECK_THAT(backward.back().what, Catch::StartsWith("layer \"c\" convolution_backward_weights"));
  CHECK(notes.notes.size() == forward.size() + backward.size());  // Nothing is copied.
  for (size_t i = 1; i < notes.notes.size(); ++i) {
    CHECK(notes.notes[i].begin > notes.notes[i - 1].end);
  }
}

TEST_CASE("Step observer: learns only of training steps that it watches", "[worker][training]") {
  const auto backend = kernels::MakeCpuBackend();
  Notes notes;
  Steps steps(*backend, &notes);
  steps.Evaluate();
  notes.watches = false;
  steps.Train();
  CHECK(notes.notes.empty());
}

TEST_CASE("Step observer: sees a device's parts, each gradient after its segment, same bits",
          "[worker][training]") {
  for (uint64_t seed = 0; seed < 2 * kernels::kFakeDeviceOrders; ++seed) {
    kernels::FakeDevice device(kernels::MakeCpuBackend(), {.seed = seed});
    kernels::FakeDevice unwatched(kernels::MakeCpuBackend(), {.seed = seed});
    Notes notes;
    Steps steps(device, &notes), others(unwatched, nullptr);
    for (int step = 0; step < 3; ++step) {  // The steps are run, then recorded, then launched.
      notes.notes.clear();
      steps.Train();
      others.Train();
      CHECK(steps.gradient == others.gradient);
      const auto forward = notes.Of(Part::kForward), backward = notes.Of(Part::kBackward);
      const auto up = notes.Of(Part::kUpload), down = notes.Of(Part::kDownload);
      REQUIRE(forward.size() > 1);
      REQUIRE(up.size() == forward.size() + 1);  // The batch, and each segment's parameters.
      REQUIRE(down.size() == backward.size());
      for (size_t i = 0; i < forward.size(); ++i) CHECK(up[i + 1].end <= forward[i].begin);
      for (size_t i = 0; i < down.size(); ++i) CHECK(down[i].begin >= backward[i].end);
      CHECK(up[0].what == "batch of 4");
      CHECK_THAT(up[1].what, Catch::StartsWith("parameters [0, "));
      CHECK_THAT(down.back().what, Catch::StartsWith("gradient [0, "));
    }
    CHECK(device.counts().launches > 0);
  }
}

}  // namespace
}  // namespace capstan::worker::step_observer_test
