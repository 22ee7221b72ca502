// Tests of what every backend promises besides its arithmetic: memory, copies and errors.
#include "kernels/backend.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/testing/status_matchers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace capstan::kernels::backend_test {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::unique_ptr<Backend>> AllBackends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(MakeReferenceBackend());
  backends.push_back(MakeCpuBackend());
  backends.push_back(MakeCpuBackend({.threads = 0}));  // Counts as 1.
  return backends;
}

OpDesc Matrix(OpKind kind, int64_t n, int64_t c, int64_t out_c) {
  OpDesc d;
  d.kind = kind;
  d.n = n;
  d.c = c;
  d.out_c = out_c;
  return d;
}

TEST_CASE("Backend: names", "[kernels]") {
  CHECK(MakeReferenceBackend()->Name() == "reference");
  CHECK(MakeCpuBackend()->Name() == "cpu");
}

TEST_CASE("Backend: memory is aligned, impossible sizes give null", "[kernels]") {
  for (const auto& backend : AllBackends()) {
    for (const int64_t bytes : {0, 1, 63, 65, 1 << 20}) {
      const BackendMemory memory(backend->Allocate(bytes), BackendDeleter{backend.get()});
      REQUIRE(memory != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(memory.get()) % 64 == 0);
    }
    CHECK(backend->Allocate(-1) == nullptr);
    CHECK(backend->Allocate(INT64_MAX) == nullptr);
    CHECK(backend->Allocate(int64_t{1} << 60) == nullptr);
  }
}

TEST_CASE("Backend: copies bytes and refuses negative counts", "[kernels]") {
  for (const auto& backend : AllBackends()) {
    const std::vector<float> from = {1.0f, 2.0f, 3.0f};
    std::vector<float> to(3);
    REQUIRE_OK(backend->Copy(to.data(), from.data(), 12));
    REQUIRE_OK(backend->Synchronize());
    CHECK(to == from);
    REQUIRE_OK(backend->Copy(nullptr, nullptr, 0));
    CHECK_STATUS(backend->Copy(to.data(), from.data(), -4), kInvalid, "copy of -4 bytes");
  }
}

TEST_CASE("Backend: a bad descriptor is neither supported nor prepared", "[kernels]") {
  for (const auto& backend : AllBackends()) {
    OpDesc d = Matrix(OpKind::kFullyConnectedForward, 1, 0, 3);
    CHECK_FALSE(backend->Supports(d));
    CHECK_STATUS(backend->Prepare(d), kInvalid, "c is 0, expected >= 1");
    d.c = 2;
    CHECK(backend->Supports(d));
    REQUIRE_OK(backend->Prepare(d));
  }
}

TEST_CASE("Backend: views that do not fit the descriptor are refused", "[kernels]") {
  for (const auto& backend : AllBackends()) {
    REQUIRE_OK_AND_ASSIGN(const auto plan,
                          backend->Prepare(Matrix(OpKind::kFullyConnectedForward, 1, 2, 3)));
    std::vector<float> values(6);
    const TensorView x = ViewOf(values.data(), 2);
    const TensorView weight = ViewOf(values.data(), 6);
    const TensorView y = ViewOf(values.data(), 3);
    CHECK_STATUS(backend->Run(*plan, {x, weight, y}, {y}), kInvalid, "expected 2");
    CHECK_STATUS(backend->Run(*plan, {x, x}, {y}), kInvalid, "weight has 2 elements, expected 6");
    CHECK_STATUS(backend->Run(*plan, {x, weight}, {}), kInvalid, "0 outputs");
  }
}

TEST_CASE("Backend: a plan of another backend is refused", "[kernels]") {
  const auto reference = MakeReferenceBackend();
  const auto cpu = MakeCpuBackend();
  const OpDesc d = Matrix(OpKind::kReluForward, 1, 1, 1);
  REQUIRE_OK_AND_ASSIGN(const auto reference_plan, reference->Prepare(d));
  REQUIRE_OK_AND_ASSIGN(const auto cpu_plan, cpu->Prepare(d));
  float value = 0.0f;
  const TensorView view = ViewOf(&value, 1);
  CHECK_STATUS(cpu->Run(*reference_plan, {view}, {view}), kInvalid, "another backend");
  CHECK_STATUS(reference->Run(*cpu_plan, {view}, {view}), kInvalid, "another backend");
}

TEST_CASE("Backend: scratch that cannot be had is an error, not a crash", "[kernels]") {
  OpDesc d;  // Each of 1024 threads needs 25 GB for an image of one pixel and its padding.
  d.kind = OpKind::kConvolutionForward;
  d.n = 1;
  d.kernel = d.out_h = d.out_w = 40000;
  d.padding = 39999;
  CHECK_STATUS(MakeCpuBackend({.threads = 5000})->Prepare(d), absl::StatusCode::kResourceExhausted,
               "no memory for 65");
}

TEST_CASE("Backend: labels and row numbers out of range are refused at run time", "[kernels]") {
  for (const auto& backend : AllBackends()) {
    std::vector<float> values(16);
    std::vector<int32_t> labels = {0, 3};
    const auto softmax = Matrix(OpKind::kSoftmaxCrossEntropyForward, 2, 3, 1);
    REQUIRE_OK_AND_ASSIGN(const auto softmax_plan, backend->Prepare(softmax));
    const TensorView logits = ViewOf(values.data(), 6);
    const TensorView loss = ViewOf(values.data() + 6, 2);
    CHECK_STATUS(backend->Run(*softmax_plan, {logits, ViewOf(labels.data(), 2)}, {logits, loss}),
                 kInvalid, "softmax_cross_entropy_forward n=2 3 classes: label 1 is 3");

    OpDesc embedding = Matrix(OpKind::kEmbeddingForward, 1, 1, 2);
    embedding.rows = 4;
    REQUIRE_OK_AND_ASSIGN(const auto embedding_plan, backend->Prepare(embedding));
    float row = 4.0f;
    CHECK_STATUS(backend->Run(*embedding_plan, {ViewOf(&row, 1), ViewOf(values.data(), 8)},
                              {ViewOf(values.data() + 8, 2)}),
                 kInvalid, "row number 0 is 4");
  }
}

}  // namespace
}  // namespace capstan::kernels::backend_test
