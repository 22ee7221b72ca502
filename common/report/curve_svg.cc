#include "common/report/curve_svg.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

constexpr double kWidth = 860, kHeight = 500;
constexpr double kLeft = 70, kRight = 790, kTop = 78, kBottom = 400;  // The frame of the plot.
constexpr int kIntervals = 5;           // Both vertical axes have them, so they share grid lines.
constexpr size_t kPointsMax = 600;      // The most points of a line, about one a pixel of width.
constexpr size_t kEpochLabelsMax = 12;  // More would overlap.
constexpr double kOutlierShare = 0.02;
constexpr absl::string_view kLossColor = "#1f5fa8";
constexpr absl::string_view kAccuracyColor = "#c4551a";
constexpr absl::string_view kAucColor = "#2f7d4f";
constexpr absl::string_view kGray = "#666666";

struct XY {
  double x, y;
};

// Axis ranges: x [0, x_max] iterations, loss [0, loss_max].
struct Scale {
  double x_max = 1.0;
  double loss_max = 1.0;

  double X(double iteration) const {
    return kLeft + (kRight - kLeft) * std::clamp(iteration / x_max, 0.0, 1.0);
  }
  double Y(double share) const { return kBottom - (kBottom - kTop) * std::clamp(share, 0.0, 1.0); }
};

// Escapes text for XML; control characters, which XML 1.0 forbids, are left out.
std::string Escape(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out.push_back(c);
    }
  }
  return out;
}

// 12345 -> "12,345".
std::string Thousands(int64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t i = digits.size(); i > 3 && i - 3 > 0; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

// Returns the smallest of 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10 times a power of ten that is >= value >
// 0.
double RoundStep(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Returns the highest training loss, or, where outliers stand out, the highest that is no outlier.
double HighestTrainingLoss(const std::vector<CurvePoint>& points) {
  std::vector<double> losses;
  for (const CurvePoint& point : points) {
    if (std::isfinite(point.loss)) losses.push_back(std::max(point.loss, 0.0));
  }
  if (losses.empty()) return 0.0;
  std::sort(losses.begin(), losses.end());
  const double last = static_cast<double>(losses.size() - 1);
  const double usual = losses[static_cast<size_t>(std::ceil(last * (1.0 - kOutlierShare)))];
  return losses.back() / 2 > usual ? usual : losses.back();
}

// Returns the highest loss that the axis has to show; 0 if there is none.
double HighestLoss(const Curve& curve) {
  double highest = HighestTrainingLoss(curve.points);
  for (const CurveEpoch& epoch : curve.epochs) {
    if (std::isfinite(epoch.test_loss)) highest = std::max(highest, epoch.test_loss);
  }
  return highest;
}

Scale MakeScale(const Curve& curve) {
  Scale scale;
  for (const CurvePoint& point : curve.points) {
    scale.x_max = std::max(scale.x_max, static_cast<double>(point.iteration));
  }
  for (const CurveEpoch& epoch : curve.epochs) {
    scale.x_max = std::max(scale.x_max, static_cast<double>(epoch.last_iteration));
  }
  const double highest = HighestLoss(curve);
  // Below and above these bounds a step of the axis would leave the range of double.
  if (highest > 1e-300)
    scale.loss_max = kIntervals * RoundStep(std::min(highest, 1e300) / kIntervals);
  return scale;
}

void Text(std::string* out, XY at, absl::string_view anchor, int size, absl::string_view color,
          absl::string_view text, absl::string_view extra = "") {
  absl::StrAppendFormat(out,
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" "
                        "fill=\"%s\"%s>%s</text>\n",
                        at.x, at.y, anchor, size, color, extra, Escape(text));
}

void Line(std::string* out, XY from, XY to, absl::string_view color, absl::string_view extra = "") {
  absl::StrAppendFormat(out,
                        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"%s/>\n",
                        from.x, from.y, to.x, to.y, color, extra);
}

void Polyline(std::string* out, const std::vector<XY>& points, absl::string_view color,
              absl::string_view extra) {
  if (points.empty()) return;
  absl::StrAppend(out, "<polyline fill=\"none\" stroke=\"", color,
                  "\" stroke-linejoin=\"round\" stroke-linecap=\"round\"", extra, " points=\"");
  for (const XY& point : points) absl::StrAppendFormat(out, "%.1f,%.1f ", point.x, point.y);
  if (points.size() == 1) absl::StrAppendFormat(out, "%.1f,%.1f ", points[0].x, points[0].y);
  absl::StrAppend(out, "\"/>\n");
}

// Draws a line through values over iterations, averaged to kPointsMax and cut where a value is not
// finite.
void ValueLine(std::string* out, const std::vector<XY>& values, const Scale& scale, double top,
               absl::string_view color) {
  const size_t each = (values.size() + kPointsMax - 1) / kPointsMax;
  std::vector<XY> segment;
  for (size_t begin = 0; begin < values.size(); begin += each) {
    const size_t end = std::min(begin + each, values.size());
    XY sum = {0.0, 0.0};
    for (size_t i = begin; i < end; ++i) sum = {sum.x + values[i].x, sum.y + values[i].y / top};
    const auto count = static_cast<double>(end - begin);
    if (std::isfinite(sum.y)) {
      segment.push_back({scale.X(sum.x / count), scale.Y(sum.y / count)});
    } else {
      Polyline(out, segment, color, " stroke-width=\"1.5\"");
      segment.clear();
    }
  }
  Polyline(out, segment, color, " stroke-width=\"1.5\"");
}

// Draws dots joined by a dashed line; those that are not finite are left out.
void Dots(std::string* out, const std::vector<XY>& values, const Scale& scale, double top,
          absl::string_view color) {
  std::vector<XY> points;
  for (const XY& value : values) {
    if (std::isfinite(value.y)) points.push_back({scale.X(value.x), scale.Y(value.y / top)});
  }
  Polyline(out, points, color, " stroke-width=\"1.2\" stroke-dasharray=\"5 3\"");
  for (const XY& point : points) {
    absl::StrAppendFormat(out,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" stroke=\"#ffffff\" "
                          "stroke-width=\"1.5\"/>\n",
                          point.x, point.y, color);
  }
}

void Grid(std::string* out, const Scale& scale, bool with_accuracy) {
  for (int i = 0; i <= kIntervals; ++i) {
    const double share = static_cast<double>(i) / kIntervals;
    const double y = scale.Y(share);
    Line(out, {kLeft, y}, {kRight, y}, "#e4e4e4");
    Text(out, {kLeft - 8, y + 4}, "end", 12, kLossColor,
         absl::StrFormat("%.4g", share * scale.loss_max));
    if (!with_accuracy) continue;
    Text(out, {kRight + 8, y + 4}, "start", 12, kAccuracyColor,
         absl::StrFormat("%.0f %%", share * 100));
  }
  const double step = std::max(1.0, RoundStep(scale.x_max / 8));
  for (int i = 0; i * step <= scale.x_max; ++i) {
    const double x = scale.X(i * step);
    Line(out, {x, kBottom}, {x, kBottom + 5}, kGray);
    Text(out, {x, kBottom + 20}, "middle", 12, kGray,
         Thousands(static_cast<int64_t>(std::round(i * step))));
  }
}

void EpochMarks(std::string* out, const Curve& curve, const Scale& scale) {
  const size_t each = (curve.epochs.size() + kEpochLabelsMax - 1) / kEpochLabelsMax;
  for (size_t i = 0; i < curve.epochs.size(); ++i) {
    if (i % each != each - 1) continue;
    const double x = scale.X(static_cast<double>(curve.epochs[i].last_iteration));
    Line(out, {x, kTop}, {x, kBottom}, "#b8b8b8", " stroke-dasharray=\"3 3\" class=\"epoch\"");
    Text(out, {x, kTop - 6}, "middle", 11, kGray,
         absl::StrCat("epoch ", curve.epochs[i].epoch + 1));
  }
}

void Frame(std::string* out, bool with_accuracy) {
  absl::StrAppendFormat(out,
                        "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" fill=\"none\" "
                        "stroke=\"#888888\"/>\n",
                        kLeft, kTop, kRight - kLeft, kBottom - kTop);
  const double middle = (kTop + kBottom) / 2;
  Text(out, {22, middle}, "middle", 13, kLossColor, "loss",
       absl::StrFormat(" transform=\"rotate(-90 22 %.0f)\"", middle));
  if (with_accuracy) {
    Text(out, {842, middle}, "middle", 13, kAccuracyColor, "accuracy",
         absl::StrFormat(" transform=\"rotate(90 842 %.0f)\"", middle));
  }
  Text(out, {(kLeft + kRight) / 2, kBottom + 42}, "middle", 13, kGray, "iteration");
}

// Says what the plot shows beside the training loss.
struct Shown {
  bool accuracy = true;  // One of the splits has accuracies.
  bool training_accuracy = false;
  bool test = false;
  bool test_accuracy = false;
  bool auc = false;
};

Shown ShownOf(const Curve& curve) {
  Shown shown{.accuracy = curve.with_accuracy};
  shown.training_accuracy =
      shown.accuracy && (curve.points.empty() ||
                         std::any_of(curve.points.begin(), curve.points.end(),
                                     [](const auto& p) { return std::isfinite(p.accuracy); }));
  for (const CurveEpoch& epoch : curve.epochs) {
    shown.auc = shown.auc || (shown.accuracy && std::isfinite(epoch.test_auc));
    shown.test_accuracy =
        shown.test_accuracy || (shown.accuracy && std::isfinite(epoch.test_accuracy));
    shown.test =
        shown.test || shown.auc || shown.test_accuracy || std::isfinite(epoch.test_loss);
  }
  return shown;
}

void Legend(std::string* out, const Shown& shown, const std::string& evaluated) {
  struct Entry {
    std::string name;
    absl::string_view color;
    bool test;
  };
  std::vector<Entry> entries = {{"training loss", kLossColor, false}};
  if (shown.training_accuracy) entries.push_back({"training accuracy", kAccuracyColor, false});
  if (shown.test) entries.push_back({evaluated + " loss", kLossColor, true});
  if (shown.test_accuracy) entries.push_back({evaluated + " accuracy", kAccuracyColor, true});
  if (shown.auc) entries.push_back({evaluated + " AUC", kAucColor, true});
  double x = 440 - 65 * static_cast<double>(entries.size());
  for (const Entry& entry : entries) {
    const double y = kBottom + 70;
    Line(out, {x, y}, {x + 24, y}, entry.color,
         entry.test ? " stroke-width=\"1.2\" stroke-dasharray=\"5 3\"" : " stroke-width=\"2\"");
    if (entry.test) {
      absl::StrAppendFormat(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x + 12,
                            y, entry.color);
    }
    Text(out, {x + 30, y + 4}, "start", 12, "#222222", entry.name);
    x += 50 + 6.6 * static_cast<double>(entry.name.size());
  }
}

// Writes the last finite value of the test set, a share, in figures beside its dot.
void LastInFigures(std::string* out, const std::vector<XY>& values, const Scale& scale,
                   absl::string_view color) {
  for (auto value = values.rbegin(); value != values.rend(); ++value) {
    if (!std::isfinite(value->y)) continue;
    const XY at = {scale.X(value->x), scale.Y(value->y)};
    const XY corner = {at.x - 8, at.y < kTop + 30 ? at.y + 20 : at.y - 10};
    const std::string text = absl::StrFormat("%.2f %%", 100 * std::clamp(value->y, 0.0, 1.0));
    // The text is drawn first as a white outline, so that it stands off the lines behind it.
    for (const absl::string_view extra :
         {" font-weight=\"bold\" stroke=\"#ffffff\" stroke-width=\"4\"", " font-weight=\"bold\""}) {
      Text(out, corner, "end", 13, color, text, extra);
    }
    return;
  }
}

void Data(std::string* out, const Curve& curve, const Scale& scale) {
  std::vector<CurvePoint> sorted = curve.points;
  std::stable_sort(sorted.begin(), sorted.end(), [](const CurvePoint& a, const CurvePoint& b) {
    return a.iteration < b.iteration;
  });
  std::vector<XY> loss, accuracy, test_loss, test_accuracy, test_auc;
  for (const CurvePoint& point : sorted) {
    loss.push_back({static_cast<double>(point.iteration), point.loss});
    accuracy.push_back({static_cast<double>(point.iteration), point.accuracy});
  }
  for (const CurveEpoch& epoch : curve.epochs) {
    test_loss.push_back({static_cast<double>(epoch.last_iteration), epoch.test_loss});
    test_accuracy.push_back({static_cast<double>(epoch.last_iteration), epoch.test_accuracy});
    test_auc.push_back({static_cast<double>(epoch.last_iteration), epoch.test_auc});
  }
  const Shown shown = ShownOf(curve);
  ValueLine(out, loss, scale, scale.loss_max, kLossColor);
  if (shown.accuracy) ValueLine(out, accuracy, scale, 1.0, kAccuracyColor);
  Dots(out, test_loss, scale, scale.loss_max, kLossColor);
  if (shown.accuracy) {
    Dots(out, test_accuracy, scale, 1.0, kAccuracyColor);
    Dots(out, test_auc, scale, 1.0, kAucColor);
    // A job that has both is judged by its AUC.
    LastInFigures(out, shown.auc ? test_auc : test_accuracy, scale,
                  shown.auc ? kAucColor : kAccuracyColor);
  }
  Legend(out, shown, curve.evaluated);
  if (sorted.empty() && curve.epochs.empty()) {
    Text(out, {(kLeft + kRight) / 2, (kTop + kBottom) / 2}, "middle", 16, kGray, "no data yet");
  }
}

}  // namespace

std::string CurveSvg(const Curve& curve) {
  const Scale scale = MakeScale(curve);
  std::string out = absl::StrFormat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n"
      "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight, kWidth, kHeight, Escape(curve.title));
  Text(&out, {kLeft, 30}, "start", 18, "#222222", curve.title, " font-weight=\"bold\"");
  Text(&out, {kLeft, 50}, "start", 12, kGray, curve.subtitle);
  Grid(&out, scale, curve.with_accuracy);
  EpochMarks(&out, curve, scale);
  Frame(&out, curve.with_accuracy);
  Data(&out, curve, scale);
  absl::StrAppend(&out, "</svg>\n");
  return out;
}

}  // namespace capstan
