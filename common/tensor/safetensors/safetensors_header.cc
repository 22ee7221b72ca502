#include "common/tensor/safetensors/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/observability/json_quote.h"
#include "common/observability/utf8.h"
#include "common/status/status_macros.h"

namespace capstan {
namespace {

constexpr char kMetadataKey[] = "__metadata__";
constexpr int kDimensionsMax = 32;

const char* NameOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return "F32";
    case Dtype::kF16:
      return "F16";
    case Dtype::kBf16:
      return "BF16";
    case Dtype::kU64:
      return "U64";
  }
  return "";
}

std::optional<Dtype> DtypeOf(absl::string_view name) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16, Dtype::kU64}) {
    if (name == NameOf(dtype)) return dtype;
  }
  return std::nullopt;
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto add = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | (code >> 6));
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | (code >> 18));
    add(0x80 | ((code >> 12) & 0x3F));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

// Reads exactly the JSON that a header may hold: objects of strings, arrays of whole numbers.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  // Calls `member(key)` for each member, which must read the value.
  template <typename F>
  absl::Status Object(F member) {
    CAPSTAN_RETURN_IF_ERROR(Expect('{'));
    if (TryTake('}')) return absl::OkStatus();
    std::set<std::string> keys;
    do {
      CAPSTAN_ASSIGN_OR_RETURN(const std::string key, String());
      if (!keys.insert(key).second)
        return Error(absl::StrCat("key ", JsonQuote(key), " is repeated"));
      CAPSTAN_RETURN_IF_ERROR(Expect(':'));
      CAPSTAN_RETURN_IF_ERROR(member(key));
    } while (TryTake(','));
    return Expect('}');
  }

  absl::StatusOr<std::vector<int64_t>> Numbers() {
    std::vector<int64_t> numbers;
    CAPSTAN_RETURN_IF_ERROR(Expect('['));
    if (TryTake(']')) return numbers;
    do {
      if (numbers.size() == kDimensionsMax) {
        return Error(absl::StrCat("more than ", kDimensionsMax, " numbers in an array"));
      }
      CAPSTAN_ASSIGN_OR_RETURN(const int64_t number, Number());
      numbers.push_back(number);
    } while (TryTake(','));
    CAPSTAN_RETURN_IF_ERROR(Expect(']'));
    return numbers;
  }

  absl::StatusOr<std::string> String() {
    CAPSTAN_RETURN_IF_ERROR(Expect('"'));
    std::string value;
    while (position_ < text_.size()) {
      const char c = text_[position_++];
      if (c == '"') {
        if (ToValidUtf8(value) == value) return value;
        return Error("a string that is not UTF-8");
      }
      if (static_cast<unsigned char>(c) < 0x20) return Error("control character in a string");
      if (c != '\\') {
        value += c;
        continue;
      }
      CAPSTAN_RETURN_IF_ERROR(Escape(&value));
    }
    return Error("string without end");
  }

  absl::Status End() {
    SkipSpace();
    return position_ == text_.size() ? absl::OkStatus() : Error("text after the header's object");
  }

  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("header, byte ", position_, ": ", what));
  }

 private:
  void SkipSpace() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t' ||
                                        text_[position_] == '\n' || text_[position_] == '\r')) {
      ++position_;
    }
  }
  bool TryTake(char c) {
    SkipSpace();
    if (position_ == text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  absl::Status Expect(char c) {
    if (TryTake(c)) return absl::OkStatus();
    return Error(absl::StrCat("expected '", std::string(1, c), "'"));
  }

  absl::StatusOr<int64_t> Number() {
    SkipSpace();
    const size_t begin = position_;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9')
      ++position_;
    const absl::string_view digits = text_.substr(begin, position_ - begin);
    int64_t number = 0;
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0') ||
        !absl::SimpleAtoi(digits, &number)) {
      return Error("expected a whole number from 0 to 2^63 - 1");
    }
    return number;
  }

  absl::Status Escape(std::string* value) {
    if (position_ == text_.size()) return Error("string without end");
    const char c = text_[position_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        value->push_back(c);
        return absl::OkStatus();
      case 'b':
        value->push_back('\b');
        return absl::OkStatus();
      case 'f':
        value->push_back('\f');
        return absl::OkStatus();
      case 'n':
        value->push_back('\n');
        return absl::OkStatus();
      case 'r':
        value->push_back('\r');
        return absl::OkStatus();
      case 't':
        value->push_back('\t');
        return absl::OkStatus();
      case 'u':
        break;
      default:
        return Error("unknown escape in a string");
    }
    CAPSTAN_ASSIGN_OR_RETURN(uint32_t code, HexUnit());
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(position_, 2) == "\\u") {
      position_ += 2;
      CAPSTAN_ASSIGN_OR_RETURN(const uint32_t low, HexUnit());
      if (low < 0xDC00 || low > 0xDFFF) return Error("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xD800 && code <= 0xDFFF) {
      return Error("half of a surrogate pair");
    }
    AppendUtf8(code, value);
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> HexUnit() {
    uint32_t unit = 0;
    const absl::string_view digits = text_.substr(position_, 4);
    if (digits.size() != 4 ||
        !std::all_of(digits.begin(), digits.end(),
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); }) ||
        !absl::SimpleHexAtoi(digits, &unit)) {
      return Error("expected four hexadecimal digits");
    }
    position_ += 4;
    return unit;
  }

  absl::string_view text_;
  size_t position_ = 0;
};

// Reads one tensor's object.
absl::StatusOr<TensorEntry> ParseTensor(Parser& parser, const std::string& name) {
  TensorEntry entry;
  entry.name = name;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  CAPSTAN_RETURN_IF_ERROR(parser.Object([&](const std::string& key) -> absl::Status {
    if (key == "dtype") {
      CAPSTAN_ASSIGN_OR_RETURN(const std::string text, parser.String());
      const std::optional<Dtype> dtype = DtypeOf(text);
      if (!dtype) {
        return absl::UnimplementedError(
            absl::StrCat("tensor ", JsonQuote(name),
                         ": unknown dtype, expected \"F32\", \"F16\", \"BF16\" or \"U64\""));
      }
      entry.dtype = *dtype;
      has_dtype = true;
      return absl::OkStatus();
    }
    if (key == "shape") {
      CAPSTAN_ASSIGN_OR_RETURN(entry.shape, parser.Numbers());
      has_shape = true;
      return absl::OkStatus();
    }
    if (key != "data_offsets") return parser.Error(absl::StrCat("unknown key ", JsonQuote(key)));
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, parser.Numbers());
    if (offsets.size() != 2) return parser.Error("data_offsets without two numbers");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    has_offsets = true;
    return absl::OkStatus();
  }));
  if (!has_dtype || !has_shape || !has_offsets) {
    return parser.Error(
        absl::StrCat("tensor ", JsonQuote(name), " lacks one of dtype, shape and data_offsets"));
  }
  return entry;
}

// Checks that the entries, ordered by place, cover the data and agree with their shapes.
absl::Status CheckPlaces(const std::vector<TensorEntry>& entries, int64_t data_bytes) {
  int64_t end = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != end || entry.end < entry.begin || entry.end > data_bytes) {
      return absl::DataLossError(
          absl::StrCat("tensor ", JsonQuote(entry.name), ": data_offsets are [", entry.begin, ",",
                       entry.end, "], expected to begin at ", end, " and to end by ", data_bytes));
    }
    end = entry.end;
    int64_t bytes = BytesOf(entry.dtype);
    const bool empty = std::count(entry.shape.begin(), entry.shape.end(), 0) > 0;
    for (const int64_t d : entry.shape) {
      if (empty) break;
      bytes = d > data_bytes / bytes ? data_bytes + 1 : bytes * d;
      if (bytes > data_bytes) break;
    }
    if (empty) bytes = 0;
    if (bytes != entry.end - entry.begin) {
      return absl::DataLossError(absl::StrCat("tensor ", JsonQuote(entry.name), ": shape [",
                                              absl::StrJoin(entry.shape, ","),
                                              "] does not agree with its ", entry.end - entry.begin,
                                              " bytes of ", NameOf(entry.dtype)));
    }
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the tensors end at byte ", end, ", the data at byte ",
                                          data_bytes, ", expected to end together"));
}

}  // namespace

std::string EncodeSafetensorsHeader(absl::Span<const TensorEntry> entries) {
  std::string header = "{";
  for (const TensorEntry& entry : entries) {
    absl::StrAppend(&header, header.size() > 1 ? "," : "", JsonQuote(entry.name), ":{\"dtype\":\"",
                    NameOf(entry.dtype), "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                    "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

absl::StatusOr<std::vector<TensorEntry>> DecodeSafetensorsHeader(absl::string_view header,
                                                                 int64_t data_bytes) {
  Parser parser(header);
  std::vector<TensorEntry> entries;
  CAPSTAN_RETURN_IF_ERROR(parser.Object([&](const std::string& key) -> absl::Status {
    if (key == kMetadataKey) {
      return parser.Object([&parser](const std::string&) { return parser.String().status(); });
    }
    CAPSTAN_ASSIGN_OR_RETURN(TensorEntry entry, ParseTensor(parser, key));
    entries.push_back(std::move(entry));
    return absl::OkStatus();
  }));
  CAPSTAN_RETURN_IF_ERROR(parser.End());
  // The end decides between equal beginnings, so that empty tensors stand before the one that
  // begins where they do.
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  CAPSTAN_RETURN_IF_ERROR(CheckPlaces(entries, data_bytes));
  return entries;
}

}  // namespace capstan
