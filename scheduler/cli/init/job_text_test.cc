#include "scheduler/cli/init/job_text.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/parse/job_file.h"
#include "common/job/validate/validate.h"
#include "common/testing/status_matchers.h"

namespace capstan::cli::job_text_test {
namespace {

using Lines = std::vector<std::string>;

absl::StatusOr<std::string> TextOf(const Lines& lines, const CsvJob& job) {
  REQUIRE_OK_AND_ASSIGN(const TableSample table, SampleTable(lines));
  return CsvJobText(table, job);
}

// Returns the job in the written text, and checks that it has no mistakes.
v1::JobSpec JobOf(const Lines& lines, CsvJob job = {}) {
  job.train = "/data/a \"b\".csv";
  REQUIRE_OK_AND_ASSIGN(const std::string text, TextOf(lines, job));
  INFO(text);
  REQUIRE_OK_AND_ASSIGN(const JobFile file, JobFile::Parse("j", text, "/"));
  for (const Diagnostic& diagnostic : ValidateJob(file.spec())) FAIL(diagnostic.ToString());
  CHECK(file.spec().data().train().files(0) == job.train);
  return file.spec();
}

TEST_CASE("Init: each column is used as its values say", "[cli]") {
  Lines lines = {"id,age,town,clicks,empty,country,bought"};
  for (int i = 0; i < 200; ++i) {
    const int clicks = i == 7 ? 100000 : i % 3;
    lines.push_back(absl::StrCat("user-", i, ",", i % 50 == 0 ? "" : absl::StrCat(20 + i % 40), ",",
                                 i % 2 == 0 ? "Oslo" : "Bern", ",", clicks, ",,CH,",
                                 i % 3 == 0 ? "yes" : "no"));
  }
  const v1::JobSpec job = JobOf(lines);
  const v1::Columns& columns = job.data().columns();
  CHECK(columns.header());
  REQUIRE(columns.columns_size() == 7);
  CHECK(columns.columns(0).kind() == v1::Column::SKIP);  // The column names its line.
  CHECK(columns.columns(1).kind() == v1::Column::DENSE);
  CHECK(columns.columns(1).divide() > 10);
  CHECK(columns.columns(1).missing() == Approx(columns.columns(1).subtract()));
  CHECK(columns.columns(2).kind() == v1::Column::CATEGORY);
  CHECK(columns.columns(3).log1p());
  CHECK_FALSE(columns.columns(3).has_missing());
  CHECK(columns.columns(4).kind() == v1::Column::SKIP);
  CHECK(columns.columns(5).kind() == v1::Column::SKIP);
  CHECK(columns.columns(6).kind() == v1::Column::LABEL);
  // The rarer of the two values is the positive one.
  REQUIRE(columns.columns(6).label().positive_size() == 1);
  CHECK(columns.columns(6).label().positive(0) == "yes");
  CHECK(job.model().sparse().logistic_regression().loss() == v1::SparseModel::LOG_LOSS);
  CHECK(job.training().batch_size() == 100);
}

TEST_CASE("Init: numbers that are labels are clicks or what is predicted", "[cli]") {
  const v1::JobSpec clicks = JobOf({"1,0", "2,1", "3,0"});
  CHECK(clicks.data().columns().columns(1).label().positive_size() == 0);
  CHECK(clicks.training().batch_size() == 3);
  CHECK(JobOf({"1,-1", "2,1", "3,1"}).data().columns().columns(1).label().positive_size() == 0);
  // Both 1 and 2 are above 0, so the job must name the positive value.
  CHECK(JobOf({"1,1", "2,2", "3,2"}).data().columns().columns(1).label().positive(0) == "1");
  const v1::JobSpec prices = JobOf({"1,10", "2,20", "3,60"});
  CHECK(prices.model().sparse().logistic_regression().loss() == v1::SparseModel::SQUARED);
  CHECK(prices.model().sparse().logistic_regression().bias() == 30);
}

TEST_CASE("Init: large numbers are scaled by their mean, not by a rounded one", "[cli]") {
  Lines lines;
  double sum = 0;
  for (int i = 0; i < 60; ++i) {  // Unix seconds of an hour, as floats have them.
    const int seconds = (1'700'000'000 + 60 * i) / 128 * 128;
    sum += seconds;
    lines.push_back(absl::StrCat(seconds, ",", i % 2));
  }
  const v1::Column column = JobOf(lines).data().columns().columns(0);
  CHECK(column.divide() == Approx(1040).epsilon(0.05));
  CHECK(std::abs(column.subtract() - sum / 60) < 128);  // Floats are 128 apart there.
}

TEST_CASE("Init: numbers that differ as texts only never vary", "[cli]") {
  const v1::JobSpec job = JobOf({"1,7,0", "1.0,8,1"});
  CHECK(job.data().columns().columns(0).kind() == v1::Column::SKIP);
  CHECK(job.data().columns().columns(1).kind() == v1::Column::DENSE);
}

TEST_CASE("Init: of many names the most frequent is told from the others", "[cli]") {
  const v1::JobSpec job = JobOf({"1,a", "2,b", "3,b", "4,c"});
  CHECK(job.data().columns().columns(1).label().positive(0) == "b");
}

TEST_CASE("Init: the label is a column's name or number", "[cli]") {
  const Lines lines = {"x;y", "1;0", "0;2"};
  const v1::JobSpec named = JobOf(lines, {.label = "x"});
  CHECK(named.data().columns().columns(0).kind() == v1::Column::LABEL);
  CHECK(named.data().columns().separator() == ";");
  CHECK(JobOf(lines, {.label = "1"}).data().columns().columns(0).kind() == v1::Column::LABEL);
  const auto code = absl::StatusCode::kInvalidArgument;
  for (const char* const wrong : {"z", "0", "3"}) {
    CHECK_STATUS(
        TextOf(lines, {.label = wrong}), code,
        absl::StrCat("--label=", wrong, ": found no such column, expected 1 to 2 or one of x, y"));
  }
}

TEST_CASE("Init: data that nothing can be learnt from is refused", "[cli]") {
  const auto code = absl::StatusCode::kInvalidArgument;
  CHECK_STATUS(TextOf({"1,7", "2,7"}, {}), code, "column 2 is \"7\" in every line");
  CHECK_STATUS(TextOf({"1,", "2,"}, {}), code, "column 2 is always empty");
  CHECK_STATUS(TextOf({"1,0", "1,1"}, {}), code, "found no feature among 2 columns");
}

TEST_CASE("Init: test data stand in the job, or a hint", "[cli]") {
  const Lines lines = {"1,0", "2,1"};
  CHECK(JobOf(lines, {.test = "/t.csv"}).data().test().files(0) == "/t.csv");
  REQUIRE_OK_AND_ASSIGN(const std::string text, TextOf(lines, {.train = "/a.csv"}));
  CHECK(absl::StrContains(text, "# Evaluated after each epoch: test"));
}

v1::JobSpec ImagesJobOf(const ImagesSample& images) {
  const std::string text = ImagesJobText(images, {.name = "pets", .train = "/data/pets"});
  INFO(text);
  REQUIRE_OK_AND_ASSIGN(const JobFile file, JobFile::Parse("j", text, "/"));
  for (const Diagnostic& diagnostic : ValidateJob(file.spec())) FAIL(diagnostic.ToString());
  CHECK(file.spec().data().train().images() == "/data/pets");
  return file.spec();
}

TEST_CASE("Init: images of one size stay as they are", "[cli]") {
  const v1::JobSpec job =
      ImagesJobOf({.classes = 2, .images = 500, .least_height = 28, .least_width = 30});
  CHECK(job.model().zoo() == "lenet");
  CHECK_FALSE(job.data().image_folder().has_height());
  CHECK(job.data().image_folder().channels() == 1);
  CHECK(job.data().augmentation().mean_size() == 1);
  CHECK(job.training().batch_size() == 32);
  CHECK_FALSE(job.data().has_test());
  CHECK(ImagesJobOf({.classes = 2, .images = 9, .least_height = 15, .least_width = 90})
            .model()
            .zoo() == "mlp");
}

TEST_CASE("Init: images of several sizes are scaled", "[cli]") {
  ImagesSample images{.classes = 3, .images = 20, .least_height = 300, .least_width = 200};
  images.one_size = images.grey = false;
  const v1::JobSpec job = ImagesJobOf(images);
  CHECK(job.data().image_folder().height() == 64);
  CHECK(job.data().image_folder().width() == 64);
  CHECK(job.data().image_folder().channels() == 3);
  CHECK(job.data().augmentation().std_size() == 3);
  CHECK(job.training().batch_size() == 20);
  images.least_width = 40;
  CHECK(ImagesJobOf(images).data().image_folder().height() == 40);
}

}  // namespace
}  // namespace capstan::cli::job_text_test
