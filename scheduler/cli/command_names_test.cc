#include "scheduler/cli/command_names.h"

#include <catch2/catch.hpp>

#include "common/command_line/command.h"

namespace capstan::cli::command_names_test {
namespace {

TEST_CASE("Command names: an unknown one is named, with what was meant (issue 21)", "[cli]") {
  Program program("", "capstan");
  const Command job = program.AddCommand("job", "");
  for (const char* name : {"submit", "list", "describe", "stop"}) job.AddCommand(name, "");
  const Command node = program.AddCommand("node", "");
  node.AddCommand("list", "");
  program.AddCommand("version", "");
  const auto says = [&program](const std::vector<std::string>& arguments) {
    return UnknownCommand(program, arguments);
  };
  CHECK(says({"jobs", "list"}) ==
        "there is no command \"jobs\"; did you mean \"job\"? capstan has job, node, version");
  CHECK(
      says({"job", "ls"}) ==
      "there is no command \"job ls\"; did you mean \"job list\"? job has submit, list, describe, "
      "stop");
  CHECK(says({"job", "descrbe", "a-1"}) ==
        "there is no command \"job descrbe\"; did you mean \"job describe\"? job has submit, list, "
        "describe, stop");
  CHECK(
      says({"list"}) ==
      "there is no command \"list\"; did you mean \"job list\" or \"node list\"? capstan has job, "
      "node, version");
  CHECK(says({"job", "frobnicate"}) ==
        "there is no command \"job frobnicate\"; job has submit, list, describe, stop");
  for (const std::vector<std::string>& known : {std::vector<std::string>{},
                                                {"--help"},
                                                {"job"},
                                                {"job", "--help"},
                                                {"job", "stop", "x"},
                                                {"version", "x"}}) {
    CHECK(says(known).empty());
  }
}

}  // namespace
}  // namespace capstan::cli::command_names_test
