#include "kernels/cpu/onednn_convolution.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/host_memory.h"

namespace capstan::kernels {
namespace {

using Memory = dnnl::memory;
using Tag = Memory::format_tag;

constexpr int64_t kChannelBlock = 16;  // Floats in oneDNN's widest vector.

absl::Status ToStatus(dnnl_status_t status, const OpDesc& desc, const char* doing) {
  if (status == dnnl_success) return absl::OkStatus();
  const std::string message =
      absl::StrCat(ToString(desc), ": oneDNN ", doing, " failed with status ", status);
  if (status == dnnl_out_of_memory) return absl::ResourceExhaustedError(message);
  if (status == dnnl_unimplemented) return absl::UnimplementedError(message);
  return absl::InternalError(message);
}

// One convolution primitive, its weights in oneDNN's layout, and the reorder between that layout
// and OHWI.
class OnednnConvolutionPlan : public CpuPlan {
 public:
  OnednnConvolutionPlan(const OpSignature& signature, const CpuContext& context)
      : CpuPlan(signature, context), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  // Makes the primitive. oneDNN's C++ interface throws; here its errors become statuses.
  absl::Status Init() {
    omp_set_num_threads(threads());
    try {
      switch (desc().kind) {
        case OpKind::kConvolutionForward:
          return InitForward();
        case OpKind::kConvolutionBackwardData:
          return InitBackwardData();
        default:
          return InitBackwardWeights();
      }
    } catch (const dnnl::error& error) {
      return ToStatus(error.status, desc(), error.what());
    }
  }

  absl::Status Execute(Views in, Views out, const RunOptions&) override {
    omp_set_num_threads(threads());
    switch (desc().kind) {
      case OpKind::kConvolutionForward:
        return RunForward(in, out);
      case OpKind::kConvolutionBackwardData:
        return RunBackwardData(in, out);
      default:
        return RunBackwardWeights(in, out);
    }
  }

 private:
  Memory::desc Describe(const Memory::dims& dims, Tag tag) const {
    return Memory::desc(dims, Memory::data_type::f32, tag);
  }
  Memory::desc X() const { return Describe({desc().n, desc().c, desc().h, desc().w}, Tag::nhwc); }
  Memory::desc Y() const {
    return Describe({desc().n, desc().out_c, desc().out_h, desc().out_w}, Tag::nhwc);
  }
  Memory::desc Weight(Tag tag) const {
    return Describe({desc().out_c, desc().c, desc().kernel, desc().kernel}, tag);
  }
  Memory::desc Bias() const {
    return desc().has_bias ? Describe({desc().out_c}, Tag::x) : Memory::desc();
  }
  Memory::dims Strides() const { return {desc().stride, desc().stride}; }
  Memory::dims Padding() const { return {desc().padding, desc().padding}; }

  dnnl::convolution_forward::primitive_desc ForwardDesc(const dnnl::primitive_attr& attributes) {
    const auto kind = dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    return {{kind, direct, X(), Weight(Tag::any), Bias(), Y(), Strides(), Padding(), Padding()},
            attributes,
            engine_};
  }

  static dnnl::primitive_attr OwnScratchpad() {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  absl::Status InitForward() {
    const auto forward = ForwardDesc(OwnScratchpad());
    primitive_ = dnnl::convolution_forward(forward);
    return InitMemory(forward.weights_desc(), forward.scratchpad_desc());
  }

  absl::Status InitBackwardData() {
    const dnnl::convolution_backward_data::primitive_desc backward(
        {dnnl::algorithm::convolution_direct, X(), Weight(Tag::any), Y(), Strides(), Padding(),
         Padding()},
        OwnScratchpad(), engine_, ForwardDesc({}));
    primitive_ = dnnl::convolution_backward_data(backward);
    return InitMemory(backward.weights_desc(), backward.scratchpad_desc());
  }

  absl::Status InitBackwardWeights() {
    const dnnl::convolution_backward_weights::primitive_desc backward(
        {dnnl::algorithm::convolution_direct, X(), Weight(Tag::any), Bias(), Y(), Strides(),
         Padding(), Padding()},
        OwnScratchpad(), engine_, ForwardDesc({}));
    primitive_ = dnnl::convolution_backward_weights(backward);
    return InitMemory(backward.diff_weights_desc(), backward.scratchpad_desc());
  }

  // Makes memory objects. Those of the caller's operands get their data at each run; the others get
  // data of this plan.
  absl::Status InitMemory(const Memory::desc& weight, const Memory::desc& scratchpad) {
    x_ = Memory(X(), engine_, nullptr);
    y_ = Memory(Y(), engine_, nullptr);
    user_weight_ = Memory(Weight(Tag::ohwi), engine_, nullptr);
    if (desc().has_bias) bias_ = Memory(Bias(), engine_, nullptr);
    CAPSTAN_RETURN_IF_ERROR(Own(scratchpad, &scratchpad_data_, &scratchpad_));
    same_layout_ = weight == user_weight_.get_desc();
    if (same_layout_) {
      weight_ = user_weight_;
      return absl::OkStatus();
    }
    CAPSTAN_RETURN_IF_ERROR(Own(weight, &weight_data_, &weight_));
    const bool gradient = desc().kind == OpKind::kConvolutionBackwardWeights;
    reorder_ =
        gradient ? dnnl::reorder(weight_, user_weight_) : dnnl::reorder(user_weight_, weight_);
    return absl::OkStatus();
  }

  absl::Status Own(const Memory::desc& layout, HostFloats* data, Memory* memory) {
    const auto floats = static_cast<int64_t>(layout.get_size() / 4 + 1);
    *data = AllocateFloats(floats);
    if (*data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ToString(desc()), ": no memory for ", floats, " floats of scratch"));
    }
    std::fill_n(data->get(), floats, 0.0f);
    *memory = Memory(layout, engine_, data->get());
    return absl::OkStatus();
  }

  absl::Status SetData(const Memory& memory, void* data) const {
    return ToStatus(dnnl_memory_set_data_handle(memory.get(), data), desc(), "set_data_handle");
  }

  absl::Status Execute(const dnnl::primitive& primitive,
                       absl::Span<const dnnl_exec_arg_t> arguments) {
    return ToStatus(dnnl_primitive_execute(primitive.get(), stream_.get(),
                                           static_cast<int>(arguments.size()), arguments.data()),
                    desc(), "execute");
  }

  // Drops the last argument, the bias, if the op has none.
  absl::Span<const dnnl_exec_arg_t> DropUnusedBias(
      absl::Span<const dnnl_exec_arg_t> arguments) const {
    return arguments.first(arguments.size() - (desc().has_bias ? 0 : 1));
  }

  absl::Status Reorder(const Memory& from, const Memory& to) {
    if (same_layout_) return absl::OkStatus();
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, from.get()}, {DNNL_ARG_TO, to.get()}};
    return Execute(reorder_, arguments);
  }

  absl::Status RunForward(Views in, Views out) {
    CAPSTAN_RETURN_IF_ERROR(SetData(x_, in[0].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(user_weight_, in[1].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(y_, out[0].data));
    CAPSTAN_RETURN_IF_ERROR(Reorder(user_weight_, weight_));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, x_.get()},
                                         {DNNL_ARG_WEIGHTS, weight_.get()},
                                         {DNNL_ARG_DST, y_.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratchpad_.get()},
                                         {DNNL_ARG_BIAS, bias_.get(true)}};
    if (desc().has_bias) CAPSTAN_RETURN_IF_ERROR(SetData(bias_, in[2].data));
    CAPSTAN_RETURN_IF_ERROR(Execute(primitive_, DropUnusedBias(arguments)));
    // oneDNN's own ReLU turns NaN into 0, which would hide divergence.
    if (desc().fuse_relu) simd().relu(out[0].count, out[0].f32(), out[0].f32());
    return absl::OkStatus();
  }

  absl::Status RunBackwardData(Views in, Views out) {
    CAPSTAN_RETURN_IF_ERROR(SetData(y_, in[0].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(user_weight_, in[1].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(x_, out[0].data));
    CAPSTAN_RETURN_IF_ERROR(Reorder(user_weight_, weight_));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_DIFF_DST, y_.get()},
                                         {DNNL_ARG_WEIGHTS, weight_.get()},
                                         {DNNL_ARG_DIFF_SRC, x_.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratchpad_.get()}};
    return Execute(primitive_, arguments);
  }

  absl::Status RunBackwardWeights(Views in, Views out) {
    CAPSTAN_RETURN_IF_ERROR(SetData(x_, in[0].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(y_, in[1].data));
    CAPSTAN_RETURN_IF_ERROR(SetData(user_weight_, out[0].data));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, x_.get()},
                                         {DNNL_ARG_DIFF_DST, y_.get()},
                                         {DNNL_ARG_DIFF_WEIGHTS, weight_.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratchpad_.get()},
                                         {DNNL_ARG_DIFF_BIAS, bias_.get(true)}};
    if (desc().has_bias) CAPSTAN_RETURN_IF_ERROR(SetData(bias_, out[1].data));
    CAPSTAN_RETURN_IF_ERROR(Execute(primitive_, DropUnusedBias(arguments)));
    return Reorder(weight_, user_weight_);
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  dnnl::primitive reorder_;   // Set only if !same_layout_.
  bool same_layout_ = false;  // True if oneDNN's layout is OHWI: then weight_ is user_weight_.
  Memory x_, y_, bias_, user_weight_, weight_, scratchpad_;
  HostFloats weight_data_, scratchpad_data_;
};

}  // namespace

bool PrefersOnednn(const OpDesc& desc) {
  return desc.n > 0 && desc.c % kChannelBlock == 0 && desc.out_c % kChannelBlock == 0;
}

absl::StatusOr<std::unique_ptr<CpuPlan>> MakeOnednnConvolutionPlan(const OpSignature& signature,
                                                                   const CpuContext& context) {
  auto plan = std::make_unique<OnednnConvolutionPlan>(signature, context);
  CAPSTAN_RETURN_IF_ERROR(plan->Init());
  return std::unique_ptr<CpuPlan>(std::move(plan));
}

}  // namespace capstan::kernels
