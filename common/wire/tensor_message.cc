#include "common/wire/tensor_message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status/status_macros.h"
#include "common/storage/crc32c.h"
#include "common/wire/cord_input_stream.h"
#include "common/wire/length_tag.h"

namespace capstan {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;

// Where a message has its values: in field `values` of each message of field `shards`.
struct Layout {
  int shards;
  int values;
};
constexpr Layout kPush = {v1::PushRequest::kShardsFieldNumber, v1::ShardPush::kValuesFieldNumber};
constexpr Layout kAnswer = {v1::PullResponse::kShardsFieldNumber,
                            v1::ShardValues::kValuesFieldNumber};

absl::Status Broken(const CodedInputStream& in, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the message is broken at byte ", in.CurrentPosition(), ": ", what));
}

void AppendTagAndLength(int field, size_t length, std::string* out) {
  StringOutputStream stream(out);
  CodedOutputStream coded(&stream);
  coded.WriteTag(LengthTag(field));
  coded.WriteVarint64(length);
}

// ---------------------------------------------------------------- parsing

// Reads messages of one Cord; offsets are those of the whole Cord, also in nested messages.
class Splitter {
 public:
  explicit Splitter(const absl::Cord& bytes) : bytes_(bytes), stream_(bytes), in_(&stream_) {}

  // Calls `on_length(field)` at the length of each field of its type that `wanted` accepts; appends
  // the bytes of the others to `rest`, unless it is null. Up to the end of the message.
  template <typename Wanted, typename OnLength>
  absl::Status Walk(std::string* rest, Wanted wanted, OnLength on_length) {
    for (;;) {
      const uint32_t tag = in_.ReadTag();
      if (tag == 0) break;
      const int field = WireFormatLite::GetTagFieldNumber(tag);
      if (tag == LengthTag(field) && wanted(field)) {
        CAPSTAN_RETURN_IF_ERROR(on_length(field));
        continue;
      }
      if (!Pass(tag, rest)) return Broken(in_, absl::StrCat("field ", field, " cannot be read"));
    }
    if (in_.ConsumedEntireMessage()) return absl::OkStatus();
    return Broken(in_, "expected a field");
  }

  // Runs `inside` within the message whose length comes next.
  template <typename Inside>
  absl::Status Nested(Inside inside) {
    uint32_t length = 0;
    CAPSTAN_RETURN_IF_ERROR(ReadLength(&length));
    const CodedInputStream::Limit limit = in_.PushLimit(static_cast<int>(length));
    CAPSTAN_RETURN_IF_ERROR(inside());
    in_.PopLimit(limit);
    return absl::OkStatus();
  }

  // Passes over the message. Errors: it has too many entries in field `shards`.
  absl::Status CountShards(int shards) {
    int count = 0;
    return Walk(
        /*rest=*/nullptr, [shards](int field) { return field == shards; },
        [&](int) {
          CAPSTAN_RETURN_IF_ERROR(CheckCount(++count));
          absl::Cord entry;
          return ReadBytes(&entry);
        });
  }

  // A message of this layout, without its values; they go to `values`, by shard.
  absl::Status Split(const Layout& layout, std::string* head, std::vector<absl::Cord>* values) {
    return Walk(
        head, [&](int field) { return field == layout.shards; },
        [&](int) {
          CAPSTAN_RETURN_IF_ERROR(CheckCount(std::ssize(*values) + 1));
          std::string shard;
          absl::Cord of_shard;
          CAPSTAN_RETURN_IF_ERROR(Nested([&] {
            return Walk(
                &shard, [&](int field) { return field == layout.values; },
                [&](int) { return ReadBytes(&of_shard); });
          }));
          AppendTagAndLength(layout.shards, shard.size(), head);
          head->append(shard);
          values->push_back(std::move(of_shard));
          return absl::OkStatus();
        });
  }

  absl::Status ReadBytes(absl::Cord* out) {
    uint32_t length = 0;
    CAPSTAN_RETURN_IF_ERROR(ReadLength(&length));
    *out = bytes_.Subcord(static_cast<size_t>(in_.CurrentPosition()), length);
    if (!in_.Skip(static_cast<int>(length))) return Broken(in_, "it ends");
    return absl::OkStatus();
  }

 private:
  bool Pass(uint32_t tag, std::string* copy_to) {
    if (copy_to == nullptr) return WireFormatLite::SkipField(&in_, tag);
    StringOutputStream stream(copy_to);
    CodedOutputStream copy(&stream);
    return WireFormatLite::SkipField(&in_, tag, &copy);
  }

  absl::Status CheckCount(int64_t entries) const {
    if (entries <= kShardsPerMessageMax) return absl::OkStatus();
    return Broken(in_, absl::StrCat("more than ", kShardsPerMessageMax, " shards in one message"));
  }

  // A length that fits what is left of the message around it.
  absl::Status ReadLength(uint32_t* length) {
    if (!in_.ReadVarint32(length)) return Broken(in_, "expected a length");
    const int limit = in_.BytesUntilLimit();  // -1: the whole Cord is the message.
    const auto position = static_cast<size_t>(in_.CurrentPosition());
    const size_t left = limit >= 0 ? static_cast<size_t>(limit) : bytes_.size() - position;
    if (*length <= left) return absl::OkStatus();
    return Broken(in_, absl::StrCat("a field of ", *length, " bytes where ", left, " are left"));
  }

  const absl::Cord& bytes_;
  CordInputStream stream_;
  CodedInputStream in_;
};

template <typename Message>
absl::Status ParseHead(const std::string& head, Message* message) {
  if (message->ParseFromString(head)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the message is not a valid ", message->GetTypeName()));
}

uint32_t Crc32cOf(const absl::Cord& bytes) {
  Crc32c crc;
  for (const absl::string_view chunk : bytes.Chunks()) crc.Add(chunk);
  return crc.value();
}

template <typename Head>
absl::Status CheckIfSealed(const absl::Cord& bytes, const Head& head) {
  return head.has_checksum() ? CheckSealed(bytes, head.checksum()) : absl::OkStatus();
}

template <typename Message>
absl::StatusOr<Message> DecodeOne(const absl::Cord& bytes, const Layout& layout) {
  Message message;
  std::string head;
  CAPSTAN_RETURN_IF_ERROR(Splitter(bytes).Split(layout, &head, &message.values));
  CAPSTAN_RETURN_IF_ERROR(ParseHead(head, &message.head));
  CAPSTAN_RETURN_IF_ERROR(CheckIfSealed(bytes, message.head));
  return message;
}

template <typename Message>
absl::StatusOr<Message> ParseCounted(const absl::Cord& bytes, int shards_field) {
  CAPSTAN_RETURN_IF_ERROR(Splitter(bytes).CountShards(shards_field));
  Message message;
  CordInputStream stream(bytes);
  if (!message.ParseFromZeroCopyStream(&stream)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message is not a valid ", message.GetTypeName()));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckIfSealed(bytes, message));
  return message;
}

// A message with one of this layout in its field `field`; `whole` gets the other fields.
template <typename Head, typename Whole>
absl::Status DecodeNested(const absl::Cord& bytes, int field, const Layout& layout, Head* head,
                          std::vector<absl::Cord>* values, Whole* whole) {
  std::string nested;
  std::string rest;
  Splitter splitter(bytes);
  CAPSTAN_RETURN_IF_ERROR(splitter.Walk(
      &rest, [field](int each) { return each == field; },
      [&](int) {
        return splitter.Nested([&] { return splitter.Split(layout, &nested, values); });
      }));
  CAPSTAN_RETURN_IF_ERROR(ParseHead(rest, whole));
  CAPSTAN_RETURN_IF_ERROR(ParseHead(nested, head));
  return CheckIfSealed(bytes, *whole);
}

// The entries of the pull, if it is a push-pull.
absl::Status CountPulls(const absl::Cord& bytes) {
  Splitter splitter(bytes);
  return splitter.Walk(
      /*rest=*/nullptr, [](int field) { return field == v1::PushPullRequest::kPullFieldNumber; },
      [&](int) {
        return splitter.Nested(
            [&] { return splitter.CountShards(v1::PullRequest::kShardsFieldNumber); });
      });
}

// ---------------------------------------------------------------- encoding

// Adds pieces to a Cord, small ones together.
class Joiner {
 public:
  std::string* text() { return &text_; }
  void Append(const absl::Cord& values) {
    out_.Append(std::exchange(text_, {}));
    out_.Append(values);
  }
  absl::Cord Finish() && {
    out_.Append(std::move(text_));
    return std::move(out_);
  }

 private:
  std::string text_;
  absl::Cord out_;
};

size_t LengthOfValues(const Layout& layout, size_t values) {
  if (values == 0) return 0;
  return CodedOutputStream::VarintSize32(LengthTag(layout.values)) +
         CodedOutputStream::VarintSize64(values) + values;
}

// `head` is the serialized message without values.
absl::Cord Join(const Layout& layout, const std::string& head,
                const std::vector<absl::Cord>& values) {
  Joiner out;
  CodedInputStream in(reinterpret_cast<const uint8_t*>(head.data()), static_cast<int>(head.size()));
  size_t next = 0;
  for (uint32_t tag = in.ReadTag(); tag != 0; tag = in.ReadTag()) {
    if (tag != LengthTag(layout.shards)) {
      StringOutputStream stream(out.text());
      CodedOutputStream copy(&stream);
      WireFormatLite::SkipField(&in, tag, &copy);
      continue;
    }
    uint32_t length = 0;
    in.ReadVarint32(&length);
    const absl::Cord& of_shard = values[next++];
    AppendTagAndLength(layout.shards, length + LengthOfValues(layout, of_shard.size()), out.text());
    out.text()->append(head, static_cast<size_t>(in.CurrentPosition()), length);
    in.Skip(static_cast<int>(length));
    if (of_shard.empty()) continue;
    AppendTagAndLength(layout.values, of_shard.size(), out.text());
    out.Append(of_shard);
  }
  return std::move(out).Finish();
}

absl::Cord Nest(int field, const absl::Cord& message) {
  std::string start;
  AppendTagAndLength(field, message.size(), &start);
  absl::Cord out(std::move(start));
  out.Append(message);
  return out;
}

}  // namespace

absl::Cord Encode(const PushMessage& message) {
  return Join(kPush, message.head.SerializeAsString(), message.values);
}

absl::Cord Encode(const PullAnswer& answer) {
  return Join(kAnswer, answer.head.SerializeAsString(), answer.values);
}

absl::Cord Encode(const PushPullMessage& message) {
  absl::Cord out = Nest(v1::PushPullRequest::kPushFieldNumber, Encode(message.push));
  out.Append(
      Nest(v1::PushPullRequest::kPullFieldNumber, absl::Cord(message.pull.SerializeAsString())));
  return out;
}

absl::Cord Encode(const PushPullAnswer& answer) {
  absl::Cord out =
      Nest(v1::PushPullResponse::kPushFieldNumber, absl::Cord(answer.push.SerializeAsString()));
  out.Append(Nest(v1::PushPullResponse::kPullFieldNumber, Encode(answer.pull)));
  return out;
}

absl::Cord Sealed(absl::Cord message) {
  const uint32_t checksum = Crc32cOf(message);
  std::string field;
  {
    StringOutputStream stream(&field);
    CodedOutputStream coded(&stream);
    WireFormatLite::WriteFixed32(v1::PushRequest::kChecksumFieldNumber, checksum, &coded);
  }
  message.Append(std::move(field));
  return message;
}

absl::Status CheckSealed(const absl::Cord& bytes, uint32_t checksum) {
  constexpr size_t kFieldBytes = 5;
  const size_t size = bytes.size() < kFieldBytes ? 0 : bytes.size() - kFieldBytes;
  const uint32_t computed = Crc32cOf(bytes.Subcord(0, size));
  if (computed == checksum) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat(
      "a message of %d bytes with the checksum %08x, expected %08x: it was damaged on its way",
      bytes.size(), computed, checksum));
}

absl::StatusOr<PushMessage> DecodePush(const absl::Cord& bytes) {
  return DecodeOne<PushMessage>(bytes, kPush);
}

absl::StatusOr<v1::PullRequest> DecodePullRequest(const absl::Cord& bytes) {
  return ParseCounted<v1::PullRequest>(bytes, v1::PullRequest::kShardsFieldNumber);
}

absl::StatusOr<PullAnswer> DecodePullAnswer(const absl::Cord& bytes) {
  return DecodeOne<PullAnswer>(bytes, kAnswer);
}

absl::StatusOr<PushPullMessage> DecodePushPull(const absl::Cord& bytes) {
  PushPullMessage message;
  v1::PushPullRequest rest;
  CAPSTAN_RETURN_IF_ERROR(CountPulls(bytes));
  CAPSTAN_RETURN_IF_ERROR(DecodeNested(bytes, v1::PushPullRequest::kPushFieldNumber, kPush,
                                       &message.push.head, &message.push.values, &rest));
  message.pull = std::move(*rest.mutable_pull());
  return message;
}

absl::StatusOr<PushPullAnswer> DecodePushPullAnswer(const absl::Cord& bytes) {
  PushPullAnswer answer;
  v1::PushPullResponse rest;
  CAPSTAN_RETURN_IF_ERROR(DecodeNested(bytes, v1::PushPullResponse::kPullFieldNumber, kAnswer,
                                       &answer.pull.head, &answer.pull.values, &rest));
  answer.push = std::move(*rest.mutable_push());
  return answer;
}

PushMessage Detach(const v1::PushRequest& request) {
  PushMessage message;
  message.head = request;
  for (v1::ShardPush& shard : *message.head.mutable_shards()) shard.clear_values();
  for (const v1::ShardPush& shard : request.shards()) {
    message.values.push_back(absl::MakeCordFromExternal(shard.values(), [] {}));
  }
  return message;
}

v1::PullResponse Attach(PullAnswer answer) {
  for (size_t i = 0; i < answer.values.size(); ++i) {
    if (answer.values[i].empty()) continue;
    answer.head.mutable_shards(static_cast<int>(i))->set_values(std::string(answer.values[i]));
  }
  return std::move(answer.head);
}

}  // namespace capstan
