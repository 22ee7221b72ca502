#include "common/job/parse/json_document.h"

#include <catch2/catch.hpp>

namespace capstan::json_document_test {
namespace {

TEST_CASE("JsonDocument: keeps structure, keys and positions", "[job]") {
  const JsonDocument document =
      ParseJsonDocument("{\n  \"a\": [1, -2.5e+3, \"x\\\"y\"],\n  \"b\": null}");
  CHECK(document.error == "");
  REQUIRE(document.root.children.size() == 2);
  CHECK(document.root.keys == std::vector<std::string>{"a", "b"});
  CHECK(document.root.key_positions[1] == TextPosition{3, 3});
  const JsonNode& list = document.root.children[0];
  CHECK(list.kind == JsonNode::Kind::kArray);
  REQUIRE(list.children.size() == 3);
  CHECK(list.children[1].position == TextPosition{2, 12});
  CHECK(list.children[2].kind == JsonNode::Kind::kString);
}

TEST_CASE("JsonDocument: the first syntax error is located", "[job]") {
  struct Case {
    const char* text;
    const char* error;
    TextPosition position;
  };
  const Case cases[] = {
      {"", "got the end of the file, expected a value", {1, 1}},
      {"{", "got the end of the file, expected a key in double quotes", {1, 2}},
      {"{a: 1}", "got 'a', expected a key in double quotes", {1, 2}},
      {"{\"a\" 1}", "got '1', expected ':'", {1, 6}},
      {"{\"a\": }", "got '}', expected a value", {1, 7}},
      {"{\"a\": 1\n \"b\": 2}", "got '\"', expected ',' or '}'", {2, 2}},
      {"{\"a\": 1,}", "got '}', expected a key in double quotes", {1, 9}},
      {"[1 2]", "got '2', expected ',' or ']'", {1, 4}},
      {"[1.]", "got ']', expected a digit", {1, 4}},
      {"\"abc", "got the end of the file, expected the '\"' that ends a string", {1, 5}},
      {"\"abc\\", "got the end of the file, expected the '\"' that ends a string", {1, 6}},
      {"{} {}", "got '{', expected the end of the file", {1, 4}},
      {"nul", "got 'n', expected a value", {1, 1}},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    const JsonDocument document = ParseJsonDocument(c.text);
    CHECK(document.error == c.error);
    CHECK(document.error_position == c.position);
  }
}

TEST_CASE("JsonDocument: deep nesting is refused, not overflowed", "[job]") {
  const JsonDocument document = ParseJsonDocument(std::string(1'000'000, '['));
  CHECK(document.error == "got '[', expected at most 100 levels of nesting");
}

TEST_CASE("JsonDocument: more values than a job needs are refused", "[job]") {
  std::string text = "[\n0";
  for (int i = 2; i < kJsonValuesMax; ++i) text += ",0";  // The list is a value, too.
  CHECK(ParseJsonDocument(text + "]").error == "");
  const JsonDocument document = ParseJsonDocument(text + ",1]");
  CHECK(document.error == "got value number 1048577, expected at most 1048576");
  CHECK(document.error_position == TextPosition{2, 2 * (kJsonValuesMax - 1) + 1});
}

}  // namespace
}  // namespace capstan::json_document_test
