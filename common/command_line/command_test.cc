#include "common/command_line/command.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace capstan::command_test {
namespace {

// A program with an option of each kind, and what it was told.
class Example {
 public:
  Example() {
    program_.AddOption("FILE", file, "A file").Required().ValueName("FILE");
    program_.AddOption("--threads", threads, "Threads").Between(1, 8).ShowDefault();
    program_.AddOption("--share", share, "A share").BetweenReals(0, 1);
    program_.AddOption("--rank", rank, "A rank").NotNegative();
    program_.AddOption("--note", note, "A note");
    program_.AddOption("--form", form, "A form").OneOf({"table", "json"}).LastCounts();
    program_.AddOption("--memory", memory, "Bytes").InBytes();
    program_.AddOption("--sizes", sizes, "Sizes").SeparatedBy(',');
    program_.AddOption("--label", labels, "A label").OneValueEach();
    program_.AddOption("--even", even, "An even number").Check([](const std::string& value) {
      return value == "4" ? "" : "expected 4";
    });
    const Option all = program_.AddFlag("--all", is_all, "All");
    program_.AddFlag("--none", is_none, "None").Excludes(all);
    program_.AddFlag("--secret", is_secret, "Not for users").Hidden().Needs(all);
    program_.AddVersion("example 1");
    program_.SetFooter("The end.");
  }

  std::optional<int> Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "example");
    return program_.Parse(static_cast<int>(arguments.size()), arguments.data(), said_);
  }

  std::string Said() const { return said_.str(); }

  std::string file, form = "table";
  int threads = 3, even = 0;
  double share = 0;
  std::optional<int> rank;
  std::optional<std::string> note;
  uint64_t memory = 0;
  std::vector<int64_t> sizes;
  std::vector<std::string> labels;
  bool is_all = false, is_none = false, is_secret = false;

 private:
  Program program_{"An example"};
  std::ostringstream said_;
};

TEST_CASE("Program: options set their variables, others keep their defaults", "[command_line]") {
  Example example;
  REQUIRE_FALSE(example
                    .Parse({"a", "--threads=8", "--share", "0.5", "--form=json", "--form=table",
                            "--memory=2KB", "--sizes=1,2", "--label", "x", "--label=y", "--all",
                            "--secret", "--even=4"})
                    .has_value());
  CHECK(example.file == "a");
  CHECK(example.threads == 8);
  CHECK(example.share == 0.5);
  CHECK(example.form == "table");
  CHECK(example.memory == 2048);
  CHECK(example.sizes == std::vector<int64_t>{1, 2});
  CHECK(example.labels == std::vector<std::string>{"x", "y"});
  CHECK(example.is_all);
  CHECK(example.is_secret);
  CHECK_FALSE(example.is_none);
  CHECK_FALSE(example.rank.has_value());
  CHECK_FALSE(example.note.has_value());
}

TEST_CASE("Program: an empty text is a value", "[command_line]") {
  Example example;
  REQUIRE_FALSE(example.Parse({"a", "--note", ""}).has_value());
  CHECK(example.note == "");
}

TEST_CASE("Program: wrong usage ends with 2", "[command_line]") {
  const std::vector<std::vector<const char*>> wrong = {
      {},
      {"a", "b"},
      {"a", "--threads=0"},
      {"a", "--threads=9"},
      {"a", "--threads=many"},
      {"a", "--share=1.5"},
      {"a", "--rank=-1"},
      {"a", "--form=xml"},
      {"a", "--memory=much"},
      {"a", "--label", "x", "y"},  // y is a second FILE.
      {"a", "--even=5"},
      {"a", "--all", "--none"},
      {"a", "--secret"},
      {"a", "--unknown"},
  };
  for (const std::vector<const char*>& arguments : wrong) {
    CAPTURE(arguments);
    Example example;
    CHECK(example.Parse(arguments) == 2);
    CHECK(example.Said().empty());
  }
}

TEST_CASE("Program: --help and --version end with 0", "[command_line]") {
  Example help;
  CHECK(help.Parse({"--help"}) == 0);
  CHECK_THAT(help.Said(), Catch::Contains("An example") && Catch::Contains("--threads") &&
                              Catch::Contains("=3") && Catch::Contains("The end."));
  CHECK_THAT(help.Said(), !Catch::Contains("--secret"));
  Example version;
  CHECK(version.Parse({"--version"}) == 0);
  CHECK(version.Said() == "example 1\n");
}

TEST_CASE("Program: the command line wins over the environment, that over the file",
          "[command_line]") {
  const std::string path =
      (std::filesystem::path(std::getenv("TEST_TMPDIR")) / "example.toml").string();
  std::ofstream(path) << "name = \"of the file\"\n";
  const std::string config = "--config=" + path;
  const auto name = [&config](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), {"example", config.c_str()});
    Program program("An example");
    std::string value = "default";
    program.AddOption("--name", value, "A name").FromEnvironment("CAPSTAN_EXAMPLE_NAME");
    program.AddConfigFile();
    CHECK_FALSE(program.Parse(static_cast<int>(arguments.size()), arguments.data()).has_value());
    return value;
  };
  CHECK(name({}) == "of the file");
  setenv("CAPSTAN_EXAMPLE_NAME", "of the environment", 1);
  CHECK(name({}) == "of the environment");
  CHECK(name({"--name=given"}) == "given");
  unsetenv("CAPSTAN_EXAMPLE_NAME");
}

TEST_CASE("Command: the named one is called, with the rest of the line if it wants that",
          "[command_line]") {
  const auto called = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "example");
    Program program("An example", "example");
    std::string calls;
    const Command job = program.AddCommand("job", "Jobs");
    job.RequireCommand();
    job.AddCommand("list", "Lists").OnNamed([&calls] { calls += "list"; });
    program.AddCommand("run", "Runs").OnNamedWith([&calls](const std::vector<std::string>& rest) {
      for (const std::string& argument : rest) calls += argument + ";";
    });
    CHECK(program.CommandNames() == std::vector<std::string>{"job", "run"});
    CHECK(program.Find("job").CommandNames() == std::vector<std::string>{"list"});
    CHECK(program.Find("job").Name() == "job");
    std::ostringstream ignored;
    const auto code = program.Parse(static_cast<int>(arguments.size()), arguments.data(), ignored);
    return code.has_value() ? "exit " + std::to_string(*code) : calls;
  };
  CHECK(called({"job", "list"}) == "list");
  CHECK(called({"run", "--help", "x"}) == "--help;x;");
  CHECK(called({"job"}) == "exit 2");
  CHECK(called({"job", "--help"}) == "exit 0");
}

}  // namespace
}  // namespace capstan::command_test
