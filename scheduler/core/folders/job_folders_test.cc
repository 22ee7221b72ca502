#include "scheduler/core/folders/job_folders.h"

#include <catch2/catch.hpp>

namespace capstan::scheduler::job_folders_test {
namespace {

JobFolders In(const std::string& output) { return {output, output + "/checkpoints"}; }

bool Clash(const JobFolders& a, const JobFolders& b) {
  const bool clash = !WhyFoldersClash(a, "b", b).empty();
  CHECK(clash == !WhyFoldersClash(b, "a", a).empty());  // The order does not matter.
  return clash;
}

TEST_CASE("Job folders: jobs clash that would write the same names", "[scheduler][core]") {
  CHECK(Clash(In("/out"), In("/out")));
  CHECK(Clash(In("/out"), {"/out", "/elsewhere/b-2"}));
  CHECK(Clash({"/a", "/kept/a"}, {"/b", "/kept/a"}));
  CHECK_FALSE(Clash(In("/out"), In("/other")));
  CHECK_FALSE(Clash({"/a", "/kept/a-1"}, {"/b", "/kept/b-2"}));
}

TEST_CASE("Job folders: a job may write beside another one's files, not among its checkpoints",
          "[scheduler][core]") {
  CHECK_FALSE(Clash(In("/out"), In("/out/b")));
  CHECK_FALSE(Clash(In("/"), In("/out")));
  CHECK_FALSE(Clash(In("/out"), In("/out/checkpoints-2")));
  CHECK_FALSE(Clash(In("/out"), {"/b", "/out/b-2"}));
  CHECK(Clash(In("/out"), In("/out/checkpoints")));
  CHECK(Clash(In("/out"), In("/out/checkpoints/checkpoint-3")));
  CHECK(Clash(In("/out"), {"/b", "/out/checkpoints/b-2"}));
  CHECK(Clash({"/a", "/"}, In("/out")));
}

TEST_CASE("Job folders: one that writes into none clashes with nobody", "[scheduler][core]") {
  CHECK_FALSE(Clash({}, {}));
  CHECK_FALSE(Clash({}, In("/out")));
  CHECK_FALSE(Clash({"", "/kept"}, {"/out", ""}));
}

TEST_CASE("Job folders: the message has the field, its value and the other job",
          "[scheduler][core]") {
  CHECK(WhyFoldersClash(In("/out"), "b-1", In("/out")) ==
        "output.directory: /out is the output folder of b-1");
  CHECK(WhyFoldersClash(In("/out/checkpoints/x"), "b-1", In("/out")) ==
        "output.directory: /out/checkpoints/x lies in /out/checkpoints, the checkpoints of b-1");
  CHECK(WhyFoldersClash({"/a", "/"}, "b-1", In("/out")) ==
        "checkpoints.directory: in / lies /out, the output folder of b-1");
  CHECK(WhyFoldersClash({"/a", "/x"}, "b-1", {"/b", "/x/y"}) ==
        "checkpoints.directory: /x and /x/y, the checkpoints of b-1, lie in each other");
}

}  // namespace
}  // namespace capstan::scheduler::job_folders_test
