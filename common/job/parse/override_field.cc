#include "common/job/parse/override_field.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/job/fields/field_checker.h"
#include "common/job/fields/field_names.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// One step of a path, such as "layers[2]".
struct Step {
  std::string name;
  int index = -1;  // -1 if the step has no index.
};

absl::StatusOr<Step> ParseStep(absl::string_view text) {
  const size_t open = text.find('[');
  if (open == absl::string_view::npos) return Step{std::string(text), -1};
  absl::string_view index = text.substr(open + 1);
  Step step{std::string(text.substr(0, open)), -1};
  if (!absl::ConsumeSuffix(&index, "]") || !absl::SimpleAtoi(index, &step.index) ||
      step.index < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got ", Quote(text), ", expected a field name, or one with an index: layers[0]"));
  }
  return step;
}

class NoErrors final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

std::string TypeName(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return "a 32-bit integer";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a 64-bit integer";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "an integer of at least 0";
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return absl::StrCat("{fields of ", field.message_type()->name(), "}");
    default:
      return "a value";
  }
}

absl::Status SetLeaf(const FieldDescriptor& field, int index, const std::string& path,
                     const std::string& value, Message* message) {
  const Reflection* reflection = message->GetReflection();
  if (index >= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": single items cannot be set; set the whole list or a field of the item"));
  }
  std::string literal = value;
  const bool quoted = !value.empty() && (value[0] == '"' || value[0] == '\'');
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && !quoted) {
    literal = absl::StrCat("\"", absl::CEscape(value), "\"");
  }
  reflection->ClearField(message, &field);
  NoErrors no_errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&no_errors);
  if (parser.ParseFieldValueFromString(literal, &field, message)) return absl::OkStatus();
  if (field.enum_type() != nullptr) {
    return absl::InvalidArgumentError(UnknownEnumValue(*field.enum_type(), path, value).ToString());
  }
  return absl::InvalidArgumentError(
      GotExpected(path, value.empty() ? "nothing" : Quote(value), TypeName(field)).ToString());
}

// Returns the message that `field` and `index` name inside of `*message`.
absl::StatusOr<Message*> Descend(const FieldDescriptor& field, int index, const std::string& path,
                                 Message* message) {
  const Reflection* reflection = message->GetReflection();
  if (field.message_type() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a value and has no fields"));
  }
  if (!field.is_repeated()) {
    if (index < 0) return reflection->MutableMessage(message, &field);
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no list and takes no index"));
  }
  const int count = reflection->FieldSize(*message, &field);
  if (index < 0 || index >= count) {
    const std::string given = index < 0 ? "no index" : absl::StrCat("index ", index);
    return absl::InvalidArgumentError(absl::StrCat(path, ": got ", given, ", expected 0 to ",
                                                   count - 1, ", as the list has ", count,
                                                   " items"));
  }
  return reflection->MutableRepeatedMessage(message, &field, index);
}

}  // namespace

absl::Status OverrideField(const std::string& path, const std::string& value, v1::JobSpec* spec) {
  v1::JobSpec changed = *spec;
  Message* message = &changed;
  std::string walked;
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const Step step, ParseStep(parts[i]));
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(step.name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          UnknownField(*message->GetDescriptor(), walked, step.name).ToString());
    }
    walked = walked.empty() ? parts[i] : absl::StrCat(walked, ".", parts[i]);
    if (field->is_map()) {
      return absl::InvalidArgumentError(
          absl::StrCat(walked, ": cannot be set like this, expected ",
                       field->name() == "labels" ? "--label KEY=VALUE" : "it in the job file"));
    }
    if (i + 1 == parts.size()) {
      CAPSTAN_RETURN_IF_ERROR(SetLeaf(*field, step.index, walked, value, message));
    } else {
      CAPSTAN_ASSIGN_OR_RETURN(message, Descend(*field, step.index, walked, message));
    }
  }
  spec->Swap(&changed);
  return absl::OkStatus();
}

}  // namespace capstan
