#include "common/job/parse_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/job/field_names.h"

namespace capstan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

constexpr int kTabWidth = 8;  // At a tab, protobuf's tokenizer moves to the next multiple of it.

// Returns the byte at protobuf's (line, column), both counted from 0.
size_t OffsetOf(const std::string& text, int line, int column) {
  size_t offset = 0;
  for (; line > 0; --line) {
    const size_t end = text.find('\n', offset);
    if (end == std::string::npos) return text.size();
    offset = end + 1;
  }
  for (int at = 0; at < column && offset < text.size() && text[offset] != '\n'; ++offset) {
    at = text[offset] == '\t' ? (at / kTabWidth + 1) * kTabWidth : at + 1;
  }
  return offset;
}

TextPosition PositionOf(const std::string& text, size_t offset) {
  offset = std::min(offset, text.size());
  const size_t line_start = offset == 0 ? std::string::npos : text.rfind('\n', offset - 1);
  const size_t begin = line_start == std::string::npos ? 0 : line_start + 1;
  const auto end = text.begin() + static_cast<std::string::difference_type>(begin);
  return {static_cast<int>(std::count(text.begin(), end, '\n')) + 1,
          static_cast<int>(offset - begin) + 1};
}

// Describes what encloses a byte of a text-format file.
struct Surroundings {
  struct Level {
    std::string name;                            // The field that opened this message.
    int index = 0;                               // Number of fields of that name before it.
    absl::btree_map<std::string, int> children;  // Count of messages opened in it, by field name.
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

size_t SkipString(const std::string& text, size_t at) {
  const char quote = text[at++];
  while (at < text.size() && text[at] != quote && text[at] != '\n') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// Scans tokens up to `end`. The result only words an error, so the scan need not understand
// everything.
Surroundings SurroundingsOf(const std::string& text, size_t end) {
  Surroundings result;
  bool value_next = false;  // After ':' an identifier is a value.
  for (size_t at = 0; at < end;) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), end);
    } else if (c == '"' || c == '\'') {
      at = SkipString(text, at);
      value_next = false;
    } else if (absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_') {
      const size_t begin = at;
      while (at < end &&
             (absl::ascii_isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) {
        ++at;
      }
      if (!value_next) {
        result.name = text.substr(begin, at - begin);
        result.name_offset = begin;
      }
      value_next = false;
    } else if (absl::ascii_isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else {
      if (c == '{' || c == '<') result.Open();
      if (c == '}' || c == '>') result.Close();
      value_next = c == ':';
      ++at;
    }
  }
  return result;
}

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
  ErrorReader(const std::string& text, std::vector<LocatedDiagnostic>* errors)
      : text_(text), errors_(errors) {}

  void AddError(int line, int column, const std::string& message) override {
    size_t offset = OffsetOf(text_, line, column);
    const Surroundings around = SurroundingsOf(text_, offset);
    // The parser has moved past the name when it finds that it may not stand here.
    if (absl::StrContains(message, "is specified")) offset = around.name_offset;
    errors_->push_back({PositionOf(text_, offset), Explain(message, around)});
  }

  // Unknown fields and values arrive here, because the parser is told to go on after them.
  void AddWarning(int line, int column, const std::string& message) override {
    const size_t offset = OffsetOf(text_, line, column);
    const Surroundings around = SurroundingsOf(text_, offset);
    const Place place = PlaceOf(around);
    // The warning is inside of an unknown message, which has been reported already.
    if (place.descriptor == nullptr && !errors_->empty()) return;
    if (place.descriptor != nullptr && absl::StrContains(message, "has no field named") &&
        !around.name.empty()) {
      errors_->push_back({PositionOf(text_, around.name_offset),
                          UnknownField(*place.descriptor, place.path, around.name)});
      return;
    }
    errors_->push_back({PositionOf(text_, offset), {place.path, "", "", message}});
  }

 private:
  static Diagnostic Explain(const std::string& message, const Surroundings& around) {
    constexpr absl::string_view kUnknownValue = "Unknown enumeration value of \"";
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

  const std::string& text_;
  std::vector<LocatedDiagnostic>* errors_;
};

void CollectPositions(const std::string& text, const Descriptor& descriptor,
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
      const TextPosition position =
          PositionOf(text, OffsetOf(text, location.line, location.column));
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
  ErrorReader reader(text, &job.errors);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&reader);
  parser.AllowUnknownField(true);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(text, &job.spec) && job.errors.empty()) {
    job.errors.push_back({{}, {"", "", "", "cannot be read as a job in text format"}});
  }
  CollectPositions(text, *v1::JobSpec::descriptor(), tree, "", &job.positions);
  return job;
}

}  // namespace capstan
