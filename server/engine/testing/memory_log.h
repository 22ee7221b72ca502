// MemoryLog: a RecordSink for tests: it keeps the position of each shard, and reports it as durable
// when the test calls Sync.
//
// Thread safety: thread-compatible.
#ifndef CAPSTAN_SERVER_ENGINE_TESTING_MEMORY_LOG_H_
#define CAPSTAN_SERVER_ENGINE_TESTING_MEMORY_LOG_H_

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <utility>

#include "common/types/ids.h"
#include "proto/parameter_server.pb.h"
#include "server/engine/job/held_job.h"
#include "server/engine/record_sink.h"

namespace capstan::server {

class MemoryLog final : public RecordSink {
 public:
  void Begin(const JobId&, const ShardKey& shard, Term term,
             std::shared_ptr<const v1::ShardSnapshot> snapshot,
             std::shared_ptr<CapturedRows>) override {
    ends[shard] = {term, Position(snapshot->position())};
    begun = shard;
    ++begins;
  }
  void Append(const JobId&, const ShardKey& shard, Term term,
              std::shared_ptr<const v1::ShardRecord> record) override {
    REQUIRE(ends.at(shard) == std::pair(term, Position(record->position() - 1)));
    ends[shard].second = Position(record->position());
  }
  void Continue(const JobId&, const ShardKey& shard, Term term, Position position) override {
    REQUIRE(ends.at(shard).first < term);
    REQUIRE(ends.at(shard).second == position);
    ends[shard].first = term;
    ++continues;
  }
  void Forget(const JobId&, const ShardKey& shard) override { ends.erase(shard); }
  void ForgetJob(const JobId&) override { ends.clear(); }

  void Sync(HeldJob& job) {
    for (const auto& [shard, end] : ends) job.commits().OnLogged(shard, end.first, end.second);
  }

  // Same as Sync, for the shard that was begun last.
  void SyncBegun(HeldJob& job) {
    const ShardKey shard = begun;
    const auto [term, position] = ends.at(shard);
    job.commits().OnLogged(shard, term, position);
  }

  std::map<ShardKey, std::pair<Term, Position>> ends;
  ShardKey begun;
  int begins = 0;
  int continues = 0;
};

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_ENGINE_TESTING_MEMORY_LOG_H_
