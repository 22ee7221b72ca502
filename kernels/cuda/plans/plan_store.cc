#include "kernels/cuda/plans/plan_store.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace capstan::kernels::cuda {
namespace {

constexpr absl::string_view kVersionLine = "capstan plans 1";
constexpr absl::string_view kChecksum = "checksum ";

uint64_t Fnv1a(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string Hex(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

absl::Status Damaged(size_t line, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("line ", line, ": ", what));
}

}  // namespace

bool IsPlanText(absl::string_view text) {
  return !text.empty() && static_cast<int64_t>(text.size()) <= kPlanTextMax &&
         text.find_first_of("\t\n\r") == absl::string_view::npos;
}

std::string EncodePlans(absl::string_view origin, const KeptPlans& plans) {
  std::string text = absl::StrCat(kVersionLine, "\n", origin, "\n");
  for (const auto& [key, plan] : plans) absl::StrAppend(&text, key, "\t", plan, "\n");
  return absl::StrCat(text, kChecksum, Hex(Fnv1a(text)), "\n");
}

absl::StatusOr<KeptPlans> DecodePlans(absl::string_view text, absl::string_view origin) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  // The version, the origin, the checksum, and the empty text behind the last line's end.
  if (lines.size() < 4 || !lines.back().empty()) return Damaged(lines.size(), "it ends too early");
  lines.pop_back();
  if (lines[0] != kVersionLine) {
    return Damaged(1, absl::StrCat("expected \"", kVersionLine, "\""));
  }
  absl::string_view sum = lines.back();
  const size_t before = static_cast<size_t>(sum.data() - text.data());
  if (!absl::ConsumePrefix(&sum, kChecksum) || sum != Hex(Fnv1a(text.substr(0, before)))) {
    return Damaged(lines.size(), "the checksum is another one");
  }
  if (lines[1] != origin) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is of ", lines[1], ", expected ", origin));
  }
  KeptPlans plans;
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(lines[i], '\t');
    if (!IsPlanText(parts.first) || !IsPlanText(parts.second)) {
      return Damaged(i + 1, "expected a key, a tab and a plan");
    }
    if (static_cast<int64_t>(plans.size()) == kPlansMax) {
      return Damaged(i + 1, absl::StrCat("expected at most ", kPlansMax, " plans"));
    }
    plans.emplace(parts.first, parts.second);
  }
  return plans;
}

PlanStore::PlanStore(const std::string& folder, const std::string& origin,
                     std::function<void(const std::string&)> say)
    : folder_(folder),
      origin_(origin),
      file_(absl::StrCat(folder, "/", Hex(Fnv1a(origin)), ".plans")),
      say_(std::move(say)),
      plans_(Read()) {}

std::optional<std::string> PlanStore::Find(const std::string& key) const {
  const auto found = plans_.find(key);
  if (found == plans_.end()) return std::nullopt;
  return found->second;
}

void PlanStore::Add(const std::string& key, const std::string& plan) {
  if (!IsPlanText(key) || !IsPlanText(plan)) return;
  for (const auto& [other, kept] : Read()) {  // Other processes may have written since.
    if (static_cast<int64_t>(plans_.size()) >= kPlansMax) break;
    plans_.emplace(other, kept);
  }
  if (static_cast<int64_t>(plans_.size()) >= kPlansMax && !plans_.contains(key)) return;
  plans_.insert_or_assign(key, plan);
  const absl::Status written = Write();
  if (!written.ok() && !std::exchange(told_, true)) Say(written);
}

void PlanStore::Note(const std::string& key, const std::vector<std::string>& names,
                     const std::vector<std::string>& found) const {
  const std::string path = absl::StrCat(file_, ".times");
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > static_cast<uintmax_t>(kPlanFileBytesMax)) return;
  std::ofstream out(path, std::ios::binary | std::ios::app);
  for (size_t i = 0; i < names.size(); ++i) {
    out << absl::StrCat(key, "\t", names[i], "\t", found[i], "\n");
  }
}

KeptPlans PlanStore::Read() {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file_, error);
  if (error) return {};  // There is no file.
  if (bytes > static_cast<uintmax_t>(kPlanFileBytesMax)) {
    return Ignore(
        absl::DataLossError(absl::StrCat(bytes, " bytes, expected at most ", kPlanFileBytesMax)));
  }
  std::ifstream in(file_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  absl::StatusOr<KeptPlans> plans = DecodePlans(text, origin_);
  if (plans.ok()) return *std::move(plans);
  return Ignore(plans.status());
}

KeptPlans PlanStore::Ignore(const absl::Status& why) {
  if (std::exchange(ignored_, std::string(why.message())) != why.message()) Say(why);
  return {};
}

absl::Status PlanStore::Write() const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string temporary = absl::StrCat(file_, ".", getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << EncodePlans(origin_, plans_);
  out.close();
  if (out.fail() || std::rename(temporary.c_str(), file_.c_str()) != 0) {
    const std::string why = std::error_code(errno, std::generic_category()).message();
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat("it cannot be written: ", why));
  }
  return absl::OkStatus();
}

void PlanStore::Say(const absl::Status& status) const {
  if (say_ == nullptr) return;
  say_(
      absl::StrCat("plans kept in ", file_, " are of no use, and timed again: ", status.message()));
}

}  // namespace capstan::kernels::cuda
