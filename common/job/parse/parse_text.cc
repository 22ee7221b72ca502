#include "common/job/parse/parse_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/fields/field_names.h"
#include "common/job/parse/text_index.h"

namespace capstan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr size_t kNameBytesMax = 200;  // Names of fields are told up to here.

size_t SkipString(absl::string_view text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// Describes what encloses a byte of a text-format file.
struct Surroundings {
  struct Level {
    std::string name;                     // The field that opened this message.
    int index = 0;                        // Number of fields of that name before it.
    std::map<std::string, int> children;  // Count of messages opened in it, by field name.
  };
  std::vector<Level> levels{1};  // Open messages, outermost first; [0] is the job.
  std::string name;              // The last field name before the byte in the innermost message.
  size_t name_offset = 0;

  void Open() {
    const int index = levels.back().children[name]++;
    levels.push_back({name, index, {}});
    name.clear();
  }
  void Close() {
    if (levels.size() > 1) levels.pop_back();
    name.clear();
  }
};

// Finds the surroundings of one byte after the other, in one pass over the text as long as none is
// before the last one. They only word an error, so the scan need not understand everything.
class Scanner {
 public:
  explicit Scanner(absl::string_view text) : text_(text) {}

  // Scans the tokens that begin before `end`.
  const Surroundings& UpTo(size_t end) {
    if (end <= token_begin_) *this = Scanner(text_);
    while (at_ < std::min(end, text_.size())) {
      token_begin_ = at_;
      ScanToken();
    }
    return around_;
  }

 private:
  void ScanToken() {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '"' || c == '\'') {
      at_ = SkipString(text_, at_);
      value_next_ = false;
    } else if (absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_') {
      const size_t begin = at_;
      while (at_ < text_.size() &&
             (absl::ascii_isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) {
        ++at_;
      }
      if (!value_next_) {
        around_.name = std::string(text_.substr(begin, std::min(at_ - begin, kNameBytesMax)));
        around_.name_offset = begin;
      }
      value_next_ = false;
    } else {
      if (c == '{' || c == '<') around_.Open();
      if (c == '}' || c == '>') around_.Close();
      if (!absl::ascii_isspace(static_cast<unsigned char>(c))) value_next_ = c == ':';
      ++at_;
    }
  }

  absl::string_view text_;
  size_t at_ = 0;
  size_t token_begin_ = 0;   // Begin of the last token.
  bool value_next_ = false;  // After ':' an identifier is a value.
  Surroundings around_;
};

// Describes the innermost message: its type (null if the file's messages are not those of a job)
// and its path.
struct Place {
  const Descriptor* descriptor = v1::JobSpec::descriptor();
  std::string path;
};

Place PlaceOf(const Surroundings& around) {
  Place place;
  for (size_t i = 1; i < around.levels.size(); ++i) {
    const Surroundings::Level& level = around.levels[i];
    const FieldDescriptor* field =
        place.descriptor == nullptr ? nullptr : place.descriptor->FindFieldByName(level.name);
    const bool repeated = field != nullptr && field->is_repeated();
    place.descriptor = field == nullptr ? nullptr : field->message_type();
    place.path = absl::StrCat(place.path, place.path.empty() ? "" : ".", level.name,
                              repeated ? absl::StrCat("[", level.index, "]") : "");
  }
  return place;
}

// Turns the parser's complaints into diagnostics.
class ErrorReader final : public google::protobuf::io::ErrorCollector {
 public:
  ErrorReader(absl::string_view text, const TextIndex& index, ParsedJob* job)
      : scanner_(text), index_(index), job_(job) {}

  void AddError(int line, int column, const std::string& message) override {
    job_->AddError([&]() -> LocatedDiagnostic {
      size_t offset = index_.OffsetOf(line, column);
      const Surroundings& around = scanner_.UpTo(offset);
      // The parser has moved past the name when it finds that it may not stand here.
      if (absl::StrContains(message, "is specified")) offset = around.name_offset;
      return {index_.PositionOf(offset), Explain(message, around)};
    });
  }

  // Unknown fields and values arrive here, because the parser is told to go on after them.
  void AddWarning(int line, int column, const std::string& message) override {
    // In a list that is full errors are only counted, wherever they are.
    if (job_->errors.size() >= kDiagnosticsMax) {
      return job_->AddError([] { return LocatedDiagnostic(); });
    }
    const size_t offset = index_.OffsetOf(line, column);
    const Surroundings& around = scanner_.UpTo(offset);
    const Place place = PlaceOf(around);
    // The warning is inside of an unknown message, which has been reported already.
    if (place.descriptor == nullptr && !job_->errors.empty()) return;
    job_->AddError([&]() -> LocatedDiagnostic {
      if (place.descriptor != nullptr && absl::StrContains(message, "has no field named") &&
          !around.name.empty()) {
        return {index_.PositionOf(around.name_offset),
                UnknownField(*place.descriptor, place.path, around.name)};
      }
      return {index_.PositionOf(offset), {place.path, "", "", message}};
    });
  }

 private:
  static Diagnostic Explain(const std::string& message, const Surroundings& around) {
    constexpr absl::string_view kUnknownValue = "Unknown enumeration value of \"";
    if (absl::StartsWith(message, "Message is too deep")) {
      return {"", "", "", absl::StrCat("expected at most ", kNestingMax, " levels of nesting")};
    }
    const Place place = PlaceOf(around);
    const FieldDescriptor* field =
        place.descriptor == nullptr ? nullptr : place.descriptor->FindFieldByName(around.name);
    // "Expected identifier" means that a field was to begin here, so the field before it has
    // nothing to do with the error.
    const bool of_field = !around.name.empty() && !absl::StartsWith(message, "Expected identifier");
    const std::string path =
        of_field ? absl::StrCat(place.path, place.path.empty() ? "" : ".", around.name)
                 : place.path;
    absl::string_view rest = message;
    if (field != nullptr && field->enum_type() != nullptr &&
        absl::ConsumePrefix(&rest, kUnknownValue)) {
      return UnknownEnumValue(*field->enum_type(), path, rest.substr(0, rest.find('"')));
    }
    std::string words = message;
    if (!words.empty()) words[0] = absl::ascii_tolower(static_cast<unsigned char>(words[0]));
    words = std::string(absl::StripSuffix(absl::StripAsciiWhitespace(words), "."));
    if (absl::EndsWith(words, "got:")) words += " the end of the file";
    return {path, "", "", words};
  }

  Scanner scanner_;
  const TextIndex& index_;
  ParsedJob* const job_;
};

void CollectPositions(const TextIndex& text, const Descriptor& descriptor,
                      const TextFormat::ParseInfoTree& tree, const std::string& prefix,
                      FieldPositions* positions) {
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* field = descriptor.field(i);
    const std::string path =
        prefix.empty() ? field->name() : absl::StrCat(prefix, ".", field->name());
    for (int index = 0;; ++index) {
      const int asked = field->is_repeated() ? index : -1;
      const TextFormat::ParseLocation location = tree.GetLocation(field, asked);
      if (location.line < 0) break;
      const TextPosition position = text.PositionOf(text.OffsetOf(location.line, location.column));
      const std::string element = field->is_repeated() ? absl::StrCat(path, "[", index, "]") : path;
      positions->try_emplace(path, position);
      positions->try_emplace(element, position);
      const TextFormat::ParseInfoTree* nested =
          field->message_type() == nullptr ? nullptr : tree.GetTreeForNested(field, asked);
      if (nested != nullptr) {
        CollectPositions(text, *field->message_type(), *nested, element, positions);
      }
      if (!field->is_repeated()) break;
    }
  }
}

}  // namespace

ParsedJob ParseTextJob(const std::string& text) {
  ParsedJob job;
  const TextIndex index(text);
  ErrorReader reader(text, index, &job);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&reader);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(kNestingMax);  // It also holds within unknown fields.
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(text, &job.spec) && job.errors.empty()) {
    job.errors.push_back({{}, {"", "", "", "cannot be read as a job in text format"}});
  }
  CollectPositions(index, *v1::JobSpec::descriptor(), tree, "", &job.positions);
  return job;
}

}  // namespace capstan
