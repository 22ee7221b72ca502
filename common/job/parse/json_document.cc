#include "common/job/parse/json_document.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace capstan {
namespace {

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

// Parses by recursive descent. Every method returns false once an error has been noted.
class JsonReader {
 public:
  JsonReader(const std::string& text, JsonDocument* document) : text_(text), document_(document) {}

  void Read() {
    SkipSpace();
    if (!ReadValue(0, &document_->root)) return;
    SkipSpace();
    if (at_ < text_.size()) Fail("the end of the file");
  }

 private:
  TextPosition Here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool Fail(absl::string_view expected) {
    std::string found = "the end of the file";
    if (at_ < text_.size()) found = absl::StrCat("'", text_.substr(at_, 1), "'");
    return FailWith(absl::StrCat("got ", found, ", expected ", expected));
  }

  bool FailWith(std::string error) {
    document_->error = std::move(error);
    document_->error_position = Here();
    return false;
  }

  void SkipSpace() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  bool ReadValue(int depth, JsonNode* node) {
    node->position = Here();
    if (depth > kNestingMax) {
      return Fail(absl::StrCat("at most ", kNestingMax, " levels of nesting"));
    }
    if (++values_ > kJsonValuesMax) {
      return FailWith(
          absl::StrCat("got value number ", values_, ", expected at most ", kJsonValuesMax));
    }
    const char c = Peek();
    if (c == '{') return ReadObject(depth, node);
    if (c == '[') return ReadArray(depth, node);
    if (c == '"') {
      node->kind = JsonNode::Kind::kString;
      return ReadString(nullptr);
    }
    if (c == '-' || IsDigit(c)) return ReadNumber(node);
    if (ReadWord("null")) return true;
    node->kind = JsonNode::Kind::kBoolean;
    if (ReadWord("true") || ReadWord("false")) return true;
    return Fail("a value");
  }

  bool ReadWord(absl::string_view word) {
    if (absl::string_view(text_).substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool ReadObject(int depth, JsonNode* node) {
    node->kind = JsonNode::Kind::kObject;
    ++at_;
    SkipSpace();
    if (Peek() == '}') return ++at_, true;
    while (true) {
      SkipSpace();
      const TextPosition key_position = Here();
      std::string key;
      if (Peek() != '"') return Fail("a key in double quotes");
      if (!ReadString(&key)) return false;
      SkipSpace();
      if (Peek() != ':') return Fail("':'");
      ++at_;
      SkipSpace();
      JsonNode child;
      if (!ReadValue(depth + 1, &child)) return false;
      node->keys.push_back(std::move(key));
      node->key_positions.push_back(key_position);
      node->children.push_back(std::move(child));
      SkipSpace();
      if (Peek() == '}') return ++at_, true;
      if (Peek() != ',') return Fail("',' or '}'");
      ++at_;
    }
  }

  bool ReadArray(int depth, JsonNode* node) {
    node->kind = JsonNode::Kind::kArray;
    ++at_;
    SkipSpace();
    if (Peek() == ']') return ++at_, true;
    while (true) {
      SkipSpace();
      JsonNode child;
      if (!ReadValue(depth + 1, &child)) return false;
      node->children.push_back(std::move(child));
      SkipSpace();
      if (Peek() == ']') return ++at_, true;
      if (Peek() != ',') return Fail("',' or ']'");
      ++at_;
    }
  }

  bool ReadString(std::string* value) {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (static_cast<unsigned char>(text_[at_]) < 0x20)
        return Fail("no control character in a string");
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    if (at_ >= text_.size()) {
      at_ = text_.size();
      return Fail("the '\"' that ends a string");
    }
    if (value != nullptr) *value = text_.substr(begin, at_ - begin);
    ++at_;
    return true;
  }

  bool ReadDigits() {
    if (!IsDigit(Peek())) return Fail("a digit");
    while (IsDigit(Peek())) ++at_;
    return true;
  }

  bool ReadNumber(JsonNode* node) {
    node->kind = JsonNode::Kind::kNumber;
    if (Peek() == '-') ++at_;
    if (!ReadDigits()) return false;
    if (Peek() == '.' && (++at_, !ReadDigits())) return false;
    if (Peek() != 'e' && Peek() != 'E') return true;
    ++at_;
    if (Peek() == '+' || Peek() == '-') ++at_;
    return ReadDigits();
  }

  const std::string& text_;
  JsonDocument* document_;
  size_t at_ = 0;
  int values_ = 0;
  int line_ = 1;
  size_t line_begin_ = 0;
};

}  // namespace

JsonDocument ParseJsonDocument(const std::string& text) {
  JsonDocument document;
  JsonReader(text, &document).Read();
  return document;
}

}  // namespace capstan
