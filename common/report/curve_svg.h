// CurveSvg: a job's loss and accuracy against iterations, as one SVG picture.
//
// Loss is on the left axis, accuracy and AUC (percent) on the right one; thin lines are training,
// dots are the test set after each epoch, dashed verticals are the ends of epochs. The text is
// self-contained (no script, no external font or style) and at most some 100 KiB however many
// points come in. Thread safety: a pure function.
#ifndef CAPSTAN_COMMON_REPORT_CURVE_SVG_H_
#define CAPSTAN_COMMON_REPORT_CURVE_SVG_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace capstan {

// A report during training. A NaN or infinite value leaves a gap in its line.
struct CurvePoint {
  int64_t iteration = 0;
  double loss = 0.0;
  double accuracy = 0.0;  // Share, 0 to 1.
};

// An epoch that has ended. A test value that is not finite is not drawn.
struct CurveEpoch {
  int64_t epoch = 0;           // Counts from 0; shown from 1.
  int64_t last_iteration = 0;  // The iteration at the epoch's end.
  double test_loss = std::numeric_limits<double>::quiet_NaN();
  double test_accuracy = std::numeric_limits<double>::quiet_NaN();  // Share, 0 to 1.
  double test_auc = std::numeric_limits<double>::quiet_NaN();       // 0 to 1.
};

struct Curve {
  std::string title;
  std::string subtitle;            // A second, smaller line; may be empty.
  std::vector<CurvePoint> points;  // Any order.
  std::vector<CurveEpoch> epochs;  // Ordered by last_iteration.
  bool with_accuracy = true;       // False: no right axis, and nothing on it.
  std::string evaluated = "test";  // The split that test values are of.
};

// An SVG document of 860 x 500 px. Without points it shows the empty axes and says "no data yet".
// The loss axis starts at 0. It leaves out the highest 2 % of training losses if the highest is
// more than twice the others (the line then runs along the upper edge); a test loss always fits. A
// line of more than 600 points is averaged over neighbours.
std::string CurveSvg(const Curve& curve);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_REPORT_CURVE_SVG_H_
