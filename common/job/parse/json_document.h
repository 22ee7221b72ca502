// JsonDocument: JSON (RFC 8259) as a tree with the position of each part in the text.
//
// protobuf reads JSON into messages but gives no positions; this finds them. It keeps structure,
// keys and positions; the values stay in the text. Thread safety: values.
#ifndef CAPSTAN_COMMON_JOB_PARSE_JSON_DOCUMENT_H_
#define CAPSTAN_COMMON_JOB_PARSE_JSON_DOCUMENT_H_

#include <string>
#include <vector>

#include "common/job/fields/field_positions.h"

namespace capstan {

// The most values of a document. The longest list that a job needs has a number for each of a
// million classes; a value takes about 100 bytes of memory, and may take 2 of the text.
inline constexpr int kJsonValuesMax = 1 << 20;

struct JsonNode {
  enum class Kind { kNull, kBoolean, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  TextPosition position;
  std::vector<JsonNode> children;  // Array items or object values, in order.
  // Objects only, one for each child: the key and its position. An escaped key is kept as it is
  // written.
  std::vector<std::string> keys;
  std::vector<TextPosition> key_positions;
};

struct JsonDocument {
  JsonNode root;
  // The first syntax error: nesting above kNestingMax levels and more than kJsonValuesMax values
  // count as one. Empty: none.
  std::string error;
  TextPosition error_position;
};

JsonDocument ParseJsonDocument(const std::string& text);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_JOB_PARSE_JSON_DOCUMENT_H_
