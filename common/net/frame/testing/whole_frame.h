// EncodeFrame and DecodeFrame: whole frames in memory. Connections write and read them in parts.
//
// Thread safety: pure functions.
#ifndef CAPSTAN_COMMON_NET_FRAME_TESTING_WHOLE_FRAME_H_
#define CAPSTAN_COMMON_NET_FRAME_TESTING_WHOLE_FRAME_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/frame/frame.h"

namespace capstan {

// Returns a whole frame; `length` of the head is the payload's.
std::string EncodeFrame(FrameHead head, absl::string_view payload);

// Returns the payload of a whole frame.
// Errors: as DecodeFrameHead and FrameSum::Check; kInvalidArgument  more or fewer bytes than its
//         head says.
absl::StatusOr<std::string> DecodeFrame(absl::string_view bytes);

}  // namespace capstan

#endif  // CAPSTAN_COMMON_NET_FRAME_TESTING_WHOLE_FRAME_H_
