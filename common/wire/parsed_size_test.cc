#include "common/wire/parsed_size.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/parameter_server.pb.h"

namespace capstan::parsed_size_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MessageFactory;

template <typename Message>
std::optional<ParsedSize> CountIn(const std::string& bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 7);
  return CountParsed(*Message::descriptor(), &stream);
}

TEST_CASE("Parsed size: messages, repeated strings and unknown fields are objects", "[wire]") {
  v1::ReplicateRequest request;
  request.set_job_id("a job with a name that is no short one");
  request.set_term(7);
  CHECK(CountIn<v1::ReplicateRequest>("")->objects == 1);
  CHECK(CountIn<v1::ReplicateRequest>("")->longest == nullptr);
  CHECK(CountIn<v1::ReplicateRequest>(request.SerializeAsString())->objects == 1);
  for (int i = 0; i < 3; ++i) request.add_records()->mutable_push()->set_rank(i);
  for (int i = 0; i < 4; ++i) request.mutable_install()->add_optimizer_state("state");
  request.mutable_install()->mutable_state()->add_push_marks()->add_applied(1000);
  request.mutable_install()->mutable_state()->mutable_push_marks(0)->add_applied(2);
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(900, 5);
  request.mutable_records(1)
      ->GetReflection()
      ->MutableUnknownFields(request.mutable_records(1))
      ->AddLengthDelimited(901, "later");
  const auto size = CountIn<v1::ReplicateRequest>(request.SerializeAsString());
  REQUIRE(size.has_value());
  CHECK(size->objects == 1 + 3 * 2 + (1 + 4) + 1 + 1 + 2);
  CHECK(size->numbers == 3);  // Bytes of the list.
  CHECK(size->entries == 3);
  CHECK(size->longest->name() == "records");
  CHECK(size->BytesBesideStrings() ==
        16 * ParsedSize::kObjectBytesMax + 3 * ParsedSize::kNumberBytesMax);
}

TEST_CASE("Parsed size: what the parser takes as another field is counted as that", "[wire]") {
  const std::string number{1 << 3 | 0, 5};      // `messages` as a number: unknown.
  const std::string unpacked{5 << 3 | 0, 100};  // One of `applied`, by itself.
  CHECK(CountIn<v1::ReplicateBatch>(number)->objects == 2);
  CHECK(CountIn<v1::PushMarks>(unpacked + unpacked)->numbers == 2);
  CHECK(CountIn<v1::PushMarks>(unpacked + unpacked)->objects == 1);
}

TEST_CASE("Parsed size: bytes that are no message are refused", "[wire]") {
  CHECK_FALSE(CountIn<v1::ReplicateBatch>(std::string{1 << 3 | 2, 5, 0}).has_value());  // Cut.
  CHECK_FALSE(CountIn<v1::ReplicateBatch>(std::string{1 << 3 | 2}).has_value());
  CHECK_FALSE(CountIn<v1::ReplicateBatch>(std::string{0, 0}).has_value());
  CHECK_FALSE(CountIn<v1::ReplicateBatch>(std::string{9 << 3 | 3, 9 << 3 | 4}).has_value());
  v1::ShardSnapshot snapshot;
  v1::ShardSnapshot* inner = &snapshot;
  for (int i = 0; i < 98; ++i) inner = inner->add_pieces();
  CHECK(CountIn<v1::ShardSnapshot>(snapshot.SerializeAsString())->objects == 99);
  for (int i = 0; i < 10; ++i) inner = inner->add_pieces();
  CHECK_FALSE(CountIn<v1::ShardSnapshot>(snapshot.SerializeAsString()).has_value());
}

// Every kind of message that `type` may have in it, and itself.
void Collect(const Descriptor* type, std::set<const Descriptor*>* types) {
  if (!types->insert(type).second) return;
  for (int i = 0; i < type->field_count(); ++i) {
    if (type->field(i)->message_type() != nullptr) Collect(type->field(i)->message_type(), types);
  }
}

TEST_CASE("Parsed size: no kind of message takes more than is counted for an object", "[wire]") {
  constexpr int64_t kAllocation = 16;  // The allocator's own bytes in a block.
  constexpr int64_t kString = 32 + kAllocation;
  constexpr int64_t kList = 4 * 8 + 8 + kAllocation;  // The first places of a list.
  constexpr int64_t kPlace = 3 * 8;  // Its place in a list that is copied to one twice as long.
  constexpr int64_t kUnknown = 3 * 16 + kString;
  CHECK(kUnknown <= ParsedSize::kObjectBytesMax);
  std::set<const Descriptor*> types;
  for (const Descriptor* type :
       {v1::PushRequest::descriptor(), v1::PullRequest::descriptor(),
        v1::PullResponse::descriptor(), v1::ReplicateBatch::descriptor()}) {
    Collect(type, &types);
  }
  CHECK(types.size() > 20);
  for (const Descriptor* type : types) {
    CAPTURE(type->full_name());
    const auto* empty = MessageFactory::generated_factory()->GetPrototype(type);
    int64_t bytes = static_cast<int64_t>(empty->SpaceUsedLong()) + kAllocation + kPlace;
    bytes += 4 * 8 + 2 * kAllocation;  // The list of its unknown fields.
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor& field = *type->field(i);
      if (field.is_repeated()) bytes += kList;
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) bytes += kString;
    }
    CHECK(bytes <= ParsedSize::kObjectBytesMax);
  }
}

}  // namespace
}  // namespace capstan::parsed_size_test
