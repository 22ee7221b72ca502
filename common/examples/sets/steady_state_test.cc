// Once batches have grown to their size, reading and parsing allocate nothing: counted by an
// operator new of this test's own.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "common/examples/parsers/columns_parser.h"
#include "common/examples/parsers/criteo_parser.h"
#include "common/examples/parsers/svmlight_parser.h"
#include "common/examples/parsers/text_parser.h"
#include "common/examples/sets/example_source.h"
#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace {

int64_t allocations = 0;

}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace capstan::steady_state_test {
namespace {

using ::capstan::testing::TemporaryFolder;
using ::capstan::testing::ToBytes;

// A file of this line 10,000 times, read in batches of 100.
void CheckSteady(LineParser& parser, const std::string& line) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += line + "\n";
  const FileRange range = {folder.Write("f", ToBytes(text)), 0, static_cast<int64_t>(text.size())};
  BadLines bad_lines(0);
  ExampleBatch batch;
  REQUIRE_OK_AND_ASSIGN(const auto source, ExampleSource::Open(range, &parser, &bad_lines, {}));
  REQUIRE_OK(source->Next(100, &batch));
  const int64_t before = allocations;
  bool ok = true;
  for (int i = 1; i < 100; ++i) ok = source->Next(100, &batch).ok() && batch.count() == 100 && ok;
  const int64_t made = allocations - before;
  CHECK(ok);
  CHECK(made == 0);
}

TEST_CASE("Steady state: no parser allocates for a line", "[common][examples]") {
  const int64_t before = allocations;
  const std::vector<int> counted(10);
  REQUIRE(allocations > before);
  SECTION("svmlight") {
    SvmlightParser parser;
    CheckSteady(parser, "+1 qid:3 1:0.5 22:1 18446744073709551615:-7e3 # note");
  }
  SECTION("Criteo") {
    CriteoParser parser({});
    CheckSteady(parser, "1" + std::string(13, '\t') + std::string(26, '\t'));
  }
  SECTION("columns") {
    using Kind = ColumnsParser::Kind;
    REQUIRE_OK_AND_ASSIGN(const auto parser,
                          ColumnsParser::Create({.columns = {{.kind = Kind::kLabel},
                                                             {.kind = Kind::kDense},
                                                             {.kind = Kind::kCategory},
                                                             {.kind = Kind::kId}}}));
    CheckSteady(*parser, R"(1,0.5,"a ""quoted"" category, of some length",77)");
  }
  SECTION("text") {
    TextParser parser({});
    CheckSteady(parser, "to be or not to be");
  }
}

}  // namespace
}  // namespace capstan::steady_state_test
