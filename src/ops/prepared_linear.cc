// PreparedLinear: weights checked and copied once, then linear_forward without them in its way.

#include <fmt/format.h>

#include <array>

#include "base/cpu.h"
#include "kernels/linear/bytes.h"
#include "kernels/linear/packed.h"
#include "kernels/linear/panel.h"
#include "kernels/rows.h"
#include "kernels/simd/targets.h"
#include "ops/compute.h"
#include "ops/linear.h"

namespace qkv {
namespace {

constexpr Refuse kRefuse("PreparedLinear");

constexpr std::array kBackends = {"automatic", "reference", "simd", "onednn"};
constexpr std::array kStorages = {"as given", "f32", "f64", "f16", "bf16", "i8"};

// f32 holds every number of f16 and bf16, and f64 those of all.
DType widest_dtype(std::span<const LinearWeights> weights) {
  DType widest = weights.front().weight.dtype();
  for (const LinearWeights& w : weights) {
    if (w.weight.dtype() == widest) continue;
    const bool f64 = w.weight.dtype() == DType::f64 || widest == DType::f64;
    widest = f64 ? DType::f64 : DType::f32;
  }
  return widest;
}

DType storage_dtype(std::span<const LinearWeights> weights, WeightStorage storage) {
  switch (storage) {
    case WeightStorage::f32: return DType::f32;
    case WeightStorage::f64: return DType::f64;
    case WeightStorage::f16: return DType::f16;
    case WeightStorage::bf16: return DType::bf16;
    case WeightStorage::i8: return DType::f32;  // until they are made bytes
    case WeightStorage::as_given: break;
  }
  return widest_dtype(weights);
}

// Checks every part, then lays them one under another.
void stack(std::span<const LinearWeights> weights, WeightStorage storage,
           PreparedLinear::Packed& packed) {
  if (weights.empty()) kRefuse.value("weights", "at least one", "none");
  bool biased = false;
  for (std::size_t n = 0; n < weights.size(); ++n) {
    const std::string name = weights.size() == 1 ? "" : fmt::format("weights[{}].", n);
    const TensorView& weight = weights[n].weight;
    kRefuse.unless_rank(name + "weight", weight, 2, "[out, in]");
    if (n == 0) packed.in = weight.dim(1);
    packed.out += check_linear(kRefuse, name, weights[n], packed.in);
    biased = biased || weights[n].bias.has_value();
  }
  packed.storage = storage_dtype(weights, storage);
  packed.weight = Tensor(packed.storage, {packed.out, packed.in});
  // A bias is small, and its rounding would be seen in every row: as exact as it may be needed.
  if (biased) packed.bias = Tensor(DType::f64, {packed.out});
  std::int64_t begin = 0;
  for (const LinearWeights& w : weights) {
    const std::int64_t end = begin + w.weight.dim(0);
    copy(w.weight, packed.weight.view().slice(0, begin, end));
    if (w.bias.has_value()) copy(w.bias, packed.bias.view().slice(0, begin, end));
    begin = end;
  }
}

// The weights as panels of the kernel that computes in f64 if they are f64, in f32 otherwise.
void pack_panels(PreparedLinear::Packed& packed) {
  const PanelKernel& kernel =
      *find_panel_kernel(packed.storage == DType::f64 ? DType::f64 : DType::f32, packed.target);
  packed.width = kernel.width();
  const std::int64_t count = (packed.out + packed.width - 1) / packed.width;
  Tensor panels(packed.storage, {count, packed.in, packed.width});
  auto* to = static_cast<std::byte*>(panels.view().data());
  const std::int64_t bytes =
      packed.in * packed.width * static_cast<std::int64_t>(size_of(packed.storage));
  parallel_for(count, 0, [&](std::int64_t n, int) {
    kernel.pack(packed.weight, n * packed.width, to + n * bytes);
  });
  packed.weight = std::move(panels);
}

// The weights as panels of bytes.
void pack_bytes(PreparedLinear::Packed& packed) {
  packed.width = find_panel_kernel(DType::f32, packed.target)->width();
  const std::int64_t count = (packed.out + packed.width - 1) / packed.width;
  const std::int64_t bytes = (packed.in + 3) / 4 * 4 * packed.width;
  Tensor panels(DType::u8, {count, bytes});
  packed.scales = Tensor(DType::f32, {count * packed.width});
  packed.sums = Tensor(DType::i32, {count * packed.width});
  auto* to = static_cast<std::int8_t*>(panels.view().data());
  parallel_for(count, 0, [&](std::int64_t n, int) {
    const std::int64_t begin = n * packed.width;
    quantize_panel(packed.weight, begin, packed.width, to + n * bytes,
                   packed.scales.as<float>().data() + begin,
                   packed.sums.as<std::int32_t>().data() + begin);
  });
  packed.weight = std::move(panels);
  packed.bytes = true;
}

std::string describe_bytes(SimdTarget target) {
  const bool vnni = target == SimdTarget::avx512 && cpu_has("avx512vnni");
  return fmt::format("kernel     simd, {}, sums of 8-bit integers{}\n", name_of(target),
                     vnni ? " by VNNI" : "");
}

void check_bytes(const PreparedLinear::Packed& packed, const PrepareOptions& options) {
  if (packed.in > kMaxBytesIn) {
    kRefuse.value("storage", fmt::format("i8 for at most {} inputs", kMaxBytesIn),
                  fmt::format("{}", packed.in));
  }
  if (options.backend != LinearBackend::automatic && options.backend != LinearBackend::simd) {
    kRefuse.value("backend", "simd for weights of i8", name_of(options.backend));
  }
}

}  // namespace

std::string_view name_of(LinearBackend backend) noexcept {
  return kBackends[static_cast<std::size_t>(backend)];
}
std::string_view name_of(WeightStorage storage) noexcept {
  return kStorages[static_cast<std::size_t>(storage)];
}

PreparedLinear::PreparedLinear(const LinearWeights& weights, const PrepareOptions& options)
    : PreparedLinear(std::span(&weights, 1), options) {}

PreparedLinear::PreparedLinear(std::span<const LinearWeights> weights,
                               const PrepareOptions& options) {
  check_linear_choice(kRefuse, {options.backend, options.target});
  auto packed = std::make_shared<Packed>();
  stack(weights, options.storage, *packed);
  if (options.storage == WeightStorage::i8) check_bytes(*packed, options);
  packed->target = options.target == SimdTarget::automatic ? preferred_target() : options.target;
  if (options.backend == LinearBackend::reference) {
    packed->backend = LinearBackend::reference;
  } else if (options.storage == WeightStorage::i8) {
    pack_bytes(*packed);
  } else {
    if (options.backend == LinearBackend::onednn && packed->storage == DType::f32) {
      packed->onednn = OneDnnLinear::prepare(packed->weight, packed->bias);
    }
    pack_panels(*packed);
  }
  packed_ = std::move(packed);
}

std::int64_t PreparedLinear::in() const noexcept { return packed_ ? packed_->in : 0; }
std::int64_t PreparedLinear::out() const noexcept { return packed_ ? packed_->out : 0; }
std::size_t PreparedLinear::bytes() const noexcept {
  if (!packed_) return 0;
  const auto size = [](const Tensor& t) {
    return static_cast<std::size_t>(t.size()) * size_of(t.dtype());
  };
  return size(packed_->weight) + size(packed_->bias) + size(packed_->scales) + size(packed_->sums);
}

void PreparedLinear::forward(const TensorView& x, const MutableTensorView& out,
                             const LinearOptions& options) const {
  if (!packed_) kRefuse.value("weights", "prepared ones", "none");
  check_linear_input(kRefuse, x);
  if (x.dim(-1) != packed_->in) {
    kRefuse.value("x", fmt::format("shape [..., {}]", packed_->in), to_string(x.shape()));
  }
  check_linear_call(kRefuse, x, out, packed_->out, options);
  run_linear(*this, x, out, compute_dtype(x, options.accumulate), options.threads,
             {options.activation, options.residual});
}

std::string PreparedLinear::describe(std::int64_t rows, const LinearOptions& options) const {
  if (!packed_) kRefuse.value("weights", "prepared ones", "none");
  const std::string head =
      fmt::format("linear     {} rows, {} -> {}, weights {}\n", rows, packed_->in, packed_->out,
                  packed_->bytes ? "i8" : name_of(packed_->storage));
  if (packed_->backend == LinearBackend::reference) {
    return head + "kernel     reference: asked for; plain loops, for checking\n";
  }
  if (packed_->onednn) {
    return head + "kernel     oneDNN: asked for; simd for what is not dense f32\n";
  }
  if (packed_->bytes) return head + describe_bytes(packed_->target);
  const DType compute = options.accumulate == Accumulate::f64 || packed_->storage == DType::f64
                            ? DType::f64
                            : DType::f32;
  const PanelKernel& kernel = *find_panel_kernel(compute, packed_->target);
  std::string text =
      head + fmt::format("kernel     simd, {}, sums in {}\ntile       {} rows × {} outputs\n",
                         name_of(packed_->target), name_of(compute), kernel.tile_rows,
                         kernel.width());
  if (packed_->target != simd_targets().front()) {
    text += fmt::format("note       {} was chosen; the best target of this CPU is {}\n",
                        name_of(packed_->target), name_of(simd_targets().front()));
  }
  if (rows <= kernel.tile_rows) {
    text += "note       few rows: bound by reading the weights once\n";
  }
  if (packed_->storage != compute) {
    text += fmt::format("note       weights are converted from {} as they are read\n",
                        name_of(packed_->storage));
  }
  return text;
}

}  // namespace qkv
