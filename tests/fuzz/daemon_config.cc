// Text as a daemon's --config file: the daemon ends with the exit code of a usage error, or of
// --help and --version, or has flags whose values have been checked.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/command_line/command.h"
#include "common/net/node/daemon.h"
#include "common/net/socket/host_port.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace capstan::fuzz {

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::cout.setstate(std::ios::failbit);  // A fault would be hard to find among usage errors.
  std::cerr.setstate(std::ios::failbit);
  const MemoryFile file(absl::string_view(reinterpret_cast<const char*>(data), size));
  Program program("daemon");
  DaemonFlags flags;
  std::string scheduler;
  AddDaemonFlags(program, "daemon", &flags);
  AddSchedulerFlag(program, &scheduler);
  AddAdvertiseFlag(program, &flags);
  const std::string config = absl::StrCat("--config=", file.path());
  const char* const arguments[] = {"daemon", config.c_str()};
  const std::optional<int> code = program.Parse(2, arguments);
  if (code.has_value()) {
    FUZZ_CHECK(*code == 0 || *code == 2);
    return 0;
  }
  FUZZ_CHECK(ParseHostPort(flags.listen).ok());
  FUZZ_CHECK(ParseHostPort(scheduler).ok());
  FUZZ_CHECK(ParseHostPort(PeerAddress(flags, "127.0.0.1:7")).ok());
  FUZZ_CHECK(flags.log_format == "text" || flags.log_format == "json");
  return 0;
}

}  // namespace capstan::fuzz
