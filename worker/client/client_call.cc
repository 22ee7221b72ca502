#include "worker/client/client_call.h"

#include <variant>

namespace capstan::worker {

Transfer::Message ClientCall::Encode(const CallerId& caller, const Formats& formats,
                                     absl::Duration pull_wait_limit) {
  if (is_push()) {
    PushMessage push = EncodePush(caller, message, payload.gradient, formats, *payload.keys, forms,
                                  payload.gradient_halves);
    payload.gradient = {};
    payload.gradient_halves.reset();
    return push;
  }
  v1::PullRequest pull;
  EncodePull(caller, message, pull_wait_limit, &pull, formats, *payload.keys, forms);
  return pull;
}

absl::StatusOr<DecodedReply> ClientCall::Decode(const Transfer::Answer& answer,
                                                const Formats& formats) const {
  if (is_push()) return DecodePush(message, std::get<v1::PushResponse>(answer));
  return DecodePull(message, std::get<PullAnswer>(answer), payload.destination, *payload.keys,
                    formats);
}

}  // namespace capstan::worker
