#include "common/storage/file_name.h"

#include <catch2/catch.hpp>
#include <string>

namespace capstan::file_name_test {
namespace {

TEST_CASE("File name: one that stays in its folder is accepted", "[common][storage]") {
  for (const char* const name :
       {"a", "...", ".hidden", "a b", "table-0-shard-0.part", "\xc3\xa9"}) {
    INFO(name);
    CHECK(IsFileName(name));
  }
  CHECK(IsFileName(std::string(255, 'a')));
}

TEST_CASE("File name: a path, a control character and a long one are refused",
          "[common][storage]") {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("/"), std::string("a/b"),
        std::string("../a"), std::string("a/"), std::string("a\0b", 3), std::string(1, '\0'),
        std::string("a\n"), std::string("\x7f"), std::string("\x1b[2J"), std::string(256, 'a')}) {
    INFO("'" << name << "'");
    CHECK_FALSE(IsFileName(name));
  }
}

}  // namespace
}  // namespace capstan::file_name_test
