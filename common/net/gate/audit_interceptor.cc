#include "common/net/gate/audit_interceptor.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/net/gate/call_gate.h"
#include "common/net/grpc_types/grpc_status.h"
#include "common/security/call_policy.h"
#include "common/security/certificates/identity.h"

namespace capstan {
namespace {

using google::protobuf::FieldDescriptor;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// The text of a field of that name. Empty: there is no such field.
std::string TextOf(const google::protobuf::Message& message, const std::string& name) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated() ||
      field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    return "";
  }
  return message.GetReflection()->GetString(message, field);
}

bool IsPerson(const Identity& caller) {
  return !kNodeRoles.Has(caller.role) && caller.role != PeerRole::kScheduler;
}

// One call. gRPC runs its hooks one after the other.
class AuditedGrpcCall final : public grpc::experimental::Interceptor {
 public:
  AuditedGrpcCall(AuditLog* audit, grpc::experimental::ServerRpcInfo* call)
      : audit_(audit), call_(call), policy_(FindMethodPolicy(call->method())) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      LookInto(methods->GetRecvMessage());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      LookInto(methods->GetSendMessage());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Record(FromGrpcStatus(methods->GetSendStatus()));
    }
    methods->Proceed();
  }

 private:
  void LookInto(const void* message) {
    const bool typed = policy_ != nullptr && policy_->audit != Audit::kRefusalsOfBytes;
    if (message == nullptr || !typed) return;
    // The handler's message, whose class has Message as its first and only base.
    const auto& fields = *static_cast<const google::protobuf::Message*>(message);
    if (job_.empty()) job_ = TextOf(fields, "job_id");
    if (node_.empty()) node_ = TextOf(fields, "node_id");
  }

  void Record(const absl::Status& answer) {
    const bool refused = absl::IsPermissionDenied(answer);
    const bool audited =
        policy_ != nullptr && (policy_->audit == Audit::kAll || policy_->audit == Audit::kReads);
    if (!refused && !audited) return audit_->CountAllowed(call_->method());
    const std::optional<Identity> caller = CallerOf(*call_->server_context());
    const bool by_node = caller.has_value() && !IsPerson(*caller);
    if (!refused && by_node && policy_->audit == Audit::kReads) {
      return audit_->CountAllowed(call_->method());
    }
    const AuditedCall call{.peer = HostPortOfPeer(call_->server_context()->peer()),
                           .caller = caller.has_value() ? FormatIdentity(*caller) : "",
                           .method = call_->method(),
                           .job = job_,
                           .node = node_};
    if (refused) return audit_->Refused(call, CallOutcome::kHandler, answer);
    audit_->Allowed(call, answer);
  }

  AuditLog* const audit_;
  grpc::experimental::ServerRpcInfo* const call_;
  const MethodPolicy* const policy_;  // Null: a method that the table lacks, in plain text.
  std::string job_;
  std::string node_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(AuditLog* audit) : audit_(audit) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    return new AuditedGrpcCall(audit_, call);  // gRPC deletes it.
  }

 private:
  AuditLog* const audit_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditCalls(AuditLog* audit) {
  return std::make_unique<Factory>(audit);
}

std::string HostPortOfPeer(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:")) absl::ConsumePrefix(&peer, "ipv6:");
  return absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
}

}  // namespace capstan
