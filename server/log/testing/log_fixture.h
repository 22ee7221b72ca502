// LogFixture: a long random script of a job's log, and what the log must hold after each step.
//
// Thread safety: thread-compatible. Invariants: states()[i] is what a log holds in which exactly
// the first i steps are whole.
#ifndef CAPSTAN_SERVER_LOG_TESTING_LOG_FIXTURE_H_
#define CAPSTAN_SERVER_LOG_TESTING_LOG_FIXTURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/log/job_log.h"

namespace capstan::server::testing {

// For each shard: term, base position and everything that was read of it, as text.
using LogState = std::map<ShardKey, std::string>;

// Reads every shard in Stored; also checks that Read and Stored agree.
absl::StatusOr<LogState> ReadState(const JobLog& log);

v1::ShardSnapshot FixtureSnapshot(int64_t position, uint64_t salt, size_t bytes);
v1::ShardRecord FixtureRecord(int64_t position, uint64_t salt, size_t bytes);

class LogFixture {
 public:
  // `steps` of Begin, Append, Continue and Forget over four shards, with a commit after some.
  LogFixture(uint64_t seed, int steps);

  // Carries the script out until a commit fails. Returns the count of steps that were committed;
  // sets `*tried` to that of steps that the log was given.
  int Run(JobLog& log, int* tried) const;

  const std::vector<LogState>& states() const { return states_; }

 private:
  enum class Kind { kBegin, kAppend, kContinue, kForget };
  struct Step {
    Kind kind = Kind::kBegin;
    ShardKey shard;
    Term term;
    int64_t position = 0;
    uint64_t salt = 0;
    size_t bytes = 0;
    bool commit = false;
  };
  std::vector<Step> steps_;
  std::vector<LogState> states_;
};

}  // namespace capstan::server::testing

#endif  // CAPSTAN_SERVER_LOG_TESTING_LOG_FIXTURE_H_
