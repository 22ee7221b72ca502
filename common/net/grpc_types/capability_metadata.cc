#include "common/net/grpc_types/capability_metadata.h"

#include <iterator>

namespace capstan {

void AddCapability(const std::string& capability, grpc::ClientContext* context) {
  if (!capability.empty()) context->AddMetadata(kCapabilityMetadata, capability);
}

std::string CapabilityOf(const grpc::ServerContextBase& context) {
  const auto [first, last] = context.client_metadata().equal_range(kCapabilityMetadata);
  if (first == last || std::next(first) != last) return "";
  return {first->second.data(), first->second.size()};
}

}  // namespace capstan
