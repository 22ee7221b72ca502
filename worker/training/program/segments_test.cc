#include "worker/training/program/segments.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "common/model/plan_model.h"
#include "common/model/zoo.h"
#include "common/testing/status_matchers.h"
#include "proto/job.pb.h"
#include "worker/training/program/build_program.h"

namespace capstan::worker::segments_test {
namespace {

struct Model {
  ModelPlan plan;
  Program program;
};

Model Make(const std::string& zoo) {
  v1::Model model;
  REQUIRE(google::protobuf::TextFormat::ParseFromString("zoo: '" + zoo + "'", &model));
  REQUIRE_OK_AND_ASSIGN(ModelPlan plan, PlanModel(model, {32, 32, 3}, 10));
  REQUIRE_OK_AND_ASSIGN(Program program, BuildProgram(plan, 2, ProgramKind::kTraining));
  return {std::move(plan), std::move(program)};
}

void CheckCovers(const std::vector<Segment>& segments, const std::vector<Step>& steps) {
  size_t end = 0;
  for (const Segment& segment : segments) {
    CHECK(segment.begin == end);
    CHECK(segment.end > segment.begin);
    end = segment.end;
  }
  CHECK(end == steps.size());
}

// Checks the properties of any cut: each step's parameters are there before its segment, and no
// later segment uses elements from done_from on.
void CheckCut(const Model& model, int64_t part_elements) {
  const Segments cut = CutIntoSegments(model.program, model.plan.parameter_count, part_elements);
  CheckCovers(cut.forward, model.program.forward);
  CheckCovers(cut.backward, model.program.backward);
  int64_t before = 0;
  for (const Segment& segment : cut.forward) {
    for (size_t i = segment.begin; i < segment.end; ++i) {
      CHECK(ParametersEnd(model.program.forward[i]) <= segment.reads_end);
    }
    CHECK(segment.reads_end >= before);
    before = segment.reads_end;
  }
  CHECK(before == model.plan.parameter_count);
  int64_t told = model.plan.parameter_count;
  for (size_t s = 0; s < cut.backward.size(); ++s) {
    const Segment& segment = cut.backward[s];
    const bool last = s + 1 == cut.backward.size();
    CHECK((last || told - segment.done_from >= part_elements));
    told = segment.done_from;
    for (size_t i = segment.end; i < model.program.backward.size(); ++i) {
      CHECK(ParametersEnd(model.program.backward[i]) <= segment.done_from);
    }
  }
  CHECK(told == 0);
}

TEST_CASE("Segments: parameters are there before they are read, and told once done with",
          "[worker][training]") {
  for (const std::string& zoo : ZooNames()) {
    INFO(zoo);
    const Model model = Make(zoo);
    const int64_t all = model.plan.parameter_count;
    for (const int64_t part : {int64_t{1}, all / 8, all / 2, all, 2 * all}) CheckCut(model, part);
  }
}

TEST_CASE("Segments: with parts of one element each layer is a segment of its own",
          "[worker][training]") {
  const Model model = Make("lenet");
  const Segments cut = CutIntoSegments(model.program, model.plan.parameter_count, 1);
  // These are two convolutions with pools and two fully connected layers, the last with the loss.
  REQUIRE(cut.forward.size() == 4);
  CHECK(cut.forward[0].end == 2);
  CHECK(cut.forward[1].end == 4);
  CHECK(cut.forward[3].reads_end == model.plan.parameter_count);
  // Except in the first layer the bias is final in a step before the weights.
  CHECK(cut.backward.size() == 7);
}

TEST_CASE("Segments: with parts as large as the model there is one of each pass",
          "[worker][training]") {
  const Model model = Make("resnet20");
  const Segments cut =
      CutIntoSegments(model.program, model.plan.parameter_count, model.plan.parameter_count);
  CHECK(cut.forward.size() == 1);
  CHECK(cut.backward.size() == 1);
}

TEST_CASE("Segments: evaluation has no backward segments", "[worker][training]") {
  const Model model = Make("lenet");
  REQUIRE_OK_AND_ASSIGN(const Program evaluation,
                        BuildProgram(model.plan, 2, ProgramKind::kEvaluation));
  const Segments cut = CutIntoSegments(evaluation, model.plan.parameter_count, 1);
  CHECK(cut.backward.empty());
  CheckCovers(cut.forward, evaluation.forward);
}

}  // namespace
}  // namespace capstan::worker::segments_test
