#include "scheduler/store/archive.h"

#include <bit>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace capstan {
namespace {

constexpr uint32_t kStateNumber = 1;  // The field of the outermost message that has the state.
constexpr char kStateTag = kStateNumber << 3 | static_cast<char>(WireType::kLength);
constexpr uint64_t kFieldNumberMax = (uint64_t{1} << 29) - 1;
constexpr int kVarintBytesMax = 10;

}  // namespace

// ---------------------------------------------------------------- OutputArchive

OutputArchive::OutputArchive(const Moment& at) : moment(at) {
  number_ = kStateNumber;
  BeginMessage();
}

std::string OutputArchive::Finish() && {
  EndMessage(2);  // Behind its tag and length.
  return std::move(bytes_);
}

size_t OutputArchive::BeginMessage() {
  PutTag(WireType::kLength);
  bytes_.push_back(0);  // Room for the length: in most messages one byte.
  number_ = 0;
  return bytes_.size();
}

void OutputArchive::EndMessage(size_t begin) {
  size_t length = bytes_.size() - begin;
  char digits[kVarintBytesMax];
  size_t count = 0;
  for (; length >= 0x80; length >>= 7) digits[count++] = static_cast<char>(length | 0x80);
  bytes_[begin - 1] = count == 0 ? static_cast<char>(length) : digits[0];
  if (count == 0) return;
  digits[count++] = static_cast<char>(length);
  bytes_.insert(begin, digits + 1, count - 1);
}

void OutputArchive::PutTag(WireType type) {
  AppendVarint(uint64_t{number_} << 3 | static_cast<uint64_t>(type));
}

void OutputArchive::PutVarint(uint64_t value) {
  PutTag(WireType::kVarint);
  AppendVarint(value);
}

void OutputArchive::AppendVarint(uint64_t value) {
  char digits[kVarintBytesMax];
  size_t count = 0;
  for (; value >= 0x80; value >>= 7) digits[count++] = static_cast<char>(value | 0x80);
  digits[count++] = static_cast<char>(value);
  bytes_.append(digits, count);
}

void OutputArchive::AppendFixed(uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
}

void OutputArchive::Save(double value) {
  PutTag(WireType::kFixed64);
  AppendFixed(std::bit_cast<uint64_t>(value), 8);
}

void OutputArchive::Save(float value) {
  PutTag(WireType::kFixed32);
  AppendFixed(std::bit_cast<uint32_t>(value), 4);
}

void OutputArchive::Save(const std::string& value) {
  PutTag(WireType::kLength);
  AppendVarint(value.size());
  bytes_.append(value);
}

void OutputArchive::Save(const absl::Duration& value) {
  const bool infinite = value == absl::InfiniteDuration();
  Save(infinite ? kInfiniteNanoseconds : absl::ToInt64Nanoseconds(value));
}

// ---------------------------------------------------------------- InputArchive

InputArchive::InputArchive(const Moment& at, absl::string_view bytes)
    : moment(at), position_(bytes.data()) {
  outermost_.end = bytes.data() + bytes.size();
  if (bytes.empty()) {
    Fail("there is nothing");
  } else if (bytes[0] != kStateTag) {
    Fail("it does not begin as a state; perhaps an earlier release of Capstan wrote it");
  } else if (Find(kStateNumber)) {
    Enter(state_);
  }
}

absl::Status InputArchive::Finish() {
  if (!ok()) return status_;
  Leave();
  if (ok() && left() > 0) status_ = absl::DataLossError("something follows its end");
  return status_;
}

void InputArchive::Fail(const std::string& why) {
  if (!ok()) return;
  std::vector<uint32_t> path;
  // The path leaves out the outermost message, whose only field is the state.
  for (const Level* level = level_; level->around != nullptr; level = level->around) {
    path.insert(path.begin(), level->number != 0 ? level->number : level->asked);
  }
  const std::string where = absl::StrCat(path.empty() ? "" : "field ", absl::StrJoin(path, "."),
                                         path.empty() ? "" : ": ");
  status_ = absl::DataLossError(absl::StrCat("cannot be read: ", where, why));
}

bool InputArchive::Enter(Level& level) {
  size_t size = 0;
  if (!Take(WireType::kLength) || !ReadSize(size)) return false;
  level.around = level_;
  level.end = position_ + size;
  level_ = &level;
  return true;
}

void InputArchive::Leave() {
  while (ok() && (level_->number != 0 || ReadTag())) {
    if (level_->number > level_->asked) {
      Pass();
    } else {
      Fail("it comes twice or too late");
    }
  }
  level_ = level_->around;
}

bool InputArchive::Find(uint32_t number) {
  level_->asked = number;
  if (!ok() || (level_->number == 0 && !ReadTag())) return false;
  if (level_->number < number) Fail("it comes twice or too late");
  return ok() && level_->number == number;
}

void InputArchive::FailMissing() {
  if (!ok()) return;
  level_->number = 0;  // The field that follows is not the one at fault.
  Fail("it is missing");
}

bool InputArchive::ReadTag() {
  if (left() == 0) return false;
  uint64_t tag = 0;
  if (!ReadVarint(tag)) return false;
  const uint64_t number = tag >> 3;
  if (number == 0 || number > kFieldNumberMax) {
    Fail(absl::StrCat("another field's number is ", number));
    return false;
  }
  level_->number = static_cast<uint32_t>(number);
  level_->type = static_cast<WireType>(tag & 7);
  return true;
}

bool InputArchive::ReadVarint(uint64_t& value) {
  value = 0;
  for (int i = 0; i < kVarintBytesMax && position_ < level_->end; ++i) {
    const uint64_t byte = static_cast<unsigned char>(*position_++);
    if (i == kVarintBytesMax - 1 && byte > 1) break;
    value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) return true;
  }
  Fail("a number that ends early or has more than 64 bits");
  return false;
}

bool InputArchive::ReadSize(size_t& size) {
  uint64_t value = 0;
  if (!ReadVarint(value)) return false;
  if (value > left()) {
    Fail(absl::StrCat("it has ", value, " bytes, but only ", left(), " are left"));
    return false;
  }
  size = static_cast<size_t>(value);
  return true;
}

uint64_t InputArchive::ReadFixed(WireType type, size_t bytes, uint64_t fallback) {
  if (!Take(type)) return fallback;
  if (left() < bytes) {
    Fail("a number that ends early");
    return fallback;
  }
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes; ++i) {
    bits |= uint64_t{static_cast<unsigned char>(*position_++)} << (8 * i);
  }
  return bits;
}

bool InputArchive::Take(WireType type) {
  if (level_->type != type) {
    Fail(absl::StrCat("wire type ", static_cast<uint32_t>(level_->type), ", expected ",
                      static_cast<uint32_t>(type)));
    return false;
  }
  level_->number = 0;
  return true;
}

void InputArchive::Pass() {
  uint64_t number = 0;
  size_t size = 0;
  switch (level_->type) {
    case WireType::kVarint:
      ReadVarint(number);
      break;
    case WireType::kFixed64:
      size = 8;
      break;
    case WireType::kFixed32:
      size = 4;
      break;
    case WireType::kLength:
      ReadSize(size);
      break;
    default:
      return Fail(absl::StrCat("wire type ", static_cast<uint32_t>(level_->type)));
  }
  if (size > left()) return Fail("it ends early");
  position_ += size;
  level_->number = 0;
}

int64_t InputArchive::Signed(int64_t fallback, int64_t min, int64_t max) {
  uint64_t bits = 0;
  if (!Take(WireType::kVarint) || !ReadVarint(bits)) return fallback;
  const auto value = static_cast<int64_t>(bits);
  if (value >= min && value <= max) return value;
  Fail(absl::StrCat(value, ", expected a number in [", min, ", ", max, "]"));
  return fallback;
}

uint64_t InputArchive::Unsigned(uint64_t fallback, uint64_t max) {
  uint64_t value = 0;
  if (!Take(WireType::kVarint) || !ReadVarint(value)) return fallback;
  if (value <= max) return value;
  Fail(absl::StrCat(value, ", expected a number in [0, ", max, "]"));
  return fallback;
}

void InputArchive::Load(double& value) {
  value = std::bit_cast<double>(ReadFixed(WireType::kFixed64, 8, std::bit_cast<uint64_t>(value)));
}

void InputArchive::Load(float& value) {
  value = std::bit_cast<float>(
      static_cast<uint32_t>(ReadFixed(WireType::kFixed32, 4, std::bit_cast<uint32_t>(value))));
}

void InputArchive::Load(std::string& value) {
  size_t size = 0;
  if (!Take(WireType::kLength) || !ReadSize(size)) return;
  value.assign(position_, size);
  position_ += size;
}

void InputArchive::Load(absl::Duration& value) {
  int64_t nanoseconds = absl::ToInt64Nanoseconds(value);
  Load(nanoseconds);
  const bool infinite = nanoseconds == kInfiniteNanoseconds;
  value = infinite ? absl::InfiniteDuration() : absl::Nanoseconds(nanoseconds);
}

}  // namespace capstan
