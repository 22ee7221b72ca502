// Jobs on examples: what ValidateJob says of their data, models and optimizers.
#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/job/validate/validate.h"

namespace capstan::validate_examples_test {
namespace {

constexpr char kGood[] = R"(
  model { sparse { deep_fm { rank: 8 hidden: 32 } } }
  data {
    format: COLUMNS
    columns { columns { kind: LABEL } columns { kind: CATEGORY } separator: "\t" }
    examples { max_bad_fraction: 0.01 hash_buckets: 1000 }
    train { files: "/d/day-*.tsv" }
    test { files: "/d/test.tsv.gz" }
  }
  training { epochs: 1 batch_size: 64 }
  optimizer { adagrad { row_wise: true } learning_rate: 0.01 }
  resources { workers: 2 }
)";

using Lines = std::vector<std::string>;

// Lists the errors of the good job once the field `clear` of its data was cleared and the text
// `change` was merged into it.
Lines ErrorsAfter(const std::string& change, const std::string& clear = "") {
  v1::JobSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(kGood, &spec));
  if (!clear.empty()) {
    v1::Data& data = *spec.mutable_data();
    data.GetReflection()->ClearField(&data, data.GetDescriptor()->FindFieldByName(clear));
  }
  REQUIRE(google::protobuf::TextFormat::MergeFromString(change, &spec));
  Lines lines;
  for (const Diagnostic& diagnostic : ValidateJob(spec)) lines.push_back(diagnostic.ToString());
  return lines;
}

TEST_CASE("ValidateJob: jobs on examples that keep to the ranges", "[job]") {
  CHECK(ErrorsAfter("") == Lines{});
  CHECK(ErrorsAfter("data { format: SVMLIGHT examples { hash_buckets: 0 } }", "columns") ==
        Lines{});
  CHECK(ErrorsAfter("data { format: TEXT text { words_max: 5 } } model { sparse { skip_gram {} } }",
                    "columns") == Lines{});
  CHECK(ErrorsAfter("optimizer { ftrl { l1: 1 } }") == Lines{});
}

TEST_CASE("ValidateJob: fields that a format of examples does not have", "[job]") {
  CHECK(ErrorsAfter("data { text {} click_log {} augmentation { crop_padding: 1 } }") ==
        Lines{"data.text: got a value, expected nothing: it is for TEXT, and format is COLUMNS",
              "data.click_log: got a value, expected nothing: it is for CLICK_LOG, and format is "
              "COLUMNS",
              "data.augmentation: got a value, expected nothing: it is for images, and format is "
              "COLUMNS"});
  CHECK(ErrorsAfter("data { format: CRITEO train { images: 'x' } }") ==
        Lines{"data.train.images: got \"x\", expected nothing: format CRITEO reads files",
              "data.columns: got a value, expected nothing: it is for COLUMNS, and format is "
              "CRITEO"});
  CHECK(ErrorsAfter("data { train { first_example: 5 examples: 7 } }") ==
        Lines{"data.train.first_example: got 5, expected nothing: format COLUMNS reads files",
              "data.train.examples: got 7, expected nothing: format COLUMNS reads files"});
  CHECK(ErrorsAfter("data { train { files: '' } }") ==
        Lines{"data.train.files[1]: got nothing, expected a path"});
}

TEST_CASE("ValidateJob: columns have ranges, all or none, and splits headers", "[job]") {
  const std::string ranges = "data { columns { columns { range: '2-9' kind: DENSE } } }";
  CHECK(ErrorsAfter(ranges + " data { test { header: true } }", "columns") == Lines{});
  CHECK(ErrorsAfter(ranges + "data { columns { columns { kind: LABEL } } }", "columns") ==
        Lines{"data.columns.columns[1].range: got nothing, expected the columns that these are, "
              "counted from 1 (at most 1048576), such as \"4-41\" or \"7\""});
  CHECK(ErrorsAfter("data { format: CRITEO test { header: true } }", "columns") ==
        Lines{"data.test.header: got a value, expected nothing: it is for format COLUMNS"});
}

TEST_CASE("ValidateJob: columns are scaled by finite numbers, and not divided by 0", "[job]") {
  CHECK(ErrorsAfter("data { columns { columns { kind: DENSE subtract: 1.7e9 divide: -2 } } }") ==
        Lines{});
  CHECK(ErrorsAfter("data { columns { columns { kind: DENSE subtract: inf divide: 0 } } }") ==
        Lines{"data.columns.columns[2].subtract: got inf, expected a finite number",
              "data.columns.columns[2].divide: got 0, expected another number"});
}

TEST_CASE("ValidateJob: a click log has numbers instead of files", "[job]") {
  const Lines lines = ErrorsAfter("data { format: CLICK_LOG test { first_example: -1 } }");
  CHECK(lines[0] ==
        "data.train.files: got 1 path, expected none: format CLICK_LOG makes its examples");
  CHECK(lines[1] == "data.train.examples: got 0 or nothing, expected 1 to 281474976710656");
  CHECK(lines[3] == "data.test.first_example: got -1, expected at least 0");
}

TEST_CASE("ValidateJob: examples and columns keep to their ranges", "[job]") {
  CHECK(ErrorsAfter("data { examples { max_bad_fraction: 1.5 } columns { separator: 'ab' } }") ==
        Lines{"data.examples.max_bad_fraction: got 1.5, expected a number in [0, 1]",
              "data.columns.separator: got \"ab\", expected one byte, such as \",\" or \"\\t\""});
  CHECK(ErrorsAfter("data { columns {} }", "columns") ==
        Lines{"data.columns.columns: got nothing, expected what each column of a line is, from the "
              "first to the last"});
}

TEST_CASE("ValidateJob: keys that a file gives are not folded", "[job]") {
  CHECK(ErrorsAfter("data { format: SVMLIGHT }", "columns") ==
        Lines{"data.examples.hash_buckets: got 1000, expected nothing: the keys of SVMLIGHT are "
              "those that stand in the file"});
}

TEST_CASE("ValidateJob: models belong to their data", "[job]") {
  CHECK(ErrorsAfter("data { format: IDX train { images: 'a' labels: 'b' } }", "columns")[0] ==
        "model: got sparse, expected layers or zoo, as data.format is IDX");
  CHECK(ErrorsAfter("model { sparse { skip_gram {} } }") ==
        Lines{"model.sparse: got skip_gram, expected another model: skip_gram is for TEXT, as "
              "data.format is COLUMNS"});
  CHECK(ErrorsAfter("data { format: TEXT }", "columns") ==
        Lines{"model.sparse: got a model of examples with labels, expected skip_gram, as "
              "data.format is TEXT"});
  CHECK(ErrorsAfter("model { zoo: 'mlp' classes: 3 }") ==
        Lines{"model: got both sparse and zoo, expected one of them",
              "model.classes: got 3, expected nothing: sparse models have none"});
}

TEST_CASE("ValidateJob: sparse models are computed on the CPU", "[job]") {
  CHECK(ErrorsAfter("resources { device: 'cpu' }") == Lines{});
  CHECK(ErrorsAfter("resources { device: 'auto' }") ==
        Lines{"resources.device: got \"auto\", expected the CPU: no model.sparse is computed on "
              "GPUs"});
  CHECK(ErrorsAfter("resources { gpus: 1 }") ==
        Lines{"resources.gpus: got 1, expected the CPU: no model.sparse is computed on GPUs"});
}

TEST_CASE("ValidateJob: late gradients of rows are not corrected", "[job]") {
  CHECK(
      ErrorsAfter("consistency { ssp { rate_by_staleness: true delay_compensation: 0.5 } }") ==
      Lines{"consistency.ssp.rate_by_staleness: got true, expected nothing: late gradients of rows "
            "are not corrected",
            "consistency.ssp.delay_compensation: got 0.5, expected nothing: late gradients of rows "
            "are not corrected"});
}

TEST_CASE("ValidateJob: rows are kept where a rule lets them be used again", "[job]") {
  CHECK(ErrorsAfter("consistency { ssp { staleness_bound: 2 cached_rows: 100 } }") == Lines{});
  CHECK(ErrorsAfter("consistency { asp { cached_rows: 100 cached_iterations: 4 } }") == Lines{});
  CHECK(ErrorsAfter("consistency { ssp { staleness_bound: 1 cached_rows: 100 } }") ==
        Lines{"consistency.ssp.cached_rows: got 100, expected nothing: with staleness_bound 1 no "
              "row may be used twice, at least 2 is needed"});
  CHECK(ErrorsAfter("consistency { ssp { staleness_bound: 4 cached_rows: -1 } }") ==
        Lines{"consistency.ssp.cached_rows: got -1, expected 0 to 1073741824"});
  CHECK(ErrorsAfter("consistency { asp { cached_rows: 100 } }") ==
        Lines{"consistency.asp.cached_iterations: got 0 or nothing, expected 1 to 1000"});
  CHECK(ErrorsAfter("consistency { asp { cached_iterations: 4 } }") ==
        Lines{"consistency.asp.cached_iterations: got 4, expected nothing without cached_rows"});
  CHECK(ErrorsAfter("consistency { asp { cached_rows: 100 cached_iterations: 1001 "
                    "read_own_pushes: true } }") ==
        Lines{"consistency.asp.cached_rows: got 100, expected nothing with read_own_pushes: own "
              "pushes are missing in rows that were kept",
              "consistency.asp.cached_iterations: got 1001, expected 1 to 1000"});
}

TEST_CASE("ValidateJob: sparse models keep to their ranges", "[job]") {
  CHECK(ErrorsAfter("model { sparse { buckets: 5000 deep_fm { rank: 5000 hidden: 0 } } }") ==
        Lines{"model.sparse.buckets: got 5000, expected 1 to 4096",
              "model.sparse.deep_fm.rank: got 5000, expected 1 to 4095",
              "model.sparse.deep_fm.hidden[1]: got 0, expected 1 to 65536"});
  CHECK(ErrorsAfter("model { sparse { dlrm { embedding_std: -1 } } }") ==
        Lines{"model.sparse.dlrm.dim: got 0 or nothing, expected 1 to 4096",
              "model.sparse.dlrm.embedding_std: got -1, expected a finite number of at least 0"});
  CHECK(ErrorsAfter("model { sparse { matrix_factorization { mean: nan } } }") ==
        Lines{"model.sparse.matrix_factorization.rank: got 0 or nothing, expected 1 to 4095",
              "model.sparse.matrix_factorization.mean: got nan, expected a finite number"});
}

TEST_CASE("ValidateJob: the lifetime of a row keeps to its ranges", "[job]") {
  CHECK(ErrorsAfter("model { sparse { rows { admit_after: 255 evict_after_updates: 1 } } }") ==
        Lines{});
  CHECK(ErrorsAfter("model { sparse { rows { admit_after: 256 admit_probability: 0 rows_max: -1 } "
                    "} }") ==
        Lines{"model.sparse.rows.admit_after: got 256, expected 0 to 255",
              "model.sparse.rows.admit_probability: got 0, expected a number in (0, 1]",
              "model.sparse.rows.rows_max: got -1, expected 0 to 1099511627776"});
  CHECK(ErrorsAfter("model { sparse { rows { ttl_seconds: 60 } } }") == Lines{});
  CHECK(ErrorsAfter("model { sparse { rows { ttl_seconds: 315360000 } } }") == Lines{});
  for (const std::string seconds : {"-1", "59", "315360001"}) {
    CHECK(
        ErrorsAfter("model { sparse { rows { ttl_seconds: " + seconds + " } } }") ==
        Lines{"model.sparse.rows.ttl_seconds: got " + seconds + ", expected 0 or 60 to 315360000"});
  }
  CHECK(ErrorsAfter("model { sparse { rows { memory_mib: -1 } } }") ==
        Lines{"model.sparse.rows.memory_mib: got -1, expected 0 to 1073741824"});
}

TEST_CASE("ValidateJob: rows have rules of their own", "[job]") {
  CHECK(ErrorsAfter("optimizer { ftrl {} schedule { warmup_steps: 5 } }") ==
        Lines{"optimizer.schedule: got a rate that changes, expected none: with ftrl the weights "
              "of rows that are seldom updated follow from the rate"});
  CHECK(ErrorsAfter("optimizer { lars {} }") ==
        Lines{"optimizer: got lars, expected another: it takes norms over whole tensors, and a "
              "sparse model has rows"});
  v1::JobSpec images;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(
      "model { zoo: 'mlp' } data { format: IDX train { images: 'a' labels: 'b' } } "
      "training { epochs: 1 batch_size: 1 } resources { workers: 1 } "
      "optimizer { adagrad { row_wise: true } learning_rate: 1 }",
      &images));
  REQUIRE(ValidateJob(images).size() == 1);
  CHECK(ValidateJob(images)[0].ToString() ==
        "optimizer.adagrad.row_wise: got true, expected false: only a sparse model has rows");
}

}  // namespace
}  // namespace capstan::validate_examples_test
