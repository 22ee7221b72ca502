#include "common/job/fields/field_checker.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace capstan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kQuotedBytesMax = 80;

std::string ValueText(absl::string_view number, bool zero, Presence presence) {
  if (zero && presence == Presence::kImplicit) return "0 or nothing";
  return std::string(number);
}

bool Contains(const RealRange& range, double value) {
  if (!std::isfinite(value)) return false;
  const bool above =
      range.low_end == RealRange::End::kClosed ? value >= range.low : value > range.low;
  const bool below =
      range.high_end == RealRange::End::kClosed ? value <= range.high : value < range.high;
  return above && below;
}

std::string Describe(const RealRange& range) {
  const bool closed = range.low_end == RealRange::End::kClosed;
  if (range.low == -kInfinity && range.high == kInfinity) return "a finite number";
  if (range.high == kInfinity) {
    return absl::StrCat("a finite number ", closed ? "of at least " : "above ", range.low);
  }
  return absl::StrCat("a number in ", closed ? "[" : "(", range.low, ", ", range.high,
                      range.high_end == RealRange::End::kClosed ? "]" : ")");
}

}  // namespace

RealRange Finite() { return {-kInfinity, RealRange::End::kOpen, kInfinity, RealRange::End::kOpen}; }
RealRange Above(double low) {
  return {low, RealRange::End::kOpen, kInfinity, RealRange::End::kOpen};
}
RealRange AtLeast(double low) {
  return {low, RealRange::End::kClosed, kInfinity, RealRange::End::kOpen};
}
RealRange ClosedOpen(double low, double high) {
  return {low, RealRange::End::kClosed, high, RealRange::End::kOpen};
}
RealRange OpenOpen(double low, double high) {
  return {low, RealRange::End::kOpen, high, RealRange::End::kOpen};
}
RealRange OpenClosed(double low, double high) {
  return {low, RealRange::End::kOpen, high, RealRange::End::kClosed};
}
RealRange Closed(double low, double high) {
  return {low, RealRange::End::kClosed, high, RealRange::End::kClosed};
}

FieldChecker::FieldChecker(std::string path, std::vector<Diagnostic>* diagnostics)
    : path_(std::move(path)), diagnostics_(diagnostics) {}

FieldChecker FieldChecker::In(absl::string_view field) const {
  return FieldChecker(Path(field), diagnostics_);
}

bool FieldChecker::IntegerAtLeast(absl::string_view field, int64_t value, int64_t low,
                                  Presence presence) {
  if (value >= low) return true;
  Wrong(field, ValueText(absl::StrCat(value), value == 0, presence),
        absl::StrCat("at least ", low));
  return false;
}

bool FieldChecker::IntegerBetween(absl::string_view field, int64_t value, int64_t low, int64_t high,
                                  Presence presence) {
  if (value >= low && value <= high) return true;
  Wrong(field, ValueText(absl::StrCat(value), value == 0, presence),
        absl::StrCat(low, " to ", high));
  return false;
}

bool FieldChecker::Real(absl::string_view field, double value, const RealRange& range,
                        Presence presence) {
  if (Contains(range, value)) return true;
  Wrong(field, ValueText(absl::StrCat(value), value == 0.0, presence), Describe(range));
  return false;
}

void FieldChecker::Wrong(absl::string_view field, absl::string_view value,
                         absl::string_view expected) {
  if (diagnostics_->size() >= kDiagnosticsMax) return CountLeftOut(&diagnostics_->back());
  diagnostics_->push_back(GotExpected(Path(field), std::string(value), std::string(expected)));
}

void FieldChecker::Missing(absl::string_view field, absl::string_view expected) {
  Wrong(field, "nothing", expected);
}

std::string FieldChecker::Path(absl::string_view field) const {
  if (path_.empty()) return std::string(field);
  if (field.empty()) return path_;
  return absl::StrCat(path_, ".", field);
}

std::string Quote(absl::string_view value) {
  const bool cut = value.size() > kQuotedBytesMax;
  return absl::StrCat("\"", absl::CHexEscape(value.substr(0, kQuotedBytesMax)),
                      cut ? "...\"" : "\"");
}

}  // namespace capstan
