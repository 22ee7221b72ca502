// Spawn: starts a child process whose output goes to a file, or to a pipe of the caller.
//
// The child starts with no signal blocked and none handled, standard input from /dev/null
// unless it is given one, and no other inherited file. Thread safety: a function.
#ifndef CAPSTAN_COMMON_PROCESS_SUBPROCESS_SPAWN_H_
#define CAPSTAN_COMMON_PROCESS_SUBPROCESS_SPAWN_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace capstan {

struct SpawnOptions {
  std::string program = {};            // Path; PATH is not searched.
  std::string name = {};               // args[0], as process listings show it; empty: `program`.
  std::vector<std::string> args = {};  // Arguments from args[1] on.
  // Names the variables of this process's environment that the child inherits; null: all.
  bool (*inherits)(absl::string_view name) = nullptr;
  // Added to the inherited variables, and replaces them. If a name stands twice, the last value
  // counts.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string directory = {};    // The child's working directory; empty: this process's.
  std::string output_file = {};  // Standard output and error are appended to it; made if missing.
  // Descriptors of the caller: `input` becomes the child's standard input, instead of /dev/null;
  // `output` becomes its standard output, so that only errors go to output_file. Below 0: none.
  int input = -1;
  int output = -1;
  // The child leads a session of its own: a terminal's Ctrl-C does not reach it. Otherwise it
  // leads a process group.
  bool own_session = false;
  // The child gets this number as its user and its only group. Needs the rights of root.
  std::optional<uid_t> user = {};
  // Neither the child nor what it runs ever gains rights: files with the set-user-ID bit give none
  // (PR_SET_NO_NEW_PRIVS).
  bool no_new_privileges = false;
  // Sent to the child when the THREAD that spawned it ends, however it ends (also by a crash of the
  // whole process); 0: none.
  int death_signal = 0;
};

// Returns the child's pid; the caller waits for it. Errors:
//   kNotFound     the program, or the folder of the output file, does not exist; names it.
//   kUnavailable  it cannot be run, the file cannot be opened, or no process is to be had; names
//                 which and why.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_PROCESS_SUBPROCESS_SPAWN_H_
