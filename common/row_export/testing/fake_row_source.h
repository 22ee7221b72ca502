// FakeRowSource: servers of one sparse table in memory, that fail as a test says.
//
// Row `key` is [key % 1000, key % 1000 + 1/8, + 2/8, ...]; bucket b is at version 10 + b, and one
// more for each Advance.
// Thread safety: thread-compatible.
#ifndef CAPSTAN_COMMON_ROW_EXPORT_TESTING_FAKE_ROW_SOURCE_H_
#define CAPSTAN_COMMON_ROW_EXPORT_TESTING_FAKE_ROW_SOURCE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/row_export/table_scan.h"
#include "common/time/clock.h"
#include "proto/parameter_server.pb.h"

namespace capstan {

class FakeRowSource final : public RowSource {
 public:
  FakeRowSource(int32_t buckets, int32_t dim);

  void Put(uint64_t key);  // Written by the update that made the bucket's version.
  void Erase(uint64_t key);
  std::vector<float> Row(uint64_t key) const;
  void Advance() { ++advanced_; }  // All buckets are a version further.
  // Table 3, "features".
  const v1::TableSpec& table() const { return table_; }
  v1::TableSpec& mutable_table() { return table_; }
  // Gives the buckets, in turn, to servers of these names, in a newer routing table.
  void Route(const std::vector<std::string>& servers);

  absl::StatusOr<v1::ScanRowsResponse> ScanRows(const v1::ServerAddress& server,
                                                const v1::ScanRowsRequest& request) override;
  absl::StatusOr<v1::RoutingTable> NewestRouting() override;
  absl::Status Pause(absl::Duration time) override;

  v1::RoutingTable routing;            // The newest.
  absl::Status routing_failure;        // The error of NewestRouting; OK: none.
  std::map<std::string, bool> failed;  // Servers that are not reached.
  // Called with the number of the call before it is answered; an error is the answer.
  std::function<absl::Status(int call)> before = [](int) { return absl::OkStatus(); };
  // Changes an answer.
  std::function<void(v1::ScanRowsResponse* response)> spoil = [](v1::ScanRowsResponse*) {};
  ManualClock clock;  // Pauses advance it.
  uint64_t timeline = 0;
  int calls = 0;
  std::vector<v1::ScanRowsRequest> asked;

 private:
  absl::Status Check(const v1::ServerAddress& server, const v1::ScanRowsRequest& request) const;

  v1::TableSpec table_;
  std::vector<std::map<uint64_t, uint64_t>> keys_;  // For each bucket: place -> key.
  std::map<uint64_t, int64_t> written_;             // Key -> Advances before it was put.
  int64_t advanced_ = 0;
};

}  // namespace capstan

#endif  // CAPSTAN_COMMON_ROW_EXPORT_TESTING_FAKE_ROW_SOURCE_H_
