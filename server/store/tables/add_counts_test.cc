#include "server/store/tables/add_counts.h"

#include <google/protobuf/descriptor.h>

#include <catch2/catch.hpp>

#include "proto/parameter_server.pb.h"

namespace capstan::server::add_counts_test {
namespace {

// Counts whose fields, in the order of the message, are `first`, `first` + 1 and so on.
template <typename Counts>
Counts From(int64_t first) {
  Counts counts;
  const google::protobuf::Descriptor& type = *counts.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    counts.GetReflection()->SetInt64(&counts, type.field(i), first + i);
  }
  return counts;
}

template <typename Counts>
void CheckSum() {
  Counts sum = From<Counts>(10);
  AddCounts(From<Counts>(200), &sum);
  const google::protobuf::Descriptor& type = *sum.GetDescriptor();
  REQUIRE(type.field_count() > 1);
  for (int i = 0; i < type.field_count(); ++i) {
    CHECK(sum.GetReflection()->GetInt64(sum, type.field(i)) == 210 + 2 * i);
  }
}

TEST_CASE("Sums of counts: every field of what servers count is added", "[server]") {
  CheckSum<v1::RowCounts>();
  CheckSum<v1::KeyListCounts>();
}

}  // namespace
}  // namespace capstan::server::add_counts_test
