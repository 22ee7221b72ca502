#include "common/net/frame/testing/whole_frame.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace capstan {

std::string EncodeFrame(FrameHead head, absl::string_view payload) {
  head.length = static_cast<uint32_t>(payload.size());
  const auto start = EncodeFrameHead(head);
  std::string bytes(start.begin(), start.end());
  if (payload.empty()) return bytes;
  FrameSum sum(bytes);
  sum.Add(payload);
  const auto end = sum.Encode();
  absl::StrAppend(&bytes, payload, absl::string_view(end.data(), end.size()));
  return bytes;
}

absl::StatusOr<std::string> DecodeFrame(absl::string_view bytes) {
  if (bytes.size() < kFrameHeadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of ", bytes.size(), " bytes, expected a head of ", kFrameHeadBytes));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const FrameHead head, DecodeFrameHead(bytes.substr(0, kFrameHeadBytes)));
  const absl::string_view rest = bytes.substr(kFrameHeadBytes);
  if (rest.size() != (head.length == 0 ? 0 : head.length + kFrameSumBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame with ", rest.size(), " bytes behind its head, which says ", head.length));
  }
  if (rest.empty()) return std::string();
  FrameSum sum(bytes.substr(0, kFrameHeadBytes));
  sum.Add(rest.substr(0, head.length));
  CAPSTAN_RETURN_IF_ERROR(sum.Check(head, rest.substr(head.length)));
  return std::string(rest.substr(0, head.length));
}

}  // namespace capstan
