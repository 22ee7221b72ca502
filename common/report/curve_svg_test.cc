#include "common/report/curve_svg.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

namespace capstan::curve_svg_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Every element is closed, and no number came out as "nan" or "inf".
void CheckWellFormed(const std::string& svg) {
  CHECK_THAT(svg, Catch::StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "));
  CHECK_THAT(svg, Catch::EndsWith("</svg>\n"));
  CHECK(Count(svg, "<text ") == Count(svg, "</text>"));
  CHECK(Count(svg, "<title>") == 1);
  for (const char* const name : {"line", "polyline", "circle", "rect"}) {
    for (size_t at = svg.find(std::string("<") + name + " "); at != std::string::npos;
         at = svg.find(std::string("<") + name + " ", at + 1)) {
      const size_t end = svg.find('>', at);
      REQUIRE(end != std::string::npos);
      CHECK(svg[end - 1] == '/');
    }
  }
  CHECK(Count(svg, "nan") == 0);
  CHECK(Count(svg, "\"inf") + Count(svg, ",inf") + Count(svg, "-inf") == 0);
}

Curve Example() {
  Curve curve = {.title = "lenet-1", .subtitle = "SSP(2), 2 workers", .points = {}, .epochs = {}};
  for (int i = 1; i <= 300; ++i) {
    const double decay = std::exp(-i / 80.0);
    curve.points.push_back({i * 10, 0.3 + 2.0 * decay, 0.9 - 0.8 * decay});
  }
  for (int e = 0; e < 3; ++e)
    curve.epochs.push_back({e, (e + 1) * 1000, 0.4 - 0.05 * e, 0.85 + 0.03 * e});
  return curve;
}

TEST_CASE("CurveSvg: shows lines, axes, epoch marks, title and legend", "[common][report]") {
  const std::string svg = CurveSvg(Example());
  CheckWellFormed(svg);
  for (const char* const text :
       {">lenet-1</text>", ">SSP(2), 2 workers</text>", ">loss</text>", ">accuracy</text>",
        ">iteration</text>", ">training loss</text>", ">training accuracy</text>",
        ">test loss</text>", ">test accuracy</text>", ">epoch 1</text>", ">epoch 3</text>",
        ">100 %</text>", ">2,000</text>", ">91.00 %</text>", "fill=\"#ffffff\""}) {
    INFO(text);
    CHECK(Count(svg, text) >= 1);
  }
  CHECK(Count(svg, "<polyline") == 4);
  CHECK(Count(svg, "class=\"epoch\"") == 3);
  CHECK(Count(svg, "r=\"4\"") == 3 + 3 + 2);  // Dots of both test lines, and two in the legend.
}

TEST_CASE("CurveSvg: the AUC is a line of dots of its own, and the figure beside the last one",
          "[common][report]") {
  Curve curve = Example();
  curve.epochs[0].test_auc = 0.7;
  curve.epochs[2].test_auc = 0.8125;
  const std::string svg = CurveSvg(curve);
  CheckWellFormed(svg);
  CHECK(Count(svg, "<polyline") == 5);
  CHECK(Count(svg, "r=\"4\"") == 3 + 3 + 2 + 3);
  CHECK(Count(svg, ">test AUC</text>") == 1);
  CHECK(Count(svg, ">81.25 %</text>") == 2);  // The text and its outline.
  CHECK(Count(svg, ">91.00 %</text>") == 0);
}

TEST_CASE("CurveSvg: without accuracy there is no right axis", "[common][report]") {
  Curve curve = Example();
  curve.with_accuracy = false;
  curve.epochs[0].test_auc = 0.7;
  const std::string svg = CurveSvg(curve);
  CheckWellFormed(svg);
  CHECK(Count(svg, "<polyline") == 2);
  CHECK(Count(svg, "r=\"4\"") == 3 + 1);
  CHECK(Count(svg, "%</text>") == 0);
  CHECK(Count(svg, "accuracy") + Count(svg, "AUC") == 0);
  CHECK(Count(svg, ">test loss</text>") == 1);
}

TEST_CASE("CurveSvg: the legend names no accuracy that is nowhere", "[common][report]") {
  Curve curve = Example();
  for (CurvePoint& point : curve.points) point.accuracy = kNan;
  const std::string tested = CurveSvg(curve);
  CHECK(Count(tested, ">training accuracy</text>") == 0);
  CHECK(Count(tested, ">test accuracy</text>") == 1);
  curve = Example();
  for (CurveEpoch& epoch : curve.epochs) epoch.test_accuracy = kNan;
  const std::string trained = CurveSvg(curve);
  CHECK(Count(trained, ">training accuracy</text>") == 1);
  CHECK(Count(trained, ">test accuracy</text>") == 0);
}

TEST_CASE("CurveSvg: no data gives empty axes that say so", "[common][report]") {
  const std::string svg = CurveSvg({});
  CheckWellFormed(svg);
  CHECK(Count(svg, "no data yet") == 1);
  CHECK(Count(svg, "<polyline") == 0);
  CHECK(Count(svg, "test loss") == 0);
}

TEST_CASE("CurveSvg: a single point is drawn", "[common][report]") {
  const std::string svg =
      CurveSvg({.title = "x", .subtitle = "", .points = {{5, 1.0, 0.5}}, .epochs = {}});
  CheckWellFormed(svg);
  CHECK(Count(svg, "<polyline") == 2);
}

TEST_CASE("CurveSvg: values that are not finite leave gaps, not broken numbers",
          "[common][report]") {
  Curve curve = Example();
  curve.points[100].loss = kNan;
  curve.points[200].loss = kInfinity;
  curve.points[150].accuracy = -kInfinity;
  curve.epochs[1].test_accuracy = kNan;
  const std::string svg = CurveSvg(curve);
  CheckWellFormed(svg);
  CHECK(Count(svg, "<polyline") == 3 + 2 + 1 + 1);
  for (CurvePoint& point : curve.points) point.loss = point.accuracy = kNan;
  for (CurveEpoch& epoch : curve.epochs) epoch.test_loss = epoch.test_accuracy = kInfinity;
  const std::string empty = CurveSvg(curve);
  CheckWellFormed(empty);
  CHECK(Count(empty, "<polyline") == 0);
}

TEST_CASE("CurveSvg: extreme values stay inside the frame", "[common][report]") {
  const double huge = std::numeric_limits<double>::max();
  const Curve curve = {.title = "x",
                       .subtitle = "",
                       .points = {{0, huge, 2.0},
                                  {1, -huge, -3.0},
                                  {-5, huge, huge},
                                  {std::numeric_limits<int64_t>::max(), 5e-324, 0.5}},
                       .epochs = {{0, std::numeric_limits<int64_t>::max(), huge, huge}}};
  CheckWellFormed(CurveSvg(curve));
}

TEST_CASE("CurveSvg: an outlier does not flatten the loss axis", "[common][report]") {
  Curve curve = Example();
  curve.epochs.clear();
  curve.points[0].loss = 1e6;
  const std::string svg = CurveSvg(curve);
  CheckWellFormed(svg);
  CHECK(Count(svg, ">2.5</text>") == 1);
}

TEST_CASE("CurveSvg: text is escaped", "[common][report]") {
  const std::string svg =
      CurveSvg({.title = "a<b>&\x01", .subtitle = "</svg>", .points = {}, .epochs = {}});
  CheckWellFormed(svg);
  CHECK(Count(svg, ">a&lt;b&gt;&amp;</text>") == 1);
  CHECK(Count(svg, "</svg>") == 1);
}

TEST_CASE("CurveSvg: a long job gives a bounded picture", "[common][report]") {
  Curve curve;
  for (int i = 0; i < 100000; ++i) curve.points.push_back({i, 1.0, 0.5});
  for (int e = 0; e < 500; ++e) curve.epochs.push_back({e, (e + 1) * 200, 0.4, 0.85});
  const std::string svg = CurveSvg(curve);
  CheckWellFormed(svg);
  CHECK(svg.size() < 120 * 1024);
  CHECK(Count(svg, "class=\"epoch\"") <= 12);
}

}  // namespace
}  // namespace capstan::curve_svg_test
