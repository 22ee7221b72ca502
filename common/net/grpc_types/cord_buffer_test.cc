#include "common/net/grpc_types/cord_buffer.h"

#include <grpcpp/support/slice.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace capstan::cord_buffer_test {
namespace {

absl::Cord OfPieces(const std::vector<size_t>& sizes, int* alive) {
  absl::Cord cord;
  char next = 0;
  for (const size_t size : sizes) {
    auto* piece = new std::string(size, ++next);
    ++*alive;
    cord.Append(absl::MakeCordFromExternal(*piece, [piece, alive] {
      delete piece;
      --*alive;
    }));
  }
  return cord;
}

TEST_CASE("Cord buffer: the same bytes there and back, whatever the pieces", "[net]") {
  int alive = 0;
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>{}, {1}, {511, 512, 513}, {100'000, 3, 70'000}, {1, 1, 1, 5000}}) {
    const absl::Cord cord = OfPieces(sizes, &alive);
    const grpc::ByteBuffer buffer = ToByteBuffer(cord);
    CHECK(buffer.Length() == cord.size());
    CHECK(ToCord(buffer) == cord);
  }
  CHECK(alive == 0);
  CHECK(ToCord(grpc::ByteBuffer()).empty());
}

TEST_CASE("Cord buffer: large pieces are shared, and live as long as either side", "[net]") {
  int alive = 0;
  absl::Cord cord = OfPieces({1 << 20}, &alive);
  const char* place = cord.TryFlat()->data();
  grpc::ByteBuffer buffer = ToByteBuffer(cord);
  cord.Clear();
  CHECK(alive == 1);
  absl::Cord back = ToCord(buffer);
  buffer.Clear();
  CHECK(alive == 1);
  CHECK(back.TryFlat()->data() == place);
  back.Clear();
  CHECK(alive == 0);
}

}  // namespace
}  // namespace capstan::cord_buffer_test
