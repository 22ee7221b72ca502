#include "common/job/parse/job_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/job/fields/diagnostic.h"
#include "common/job/validate/validate.h"
#include "common/testing/status_matchers.h"

namespace capstan::job_file_test {
namespace {

constexpr char kGoodText[] = R"(# A comment.
name: "lenet"
model { zoo: "lenet" }
data {
  format: IDX
  train { images: "data/images" labels: "/abs/labels" }
}
training {
  epochs: 2
  batch_size: 64
}
optimizer { sgd {} learning_rate: 0.1 }
resources { workers: 2 }
output { directory: "../out" }
checkpoints { directory: "saved" }
)";

constexpr char kGoodJson[] = R"({
  "name": "lenet",
  "model": {"layers": [
    {"name": "a", "relu": {}},
    {"name": "b", "fully_connected": {"units": 10}}
  ]},
  "data": {"format": "IDX", "train": {"images": "i", "labels": "l"}},
  "training": {"epochs": 2,
    "batchSize": 64},
  "optimizer": {"sgd": {}, "learning_rate": 0.1},
  "resources": {"workers": 2}
})";

JobFile Parse(const std::string& name, const std::string& text) {
  REQUIRE_OK_AND_ASSIGN(JobFile file, JobFile::Parse(name, text, "/jobs"));
  return file;
}

// The message of a file that cannot be read.
std::string ParseError(const std::string& name, const std::string& text) {
  const absl::StatusOr<JobFile> file = JobFile::Parse(name, text, "/jobs");
  if (file.ok()) return "no error";
  CHECK(file.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(file.status().message());
}

// Everything that is wrong with a file that can be read, a line each.
std::string ValidationErrors(const JobFile& file) {
  std::vector<std::string> lines;
  for (const Diagnostic& diagnostic : ValidateJob(file.spec())) {
    lines.push_back(file.Render(diagnostic));
  }
  return absl::StrJoin(lines, "\n");
}

// kGoodText with `from` replaced by `to`.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = kGoodText;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("JobFile: text and JSON give the same job", "[job]") {
  CHECK(ValidationErrors(Parse("job.textproto", kGoodText)) == "");
  const JobFile json = Parse("job.json", kGoodJson);
  CHECK(ValidationErrors(json) == "");
  CHECK(json.spec().training().batch_size() == 64);
  CHECK(json.spec().model().layers(1).fully_connected().units() == 10);
  CHECK(Parse("job", kGoodJson).spec().name() == "lenet");
}

TEST_CASE("JobFile: relative paths start at the job file's folder", "[job]") {
  const v1::JobSpec spec = Parse("job.textproto", kGoodText).spec();
  CHECK(spec.data().train().images() == "/jobs/data/images");
  CHECK(spec.data().train().labels() == "/abs/labels");
  CHECK(spec.output().directory() == "/out");
  CHECK(spec.checkpoints().directory() == "/jobs/saved");
  CHECK_FALSE(spec.data().has_test());
}

TEST_CASE("JobFile: what is wrong is said with file, line and column", "[job]") {
  struct Case {
    const char* from;
    const char* to;
    const char* error;
  };
  const Case cases[] = {
      {"batch_size: 64", "batch_size: -4",
       "job.textproto:10:3: training.batch_size: got -4, expected at least 1"},
      {"batch_size: 64", "batch_size: 0",
       "job.textproto:10:3: training.batch_size: got 0, expected at least 1"},
      {"batch_size: 64", "",
       "job.textproto:8:1: training.batch_size: got nothing, expected at least 1"},
      {"\n  batch_size: 64", "\n\tbatch_size: -4",
       "job.textproto:10:2: training.batch_size: got -4, expected at least 1"},
      {"sgd {} learning_rate: 0.1", "sgd {} learning_rate: nan",
       "job.textproto:12:20: optimizer.learning_rate: got nan, expected a finite number above 0"},
      {"resources { workers: 2 }", "", "job.textproto: resources: got nothing, expected workers"},
      {"zoo: \"lenet\"",
       "layers { name: 'a' relu {} }\n layers {\n name: 'b' dropout {\n rate: 2 } }",
       "job.textproto:6:2: model.layers[1].dropout.rate: got 2, expected a number in [0, 1)"},
      {"zoo: \"lenet\"", "layers { name: 'a' relu {} inputs: ['input',\n 'b'] }",
       "job.textproto:3:36: model.layers[0].inputs: got 2 names, expected at most 1, since only "
       "add "
       "reads two\n"
       "job.textproto:3:36: model.layers[0].inputs[1]: got \"b\", expected \"input\" or the name "
       "of a "
       "layer above"},
  };
  for (const Case& c : cases) {
    INFO(c.to);
    CHECK(ValidationErrors(Parse("job.textproto", Changed(c.from, c.to))) == c.error);
  }
}

TEST_CASE("JobFile: a text file that cannot be read is explained where it fails", "[job]") {
  struct Case {
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"training {\n  epochs: 1\n  batchsize: 4\n}",
       "j:3:3: training.batchsize: no such field; did you mean \"batch_size\"? training has "
       "epochs, "
       "batch_size, slots, seed, iterations_max, compute, initial_weights, "
       "initial_weights_partial, class_weights, "
       "positive_weights, metric, early_stopping, keep_best, reduce_on_plateau"},
      {"model { layers { name: 'a' } layers { convolution { size: 3 } } }",
       "j:1:53: model.layers[1].convolution.size: no such field; model.layers[1].convolution has "
       "filters, kernel, stride, padding, bias, initial"},
      {"trainning { epochs: 1 seeds: 3 } nam: 'x'",
       "j:1:1: trainning: no such field; did you mean \"training\"? a job has name, model, data, "
       "training, optimizer, consistency, resources, output, durability, checkpoints, wire, "
       "labels, note, program\n"
       "j:1:34: nam: no such field; did you mean \"name\"? a job has name, model, data, training, "
       "optimizer, consistency, resources, output, durability, checkpoints, wire, labels, note, "
       "program"},
      {"training { epochs: 'x' }", "j:1:20: training.epochs: expected integer, got: 'x'"},
      {"training { epochs: 1.5 }", "j:1:20: training.epochs: expected integer, got: 1.5"},
      {"training { epochs: 99999999999 }",
       "j:1:20: training.epochs: integer out of range (99999999999)"},
      {"training { epochs 4 }", "j:1:19: training.epochs: expected \":\", found \"4\""},
      {"# {\n training { epochs:",
       "j:2:20: training.epochs: expected integer, got: the end of the "
       "file"},
      {"training {", "j:1:11: training: expected identifier, got: the end of the file"},
      {"training { epochs: 1 epochs: 2 }",
       "j:1:22: training.epochs: non-repeated field \"epochs\" is specified multiple times"},
      {"model { layers { relu {} add {} } }",
       "j:1:26: model.layers[0].add: field \"add\" is specified along with field \"relu\", another "
       "member of oneof \"kind\""},
      {"data { format: IDY }",
       "j:1:20: data.format: got \"IDY\", expected one of IDX, CIFAR10_BINARY, SVMLIGHT, CRITEO, "
       "COLUMNS, TEXT, CLICK_LOG, IMAGE_FOLDER, NUMPY; did you mean "
       "\"IDX\"?"},
      {"name: 'a' }", "j:1:11: expected identifier, got: }"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(ParseError("j", c.text) == c.error);
  }
}

TEST_CASE("JobFile: deep nesting is refused, not overflowed", "[job]") {
  const auto nested = [](const std::string& open) {
    std::string text;
    for (int i = 0; i < 1'000'000; ++i) text += open;
    return text;
  };
  CHECK_THAT(ParseError("j", "model {\n" + nested("a{")),
             Catch::StartsWith("j:2:1: model.a: no such field") &&
                 Catch::EndsWith("\nj:2:200: expected at most 100 levels of nesting"));
  CHECK_THAT(ParseError("j", nested("a<")),
             Catch::EndsWith("\nj:1:202: expected at most 100 levels of nesting"));
  CHECK_THAT(ParseError("j", "a: " + nested("[")),
             Catch::EndsWith("\nj:1:104: expected at most 100 levels of nesting"));
  CHECK(ParseError("j.json", nested("[")) ==
        "j.json:1:102: got '[', expected at most 100 levels of nesting");
}

TEST_CASE("JobFile: of a million errors a hundred are told, and soon", "[job]") {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "x:1\n";
  const std::vector<std::string> lines = absl::StrSplit(ParseError("j", text), '\n');
  REQUIRE(lines.size() == kDiagnosticsMax);
  CHECK_THAT(lines[98], Catch::StartsWith("j:99:1: x: no such field"));
  CHECK(lines[99] == "j: and 999901 more errors");
  std::string json = "{";
  for (int i = 0; i < 1'000'000; ++i) json += "\"x\":1,\n";
  const std::vector<std::string> told = absl::StrSplit(ParseError("j", json + "\"y\":1}"), '\n');
  REQUIRE(told.size() == kDiagnosticsMax);
  CHECK_THAT(told[98], Catch::StartsWith("j:99:1: x: no such field"));
  CHECK(told[99] == "j: and 999902 more errors");
}

TEST_CASE("JobFile: many fields in one line are located soon", "[job]") {
  std::string text = "\ttraining { class_weights: -1";
  for (int i = 0; i < 100'000; ++i) text += "\tclass_weights: 0";
  const JobFile file = Parse("j", text + "\nbatch_size: -4 }");
  CHECK(file.spec().training().class_weights_size() == 100'001);
  CHECK(file.Render(GotExpected("training.class_weights[0]", "-1", "more")) ==
        "j:1:13: training.class_weights[0]: got -1, expected more");
  CHECK(file.Render(GotExpected("training.class_weights[100000]", "0", "less")) ==
        "j:1:1700014: training.class_weights[100000]: got 0, expected less");
  CHECK(file.Render(GotExpected("training.batch_size", "-4", "more")) ==
        "j:2:1: training.batch_size: got -4, expected more");
}

TEST_CASE("JobFile: labels are a map in text and an object in JSON", "[job]") {
  const JobFile text = Parse("job.textproto", "labels { key: 'a' value: '1' } note: 'n'");
  const JobFile json = Parse("job.json", R"({"labels": {"a": "1"}, "note": "n"})");
  for (const JobFile* file : {&text, &json}) {
    REQUIRE(file->spec().labels_size() == 1);
    CHECK(file->spec().labels().at("a") == "1");
    CHECK(file->spec().note() == "n");
  }
}

TEST_CASE("JobFile: a JSON file that cannot be read is explained where it fails", "[job]") {
  struct Case {
    const char* text;
    const char* error;
  };
  const Case cases[] = {
      {"{\"training\": {\n  \"batchsize\": 4, \"epoch\": 1}}",
       "j.json:2:3: training.batchsize: no such field; did you mean \"batch_size\"? training has "
       "epochs, batch_size, slots, seed, iterations_max, compute, initial_weights, "
       "initial_weights_partial, class_weights, "
       "positive_weights, metric, early_stopping, keep_best, reduce_on_plateau\n"
       "j.json:2:19: training.epoch: no such field; did you mean \"epochs\"? training has epochs, "
       "batch_size, slots, seed, iterations_max, compute, initial_weights, "
       "initial_weights_partial, class_weights, "
       "positive_weights, metric, early_stopping, keep_best, reduce_on_plateau"},
      {"{\"training\": {\"epochs\": 1,}}", "j.json:1:27: got '}', expected a key in double quotes"},
      {"{\"training\": {\"epochs\": 1.5}}",
       "j.json:1:15: training.epochs: invalid value 1.5 for type 32-bit integer"},
      {"{\"data\": {\"format\": \"IDY\"}}",
       "j.json:1:11: data.format: invalid value \"IDY\" for type Data.Format"},
      {"{\"model\": {\"layers\": {}}}",
       "j.json:1:22: model.layers: got an object, expected a list"},
      {"{\"model\": {\"layers\": [{\"relu\": 3}]}}",
       "j.json:1:32: model.layers[0].relu: got a number, expected an object"},
      {"{\"training\": {\"epochs\": 1, \"epochs\": 2}}",
       "j.json:1:28: training.epochs: given twice, expected once"},
      {"{\"labels\": [1]}", "j.json:1:12: labels: got a list, expected an object"},
      {"{\"labels\": {\"a\": 1}}", "j.json:1:18: labels[\"a\"]: got a number, expected a string"},
      {"{\"labels\": {\"a\": \"1\", \"a\": \"2\"}}",
       "j.json:1:23: labels[\"a\"]: given twice, expected once"},
      {"[1]", "j.json:1:1: got a list, expected an object"},
      {"name: 'x'", "j.json:1:1: got 'n', expected a value"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(ParseError("j.json", c.text) == c.error);
  }
}

TEST_CASE("JobFile: JSON fields are located for validation too", "[job]") {
  JobFile file = Parse("job.json", kGoodJson);
  v1::JobSpec wrong = file.spec();
  wrong.mutable_training()->set_batch_size(-4);
  wrong.mutable_model()->mutable_layers(1)->mutable_fully_connected()->set_units(0);
  const std::vector<Diagnostic> diagnostics = ValidateJob(wrong);
  REQUIRE(diagnostics.size() == 2);
  CHECK(file.Render(diagnostics[0]) ==
        "job.json:5:39: model.layers[1].fully_connected.units: got 0, expected at least 1");
  CHECK(file.Render(diagnostics[1]) ==
        "job.json:9:5: training.batch_size: got -4, expected at least 1");
}

TEST_CASE("JobFile: an override is validated and blamed by its own text", "[job]") {
  JobFile file = Parse("job.textproto", kGoodText);
  REQUIRE_OK(file.Set("training.epochs=5"));
  CHECK(file.spec().training().epochs() == 5);
  REQUIRE_OK(file.Set("training.epochs=-1"));
  CHECK(ValidationErrors(file) ==
        "--set training.epochs=-1: training.epochs: got -1, expected at least 1");
  CHECK_STATUS(file.Set("epochs"), absl::StatusCode::kInvalidArgument,
               "--set epochs: expected FIELD=VALUE, such as training.epochs=3");
  CHECK_STATUS(file.Set("training.epoch=3"), absl::StatusCode::kInvalidArgument,
               "--set training.epoch=3: training.epoch: no such field; did you mean \"epochs\"?");
}

TEST_CASE("JobFile: an overridden path starts at the working directory", "[job]") {
  JobFile file = Parse("job.textproto", kGoodText);
  REQUIRE_OK(file.Set("data.train.images=x/y"));
  CHECK(file.spec().data().train().images() == (std::filesystem::current_path() / "x/y").string());
}

TEST_CASE("JobFile: files are read from disk, and what is no job file is refused", "[job]") {
  const std::string folder = std::string(std::getenv("TEST_TMPDIR")) + "/job_file_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/job.textproto") << kGoodText;
  REQUIRE_OK_AND_ASSIGN(const JobFile file, JobFile::Load(folder + "/job.textproto"));
  CHECK(file.spec().data().train().images() == folder + "/data/images");
  CHECK_STATUS(JobFile::Load(folder + "/none"), absl::StatusCode::kNotFound,
               folder + "/none: cannot read the job file: No such file or directory");
  CHECK_STATUS(JobFile::Load(folder), absl::StatusCode::kInvalidArgument,
               folder + ": got a folder, expected a job file");
  std::ofstream(folder + "/large").close();
  std::filesystem::resize_file(folder + "/large", (16 << 20) + 1);
  CHECK_STATUS(JobFile::Load(folder + "/large"), absl::StatusCode::kInvalidArgument,
               "got 16777217 bytes, expected a job file of at most 16777216");
}

TEST_CASE("JobFile: another file fills in what it lacks, and is named in errors", "[job]") {
  JobFile file = Parse("job.json", R"({"training": {"epochs": 2}, "optimizer": {"sgd": {}},
      "program": {"command": ["a", "b"]}, "labels": {"k": "mine"}})");
  REQUIRE_OK(file.Set("training.seed=4"));
  file.FillIn(Parse("base.textproto", R"(training { epochs: 9 seed: 9 batch_size: -8 }
      optimizer { adam {} learning_rate: 0.5 }
      program { command: "c" directory: "/d" }
      resources { workers: 0 }
      labels { key: "k" value: "base's" } labels { key: "l" value: "base's" })"));
  const v1::JobSpec& spec = file.spec();
  CHECK(spec.training().epochs() == 2);
  CHECK(spec.training().seed() == 4);
  CHECK(spec.training().batch_size() == -8);
  CHECK(spec.optimizer().has_sgd());
  CHECK(spec.optimizer().learning_rate() == 0.5f);
  CHECK(spec.program().command_size() == 2);
  CHECK(spec.program().directory() == "/d");
  CHECK(spec.labels().at("k") == "mine");
  CHECK(spec.labels().at("l") == "base's");
  CHECK(file.Render(GotExpected("training.batch_size", "-8", "at least 1")) ==
        "base.textproto:1:30: training.batch_size: got -8, expected at least 1");
  CHECK(file.Render(GotExpected("training.epochs", "2", "1")) ==
        "job.json:1:15: training.epochs: got 2, expected 1");
}

}  // namespace
}  // namespace capstan::job_file_test
