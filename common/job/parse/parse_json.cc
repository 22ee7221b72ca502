#include "common/job/parse/parse_json.h"

#include <google/protobuf/util/json_util.h>

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/job/fields/field_checker.h"
#include "common/job/fields/field_names.h"
#include "common/job/parse/json_document.h"

namespace capstan {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const char* KindName(JsonNode::Kind kind) {
  switch (kind) {
    case JsonNode::Kind::kNull:
      return "null";
    case JsonNode::Kind::kBoolean:
      return "a boolean";
    case JsonNode::Kind::kNumber:
      return "a number";
    case JsonNode::Kind::kString:
      return "a string";
    case JsonNode::Kind::kArray:
      return "a list";
    case JsonNode::Kind::kObject:
      return "an object";
  }
  return "a value";
}

// Compares the document's keys and structure with the message's fields.
class StructureChecker {
 public:
  explicit StructureChecker(ParsedJob* job) : job_(job) {}

  void Check(const JsonNode& node, const Descriptor& descriptor, const std::string& path) {
    if (node.kind == JsonNode::Kind::kNull) return;
    if (!Expect(node, JsonNode::Kind::kObject, path)) return;
    std::set<const FieldDescriptor*> seen;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const std::string& key = node.keys[i];
      const FieldDescriptor* field = descriptor.FindFieldByName(key);
      if (field == nullptr) field = descriptor.FindFieldByCamelcaseName(key);
      if (field == nullptr) {
        job_->AddError([&] {
          return LocatedDiagnostic{node.key_positions[i], UnknownField(descriptor, path, key)};
        });
        continue;
      }
      const std::string child =
          path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
      if (!seen.insert(field).second) {
        job_->AddError([&] { return GivenTwice(node.key_positions[i], child); });
        continue;
      }
      job_->positions.try_emplace(child, node.key_positions[i]);
      CheckField(node.children[i], *field, child);
    }
  }

 private:
  void CheckField(const JsonNode& node, const FieldDescriptor& field, const std::string& path) {
    if (node.kind == JsonNode::Kind::kNull) return;
    if (!field.is_repeated()) {
      if (field.message_type() != nullptr) Check(node, *field.message_type(), path);
      return;
    }
    if (field.is_map()) return CheckMap(node, path);
    if (!Expect(node, JsonNode::Kind::kArray, path)) return;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const std::string item = absl::StrCat(path, "[", i, "]");
      job_->positions.try_emplace(item, node.children[i].position);
      if (field.message_type() != nullptr) Check(node.children[i], *field.message_type(), item);
    }
  }

  // Checks a map from strings to strings; a job has no other maps.
  void CheckMap(const JsonNode& node, const std::string& path) {
    if (!Expect(node, JsonNode::Kind::kObject, path)) return;
    std::set<std::string> seen;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const std::string entry = absl::StrCat(path, "[", Quote(node.keys[i]), "]");
      if (!seen.insert(node.keys[i]).second) {
        job_->AddError([&] { return GivenTwice(node.key_positions[i], entry); });
      }
      Expect(node.children[i], JsonNode::Kind::kString, entry);
    }
  }

  bool Expect(const JsonNode& node, JsonNode::Kind kind, const std::string& path) {
    if (node.kind == kind) return true;
    job_->AddError([&] {
      return LocatedDiagnostic{node.position,
                               GotExpected(path, KindName(node.kind), KindName(kind))};
    });
    return false;
  }

  static LocatedDiagnostic GivenTwice(const TextPosition& position, const std::string& path) {
    return {position, {path, "", "", "given twice, expected once"}};
  }

  ParsedJob* job_;
};

// protobuf words a wrong value as "(training.epochs): invalid value 1.5 for type TYPE_INT32".
LocatedDiagnostic ExplainValueError(absl::string_view message, const FieldPositions& positions) {
  const size_t close = message.find(')');
  if (!absl::StartsWith(message, "(") || close == absl::string_view::npos) {
    return {{}, {"", "", "", std::string(message)}};
  }
  const std::string path(message.substr(1, close - 1));
  absl::string_view rest = message.substr(close + 1);
  absl::ConsumePrefix(&rest, ": ");
  const std::string words = absl::StrReplaceAll(rest, {{"type.googleapis.com/capstan.v1.", ""},
                                                       {"TYPE_INT32", "32-bit integer"},
                                                       {"TYPE_INT64", "64-bit integer"},
                                                       {"TYPE_UINT64", "unsigned 64-bit integer"},
                                                       {"TYPE_FLOAT", "float"},
                                                       {"TYPE_STRING", "string"},
                                                       {"TYPE_BOOL", "boolean"}});
  const auto position = positions.find(path);
  return {position == positions.end() ? TextPosition{} : position->second, {path, "", "", words}};
}

}  // namespace

ParsedJob ParseJsonJob(const std::string& text) {
  ParsedJob job;
  const JsonDocument document = ParseJsonDocument(text);
  if (!document.error.empty()) {
    job.errors.push_back({document.error_position, {"", "", "", document.error}});
    return job;
  }
  StructureChecker(&job).Check(document.root, *v1::JobSpec::descriptor(), "");
  if (!job.errors.empty()) return job;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &job.spec);
  if (!status.ok()) {
    const std::string message(status.message().data(), status.message().size());
    job.errors.push_back(ExplainValueError(message, job.positions));
  }
  return job;
}

}  // namespace capstan
