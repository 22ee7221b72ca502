// SavedRows: converts rows to the form that they have in snapshots of a bucket
// (proto/shard_state.proto); the functions below convert them back.
//
//   values           keys (fixed64), then the weights of each row
//   optimizer_state  one entry of all rows' state, then, for Adam, one of their counts (fixed32)
//   bucket.stamps    fixed32 a row
//
// Thread safety: thread-compatible; the functions are pure.
#ifndef CAPSTAN_SERVER_STORE_SPARSE_SAVED_ROWS_H_
#define CAPSTAN_SERVER_STORE_SPARSE_SAVED_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/parameter_server.pb.h"
#include "server/store/sparse/sparse_rows.h"

namespace capstan::server {

// The size of a row's key in a snapshot.
inline constexpr int64_t kKeyBytes = sizeof(uint64_t);

class SavedRows {
 public:
  explicit SavedRows(const SparseRows& rows) : rows_(rows) {}  // They are saved from these rows.

  void Add(const std::vector<SparseRows::Row>& rows);  // Ordered by place.
  int64_t bytes() const;
  void MoveTo(v1::ShardSnapshot* snapshot);

 private:
  const SparseRows& rows_;
  std::string keys_;
  std::string weights_;
  std::string state_;
  std::string counts_;
  std::string stamps_;
};

// How many rows a snapshot or a piece of one has by its stamps, which may be wrong.
int64_t RowsIn(const v1::ShardSnapshot& piece);

// Checks that state, counts and stamps in a snapshot, or a piece of one, are those of `count` rows.
// Errors: kDataLoss  one is of another size.
absl::Status CheckSizes(const v1::ShardSnapshot& piece, const SparseRows& rows, size_t count);

// Makes the rows in `values` (their keys are `keys`, checked) and what belongs to them.
// REQUIRES: CheckSizes. Errors: as SparseRows::Put.
absl::Status PutRows(const v1::ShardSnapshot& piece, absl::Span<const uint64_t> keys,
                     SparseRows* rows);

void SaveLifetime(const SparseRows::Lifetime& lifetime, v1::BucketState* bucket);
SparseRows::Lifetime LifetimeIn(const v1::ShardSnapshot& snapshot);

}  // namespace capstan::server

#endif  // CAPSTAN_SERVER_STORE_SPARSE_SAVED_ROWS_H_
