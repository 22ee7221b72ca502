#include "common/job/check/check_examples.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/data/testing/test_files.h"
#include "common/examples/testing/example_files.h"
#include "common/job/parse/job_file.h"
#include "common/testing/status_matchers.h"

namespace capstan::check_examples_test {
namespace {

using testing::ToBytes;

constexpr char kJob[] = R"(model { sparse { matrix_factorization { rank: 3 } buckets: 5 } }
data {
  format: COLUMNS
  columns { columns { kind: CATEGORY } columns { kind: CATEGORY } columns { kind: LABEL } }
  train { files: "train*.csv" }
  test { files: "test.csv" }
}
training { epochs: 1 batch_size: 2 }
optimizer { sgd {} learning_rate: 0.1 }
resources { workers: 1 }
)";

class Folder {
 public:
  Folder() {
    folder_.Write("train1.csv", ToBytes("anna,jaws,5\nbert,jaws,2\n"));
    folder_.Write("train2.csv", ToBytes("anna,alien,4\n"));
    folder_.Write("test.csv", ToBytes("bert,alien,3\n"));
    folder_.Write("bad.csv", ToBytes("bert,alien\n"));
    folder_.Write("empty.csv", ToBytes(""));
  }

  // kJob with `from` replaced by `to`.
  JobFile Job(const std::string& from = "", const std::string& to = "") const {
    const std::string text = from.empty() ? kJob : absl::StrReplaceAll(kJob, {{from, to}});
    REQUIRE_OK_AND_ASSIGN(JobFile file, JobFile::Parse("j", text, folder_.Path("")));
    return file;
  }

  // Renders the diagnostics of CheckJob for Job(from, to); FOLDER stands for the folder.
  std::string Errors(const std::string& from, const std::string& to) const {
    const JobFile file = Job(from, to);
    std::vector<std::string> lines;
    for (const Diagnostic& diagnostic : CheckJob(file.spec()).diagnostics) {
      lines.push_back(file.Render(diagnostic));
    }
    return absl::StrReplaceAll(absl::StrJoin(lines, "\n"), {{folder_.Path(""), "FOLDER/"}});
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_CASE("CheckJob: labels and features that never vary are told, by split", "[job]") {
  const Folder folder;
  CHECK(CheckJob(folder.Job().spec()).warnings.empty());  // A test set of one says nothing.
  const JobCheck check = CheckJob(folder.Job("train*.csv", "train1.csv").spec());
  CHECK(check.diagnostics.empty());
  REQUIRE(check.warnings.size() == 1);
  CHECK(check.warnings[0].find("data.train: in 2 examples column 2 never varies") == 0);
}

TEST_CASE("CheckJob: a job on examples comes with its tables and counts", "[job]") {
  const Folder folder;
  const JobCheck check = CheckJob(folder.Job().spec());
  CHECK(check.diagnostics.empty());
  CHECK(check.train_count == 3);
  CHECK(check.test_count == 1);
  CHECK(check.train_blocks == std::vector<int64_t>{3});  // They are held in memory.
  CHECK(check.test_blocks == std::vector<int64_t>{1});
  REQUIRE(check.tables.size() == 2);
  CHECK(check.tables[0].sparse().dim() == 4);
  CHECK(check.tables[0].elements() == 5);
  CHECK(check.tables[1].elements() == 1);
  // The mean of the labels, as the job has none.
  CHECK(check.tables[1].tensors(0).initializer().constant() == Approx(11.0f / 3));
}

TEST_CASE("CheckJob: examples that cannot be used are located where the job names them", "[job]") {
  const Folder folder;
  CHECK_THAT(folder.Errors("train*.csv", "none*.csv"),
             Catch::StartsWith("j:5:11: data.train.files") && Catch::Contains("none*.csv"));
  CHECK_THAT(folder.Errors("test.csv", "bad.csv"),
             Catch::StartsWith("j:6:10: data.test.files: 1 of 1 lines are malformed") &&
                 Catch::Contains("FOLDER/bad.csv:1: "));
  CHECK_THAT(folder.Errors("test.csv", "empty.csv"), Catch::Contains("FOLDER/empty.csv"));
}

TEST_CASE("CheckJob: the examples of all epochs together are limited", "[job]") {
  const Folder folder;
  const JobFile file = folder.Job(kJob, R"(model { sparse { logistic_regression {} } }
data { format: CLICK_LOG train { examples: 281474976710656 } }
training { epochs: 16385 batch_size: 2 }
optimizer { sgd {} learning_rate: 0.1 }
resources { workers: 1 }
)");
  const JobCheck check = CheckJob(file.spec());
  REQUIRE(check.diagnostics.size() == 1);
  CHECK(check.diagnostics[0].ToString() ==
        "training.epochs: got 16385, expected 1 to 16384, as an epoch has 281474976710656 samples");
}

TEST_CASE("CheckJob: examples, batch and model must fit together", "[job]") {
  const Folder folder;
  CHECK(folder.Errors("batch_size: 2", "batch_size: 4") ==
        "j:8:22: training.batch_size: got 4, expected at most 3, the number of training examples");
  CHECK_THAT(folder.Errors("columns { kind: CATEGORY } columns { kind: CATEGORY }",
                           "columns { kind: CATEGORY } columns { kind: SKIP }"),
             Catch::StartsWith("j:1:9: model.sparse: matrix factorisation: the examples have 1 "
                               "fields and 0 dense columns, expected 2 fields"));
  CHECK_THAT(folder.Errors("columns { kind: LABEL }", "columns { kind: LABEL missing: 1 }"),
             Catch::StartsWith("j:4:") && Catch::Contains("data.columns: column 3"));
  CHECK(
      folder.Errors("rank: 3 } buckets: 5", "rank: 4000 } buckets: 4096 rows { memory_mib: 1 }") ==
      "j:1:75: model.sparse.rows.memory_mib: got 1, expected at least 751, some rows of 4001 "
      "floats in each of 4096 buckets");
}

}  // namespace
}  // namespace capstan::check_examples_test
