#include "scheduler/cli/view/text/format.h"

#include <google/protobuf/util/json_util.h>

#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace capstan::cli {
namespace {

std::string Json(const google::protobuf::Message& message, bool on_one_line) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = !on_one_line;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  // The conversion fails only for an Any of an unknown type, which the protocol does not use.
  return status.ok() ? json : "{}";
}

}  // namespace

std::string FormatCount(int64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

std::string FormatShare(double share) { return absl::StrFormat("%.2f %%", share * 100); }

std::string FormatLoss(double loss) { return absl::StrFormat("%.4f", loss); }

std::string FormatRate(double samples_per_second) {
  constexpr double kCountMax = 1e15;
  if (!(samples_per_second >= 0 && samples_per_second < kCountMax)) return "- samples/s";
  return absl::StrCat(FormatCount(std::llround(samples_per_second)), " samples/s");
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string TimeText(int64_t unix_ms) {
  if (unix_ms == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string PathOn(const std::string& host, const std::string& path) {
  return host.empty() || path.empty() ? path : absl::StrCat(path, " on ", host);
}

bool HasAccuracy(v1::Objective objective) {
  return objective == v1::CLASSES || objective == v1::CLICKS;
}

bool HasAccuracy(const v1::JobStatus& job, double correct) {
  const bool counted = !job.effective_spec().has_program() || correct > 0;
  return HasAccuracy(job.objective()) && counted;
}

std::string StateName(v1::JobState state) {
  return v1::JobState_IsValid(state) ? v1::JobState_Name(state) : absl::StrCat("STATE_", state);
}

bool HasEnded(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::STOPPED || state == v1::FAILED;
}

std::string ReasonName(v1::Failure::Reason reason) {
  if (reason == v1::Failure::REASON_UNSPECIFIED) return "Unknown";
  if (!v1::Failure::Reason_IsValid(reason)) {
    return absl::StrCat("Reason", static_cast<int>(reason));
  }
  std::string name;
  for (const absl::string_view part : absl::StrSplit(v1::Failure::Reason_Name(reason), '_')) {
    std::string word = absl::AsciiStrToLower(part);
    if (!word.empty()) word[0] = absl::ascii_toupper(static_cast<unsigned char>(word[0]));
    name += word;
  }
  return name;
}

std::string RoleName(v1::Role role) {
  return v1::Role_IsValid(role) ? absl::AsciiStrToLower(v1::Role_Name(role))
                                : absl::StrCat("role ", role);
}

std::string ToJson(const google::protobuf::Message& message) {
  return Json(message, /*on_one_line=*/false);
}

std::string ToJsonLine(const google::protobuf::Message& message) {
  return absl::StrCat(Json(message, /*on_one_line=*/true), "\n");
}

}  // namespace capstan::cli
