// ParsedSize: how much a protobuf will take in memory once it is parsed, counted in its bytes
// before that.
//
// The parser makes an object of each embedded message, however short, so that two bytes of a forged
// message may take some hundred bytes of memory. Whoever parses a message of a peer counts first:
//
//   CordInputStream stream(bytes);
//   const std::optional<ParsedSize> size = CountParsed(*v1::PushRequest::descriptor(), &stream);
//   if (!size.has_value() || size->objects > kObjectsMax) ...  // Refuse it.
//
// Each object takes two bytes of the message or more, so that a short one need not be counted.
// Strings are skipped, not read. Thread safety: functions without state.
#ifndef CAPSTAN_COMMON_WIRE_PARSED_SIZE_H_
#define CAPSTAN_COMMON_WIRE_PARSED_SIZE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstdint>
#include <optional>

namespace capstan {

struct ParsedSize {
  // The message, the messages in it, elements of repeated strings, and fields that are unknown.
  int64_t objects = 0;
  int64_t numbers = 0;  // Upper bound of the elements of repeated numbers.
  // The field of the message itself that is repeated most often, and how often. Null: none is
  // repeated.
  const google::protobuf::FieldDescriptor* longest = nullptr;
  int64_t entries = 0;

  // Upper bound of the memory of one object: a message with its empty strings and lists, its place
  // in a list that has just doubled, and the allocator's share (parsed_size_test.cc looks at every
  // kind of message).
  static constexpr int64_t kObjectBytesMax = 512;
  // A number of 8 bytes, in a list that is copied to one of twice its size.
  static constexpr int64_t kNumberBytesMax = 24;
  // The message takes at most so many bytes, and those of its strings, which are no more than the
  // message has itself if it is parsed from one piece.
  int64_t BytesBesideStrings() const {
    return objects * kObjectBytesMax + numbers * kNumberBytesMax;
  }
};

// Reads a message of `type` to the end of `bytes`. None: it is not valid, has groups, or has
// messages in messages deeper than the parser accepts.
std::optional<ParsedSize> CountParsed(const google::protobuf::Descriptor& type,
                                      google::protobuf::io::ZeroCopyInputStream* bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_WIRE_PARSED_SIZE_H_
