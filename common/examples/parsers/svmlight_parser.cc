#include "common/examples/parsers/svmlight_parser.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/examples/parsers/numbers.h"

namespace capstan {
namespace {

constexpr absl::string_view kQid = "qid:";

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Reads the parts of one line. It keeps the first error; the function that finds it returns false.
class Line {
 public:
  explicit Line(absl::string_view line) : begin_(line.data()), p_(begin_) {
    const void* comment = line.empty() ? nullptr : std::memchr(begin_, '#', line.size());
    end_ = comment != nullptr ? static_cast<const char*>(comment) : begin_ + line.size();
  }

  // Goes to the next part; returns false if there is none.
  bool NextPart() {
    while (p_ < end_ && IsBlank(*p_)) ++p_;
    part_ = p_;
    return p_ < end_;
  }
  bool AtQid() const {
    return absl::StartsWith(absl::string_view(p_, static_cast<size_t>(end_ - p_)), kQid);
  }

  bool ReadLabel(float* label) { return ReadLastNumber("the label", label); }

  bool SkipQid() {
    p_ += kQid.size();
    uint64_t unused;
    const NumberEnd read = ReadUint64(p_, end_, &unused);
    if (read.error == NumberError::kNone && AtEndOfPart(read.end)) {
      p_ = read.end;
      return true;
    }
    return Fail("the query", "is no whole number, expected one after qid:");
  }

  bool ReadFeature(uint64_t* index, float* value) {
    const NumberEnd read = ReadUint64(p_, end_, index);
    if (read.error == NumberError::kOutOfRange) {
      return Fail("the index", "is above 2^64 - 1, expected at most 18446744073709551615");
    }
    if (read.error != NumberError::kNone || read.end == end_ || *read.end != ':') {
      return Fail("the feature", "is no index:value, expected a whole number and a colon");
    }
    p_ = read.end + 1;
    return ReadLastNumber("the value", value);
  }

  bool FailOrder() {
    error_ = absl::InvalidArgumentError(
        absl::StrCat("byte ", part_ - begin_ + 1,
                     ": the index is not above the one before it, expected indices that ascend"));
    return false;
  }

  const absl::Status& error() const { return error_; }

 private:
  bool AtEndOfPart(const char* p) const { return p == end_ || IsBlank(*p); }

  // Reads a number that ends where the part ends.
  bool ReadLastNumber(absl::string_view what, float* value) {
    const NumberEnd read = ReadFloat(p_, end_, value);
    if (read.error == NumberError::kNone && AtEndOfPart(read.end)) {
      p_ = read.end;
      return true;
    }
    const bool whole = read.error != NumberError::kNone && AtEndOfPart(read.end);
    return Fail(what, absl::StrCat(ToString(whole ? read.error : NumberError::kNotANumber),
                                   ", expected a finite number"));
  }

  // Sets an error about the rest of the part, from p_ on. Returns false.
  bool Fail(absl::string_view what, absl::string_view why) {
    const char* end = p_;
    while (!AtEndOfPart(end)) ++end;
    const absl::string_view rest(p_, static_cast<size_t>(end - p_));
    error_ = absl::InvalidArgumentError(
        absl::StrCat("byte ", p_ - begin_ + 1, ": ", what, " (", Described(rest), ") ", why));
    return false;
  }

  const char* const begin_;
  const char* end_;
  const char* p_;
  const char* part_ = nullptr;  // The beginning of the part that NextPart found.
  absl::Status error_;
};

// Returns false if there is an error.
bool ReadExample(Line& line, ExampleBatch* batch, float* label) {
  if (!line.ReadLabel(label)) return false;
  bool more = line.NextPart();
  if (more && line.AtQid()) {
    if (!line.SkipQid()) return false;
    more = line.NextPart();
  }
  uint64_t last = 0;
  for (bool first = true; more; more = line.NextPart(), first = false) {
    uint64_t index;
    float value;
    if (!line.ReadFeature(&index, &value)) return false;
    if (!first && index <= last) return line.FailOrder();
    last = index;
    batch->AddFeature(index, value, /*field=*/0);
  }
  return true;
}

}  // namespace

absl::Status SvmlightParser::Parse(absl::string_view text, ExampleBatch* batch) {
  Line line(text);
  if (!line.NextPart()) return absl::OkStatus();
  float label;
  if (!ReadExample(line, batch, &label)) {
    batch->Abandon();
    return line.error();
  }
  batch->Finish(label);
  return absl::OkStatus();
}

}  // namespace capstan
