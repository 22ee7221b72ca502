#include "common/examples/sets/unvaried.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/testing/test_files.h"
#include "common/examples/testing/example_files.h"
#include "common/testing/status_matchers.h"

namespace capstan::unvaried_test {
namespace {

using testing::TemporaryFolder;
using testing::ToBytes;

constexpr char kColumns[] = R"pb(
  format: COLUMNS
  columns {
    columns { kind: LABEL }
    columns { kind: DENSE name: "age" }
    columns { kind: CATEGORY }
    columns { kind: SKIP }
    columns { kind: CATEGORY name: "town" }
  }
)pb";

v1::Data Parse(const std::string& text) {
  v1::Data data;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &data));
  return data;
}

struct Found {
  Unvaried unvaried;
  std::vector<std::string> warnings;
};

Found Look(const std::string& file, const std::string& data_text = kColumns,
           int64_t examples_max = 1'000'000) {
  const TemporaryFolder folder;
  const v1::Data data = Parse(data_text);
  v1::Split split;
  split.add_files(folder.Write("data.csv", ToBytes(file)));
  REQUIRE_OK_AND_ASSIGN(const auto set, ExampleSet::Open(data, split));
  REQUIRE_OK_AND_ASSIGN(Unvaried unvaried, FindUnvaried(*set, examples_max));
  return {unvaried, UnvariedWarnings(data, "data.train", unvaried)};
}

TEST_CASE("Unvaried: where everything varies nothing is said", "[common][examples]") {
  CHECK(Look("0,1,a,x,b\n1,2,b,x,c\n").warnings.empty());
  CHECK(Look("0,1,a,x,b\n").warnings.empty());  // One example says nothing.
}

TEST_CASE("Unvaried: labels and features with one value are named", "[common][examples]") {
  const Found found = Look("3,1,a,x,b\n3,1,b,x,b\n3,1,c,y,b\n");
  CHECK(found.unvaried.label == 3.0f);
  CHECK(found.warnings ==
        std::vector<std::string>{
            "data.train: in 3 examples every label is 3: is it the column and the value that you "
            "mean?",
            "data.train: in 3 examples column 2 (age) never varies: the model can learn nothing "
            "from that",
            "data.train: in 3 examples column 5 (town) never varies: the model can learn nothing "
            "from that"});
}

TEST_CASE("Unvaried: an empty field is one as well, and a missing value is another value",
          "[common][examples]") {
  CHECK(Look("0,1,,x,a\n1,2,,x,\n").unvaried.fields == std::vector<int32_t>{0});
}

TEST_CASE("Unvaried: other values of the same keys vary", "[common][examples]") {
  CHECK(Look("1 7:1\n0 7:2\n", "format: SVMLIGHT").unvaried.fields.empty());
  CHECK(Look("1 7:1\n0 7:1\n", "format: SVMLIGHT").warnings.size() == 1);
}

TEST_CASE("Unvaried: the last of many examples counts, those behind the limit do not",
          "[common][examples]") {
  std::string file;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&file, "1,", i, ",", i, ",x,", i, "\n");
  file += "0,1,a,x,b\n";
  CHECK(Look(file).warnings.empty());
  const Found first = Look(file, kColumns, 5000);
  CHECK(first.unvaried.examples == 5000);
  CHECK(first.unvaried.label == 1.0f);
}

TEST_CASE("Unvaried: examples without labels are not told of them", "[common][examples]") {
  CHECK(Look("a\nb\n", "format: COLUMNS columns { columns { kind: CATEGORY } }").warnings.empty());
  CHECK(Look("a b\nc d\n", "format: TEXT").warnings.empty());
}

TEST_CASE("Unvaried: many columns make one sentence", "[common][examples]") {
  const Found found = Look("0,1,1,1,1,1,1,1\n1,1,1,1,1,1,1,1\n", R"pb(
    format: COLUMNS
    columns {
      columns { range: "1" kind: LABEL }
      columns { range: "2-8" kind: DENSE }
    })pb");
  REQUIRE(found.warnings.size() == 1);
  CHECK(found.warnings[0] ==
        "data.train: in 2 examples column 2, column 3, column 4, column 5, column 6 and 2 more "
        "never vary: the model can learn nothing from that");
}

}  // namespace
}  // namespace capstan::unvaried_test
