#include "scheduler/cli/command_names.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <catch2/catch.hpp>

namespace capstan::cli {
namespace {

TEST_CASE("Command names: an unknown one is named, with what was meant (issue 21)", "[cli]") {
  CLI::App app("", "capstan");
  CLI::App* job = app.add_subcommand("job");
  for (const char* name : {"submit", "list", "describe", "stop"}) job->add_subcommand(name);
  CLI::App* node = app.add_subcommand("node");
  node->add_subcommand("list");
  app.add_subcommand("version");
  const auto says = [&app](const std::vector<std::string>& arguments) {
    return UnknownCommand(app, arguments);
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
}  // namespace capstan::cli
