#include "kernels/linear/onednn.h"

#if QKV_WITH_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/parallel.h"
#endif

namespace qkv {

#if QKV_WITH_ONEDNN
namespace {

using dnnl::memory;

memory::desc matrix(std::int64_t rows, std::int64_t columns, memory::format_tag tag) {
  return {{rows, columns}, memory::data_type::f32, tag};
}

bool dense_f32(const TensorView& view) {
  return view.dtype() == DType::f32 && view.is_dense() &&
         reinterpret_cast<std::uintptr_t>(view.data()) % alignof(float) == 0;
}

void append(dnnl::post_ops& ops, Activation activation) {
  switch (activation) {
    case Activation::relu: ops.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0); break;
    case Activation::silu: ops.append_eltwise(1, dnnl::algorithm::eltwise_swish, 1, 0); break;
    case Activation::quick_gelu:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_swish, 1.702f, 0);
      break;
    case Activation::gelu: ops.append_eltwise(1, dnnl::algorithm::eltwise_gelu_erf, 0, 0); break;
    case Activation::gelu_tanh:
      ops.append_eltwise(1, dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
      break;
    case Activation::none: break;
  }
}

// While one lives, OpenMP regions that this thread begins have so many threads: oneDNN's as ours.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) {
    omp_set_num_threads(threads);
  }
  ~OmpThreads() { omp_set_num_threads(before_); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
};

class Prepared final : public OneDnnLinear {
 public:
  Prepared(const TensorView& weight, const TensorView& bias)
      : engine_(dnnl::engine::kind::cpu, 0), in_(weight.dim(1)), out_(weight.dim(0)) {
    if (bias.has_value()) bias_ = Tensor::copy_of(bias, DType::f32);
    // The order of a middle number of rows; it serves for any.
    constexpr std::int64_t kRows = 256;
    const auto any = matrix(in_, out_, memory::format_tag::any);
    const auto wanted = describe(kRows, any, Activation::none, false).weights_desc();
    memory given(matrix(in_, out_, memory::format_tag::ba), engine_,
                 const_cast<void*>(weight.data()));
    weights_ = memory(wanted, engine_);
    dnnl::stream stream(engine_);
    dnnl::reorder(given, weights_).execute(stream, given, weights_);
    stream.wait();
  }

  bool run(const LinearProblem& p, int threads) const override {
    if (p.rows == 0 || !dense_f32(p.x) || !dense_f32(p.y)) return false;
    if (p.residual.has_value() && !dense_f32(p.residual)) return false;
    try {
      multiply(p, threads);
    } catch (const dnnl::error&) {
      return false;  // refused before anything was written: a combination that it lacks
    }
    return true;
  }

 private:
  void multiply(const LinearProblem& p, int threads) const {
    const int workers = worker_count(p.rows * p.out, threads);
    const OmpThreads as_many(workers);
    const auto description =
        describe(p.rows, weights_.get_desc(), p.activation, p.residual.has_value());
    const dnnl::matmul product(description);  // oneDNN keeps those that it made
    const auto at = [&](std::int64_t columns, const void* data) {
      return memory(matrix(p.rows, columns, memory::format_tag::ab), engine_,
                    const_cast<void*>(data));
    };
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, at(in_, p.x.data())},
                                                 {DNNL_ARG_WEIGHTS, weights_},
                                                 {DNNL_ARG_DST, at(out_, p.y.data())}};
    if (bias_.size() > 0) {
      arguments[DNNL_ARG_BIAS] = memory(matrix(1, out_, memory::format_tag::ab), engine_,
                                        const_cast<void*>(bias_.view().data()));
    }
    if (p.residual.has_value()) {
      const int position = p.activation == Activation::none ? 0 : 1;
      arguments[DNNL_ARG_ATTR_MULTIPLE_POST_OP(position) | DNNL_ARG_SRC_1] =
          at(out_, p.residual.data());
    }
    dnnl::stream stream(engine_);
    product.execute(stream, arguments);
    stream.wait();
  }

  dnnl::matmul::primitive_desc describe(std::int64_t rows, const memory::desc& weights,
                                        Activation activation, bool residual) const {
    const auto x = matrix(rows, in_, memory::format_tag::ab);
    const auto y = matrix(rows, out_, memory::format_tag::ab);
    dnnl::post_ops after;
    append(after, activation);
    if (residual) after.append_binary(dnnl::algorithm::binary_add, y);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(after);
    const auto description =
        bias_.size() > 0
            ? dnnl::matmul::desc(x, weights, matrix(1, out_, memory::format_tag::ab), y)
            : dnnl::matmul::desc(x, weights, y);
    return {description, attributes, engine_};
  }

  dnnl::engine engine_;
  std::int64_t in_, out_;
  Tensor bias_;
  memory weights_;
};

}  // namespace

bool OneDnnLinear::available() noexcept { return true; }

std::shared_ptr<const OneDnnLinear> OneDnnLinear::prepare(const TensorView& weight,
                                                          const TensorView& bias) {
  if (weight.size() == 0) return nullptr;
  try {
    return std::make_shared<Prepared>(weight, bias);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

#else

bool OneDnnLinear::available() noexcept { return false; }

std::shared_ptr<const OneDnnLinear> OneDnnLinear::prepare(const TensorView&, const TensorView&) {
  return nullptr;
}

#endif

}  // namespace qkv
