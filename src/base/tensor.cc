#include "qkv/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>

#include "base/checked.h"
#include "base/element.h"
#include "qkv/error.h"

namespace qkv {

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  for (std::int64_t value : values) push_back(value);
}

void Dims::push_back(std::int64_t value) {
  if (rank_ == kMaxRank) {
    throw Error(ErrorKind::value, "Dims", "rank", fmt::format("at most {} dimensions", kMaxRank),
                fmt::format("more than {}", kMaxRank));
  }
  values_[rank_++] = value;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

std::int64_t element_count(const Dims& shape) {
  // Zeros are left out of the product that is checked, so that the product of any of the extents
  // is safe to form, also in an empty shape.
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t extent : shape) {
    if (extent < 0) {
      throw Error(ErrorKind::value, "Tensor", "shape", "extents of 0 or more", to_string(shape));
    }
    empty = empty || extent == 0;
    const auto product = checked_mul(count, std::max<std::int64_t>(extent, 1));
    if (!product) {
      throw Error(ErrorKind::value, "Tensor", "shape", "at most 2^63 - 1 elements",
                  to_string(shape));
    }
    count = *product;
  }
  return empty ? 0 : count;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

// --- TensorView ---------------------------------------------------------------------------

namespace {

// A view of n elements starts at data; a null pointer is only good for an empty one.
void check_view(const void* data, DType dtype, const Dims& shape, const Dims& strides) {
  if (shape.rank() != strides.rank()) {
    throw Error(ErrorKind::value, "TensorView", "strides",
                fmt::format("{} strides for shape {}", shape.rank(), to_string(shape)),
                to_string(strides));
  }
  const std::int64_t count = element_count(shape);
  if (count == 0) return;
  if (data == nullptr) {
    throw Error(ErrorKind::value, "TensorView", "data",
                fmt::format("a pointer to {} elements", count), "null");
  }
  // The byte offset of every element has to fit in 63 bits, so that no index can wrap later.
  std::int64_t low = 0;
  std::int64_t high = static_cast<std::int64_t>(size_of(dtype));
  for (int i = 0; i < shape.rank(); ++i) {
    const auto bytes = checked_mul(strides[i], static_cast<std::int64_t>(size_of(dtype)));
    const auto reach = bytes ? checked_mul(*bytes, shape[i] - 1) : bytes;
    auto& end = reach && *reach < 0 ? low : high;
    const auto sum = reach ? checked_add(end, *reach) : reach;
    if (!sum) {
      throw Error(ErrorKind::value, "TensorView", "strides", "byte offsets that fit in 63 bits",
                  fmt::format("shape {} with strides {}", to_string(shape), to_string(strides)));
    }
    end = *sum;
  }
}

[[noreturn]] void bad_argument(std::string_view where, std::string_view subject,
                               std::string_view expected, std::string_view found) {
  throw Error(ErrorKind::value, where, subject, expected, found);
}

int check_dim(std::string_view where, const TensorView& view, int dim) {
  const int resolved = dim < 0 ? dim + view.rank() : dim;
  if (resolved < 0 || resolved >= view.rank()) {
    bad_argument(where, "dim", fmt::format("a dimension of {}", to_string(view.shape())),
                 std::to_string(dim));
  }
  return resolved;
}

std::int64_t offset_of(const TensorView& view, std::span<const std::int64_t> index) {
  if (static_cast<int>(index.size()) != view.rank()) {
    bad_argument("TensorView::at", "index", fmt::format("{} numbers", view.rank()),
                 fmt::format("{}", index.size()));
  }
  std::int64_t offset = 0;
  for (int i = 0; i < view.rank(); ++i) {
    if (index[i] < 0 || index[i] >= view.dim(i)) {
      bad_argument("TensorView::at", "index", fmt::format("within {}", to_string(view.shape())),
                   to_string(Dims(index)));
    }
    offset += index[i] * view.stride(i);
  }
  return offset;
}

const void* advance(const TensorView& view, std::int64_t elements) {
  // An empty view may have no memory to step through.
  if (view.data() == nullptr || view.size() == 0) return view.data();
  return static_cast<const std::byte*>(view.data()) +
         elements * static_cast<std::int64_t>(size_of(view.dtype()));
}

}  // namespace

TensorView::TensorView(const void* data, DType dtype, const Dims& shape)
    : data_(data), shape_(shape), dtype_(dtype), given_(true) {
  element_count(shape);  // before row_major_strides multiplies unchecked
  strides_ = row_major_strides(shape);
  check_view(data, dtype, shape_, strides_);
}

TensorView::TensorView(const void* data, DType dtype, const Dims& shape, const Dims& strides)
    : data_(data), shape_(shape), strides_(strides), dtype_(dtype), given_(true) {
  check_view(data, dtype, shape_, strides_);
}

TensorView::TensorView(const Tensor& tensor) noexcept
    : data_(tensor.data_.get()), dtype_(tensor.dtype_), given_(tensor.data_ != nullptr) {
  if (!given_) return;
  shape_ = tensor.shape_;
  strides_ = row_major_strides(shape_);
}

void TensorView::check_span(std::size_t count, const Dims& shape) {
  if (element_count(shape) != static_cast<std::int64_t>(count)) {
    bad_argument("TensorView::of", "shape", fmt::format("a shape of {} elements", count),
                 to_string(shape));
  }
}

std::int64_t TensorView::size() const noexcept {
  if (!given_) return 0;
  return std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
}

bool TensorView::is_dense() const noexcept {
  if (size() == 0) return true;
  const Dims dense = row_major_strides(shape_);
  for (int i = 0; i < rank(); ++i) {
    if (shape_[i] != 1 && strides_[i] != dense[i]) return false;
  }
  return true;
}

double TensorView::at(std::initializer_list<std::int64_t> index) const {
  return at(std::span<const std::int64_t>(index.begin(), index.size()));
}

double TensorView::at(std::span<const std::int64_t> index) const {
  const std::int64_t offset = offset_of(*this, index);
  return visit_dtype(
      dtype_, [&](auto tag) { return static_cast<double>(load<decltype(tag)>(data_, offset)); });
}

TensorView TensorView::permute(std::initializer_list<int> order) const {
  TensorView result = *this;
  std::array<bool, kMaxRank> seen{};
  int i = 0;
  for (int from : order) {
    if (static_cast<int>(order.size()) != rank() || from < 0 || from >= rank() || seen[from]) {
      bad_argument("TensorView::permute", "order", fmt::format("each of 0..{} once", rank() - 1),
                   fmt::format("{}", fmt::join(order, ", ")));
    }
    seen[from] = true;
    result.shape_[i] = shape_[from];
    result.strides_[i] = strides_[from];
    ++i;
  }
  return result;
}

TensorView TensorView::transpose(int a, int b) const {
  a = check_dim("TensorView::transpose", *this, a);
  b = check_dim("TensorView::transpose", *this, b);
  TensorView result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  return result;
}

TensorView TensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  dim = check_dim("TensorView::slice", *this, dim);
  if (begin < 0 || begin > end || end > shape_[dim]) {
    bad_argument("TensorView::slice", "range", fmt::format("within [0, {}]", shape_[dim]),
                 fmt::format("[{}, {})", begin, end));
  }
  TensorView result = *this;
  // The start of an empty slice may lie outside the memory: keep the old one.
  if (begin < end) result.data_ = advance(*this, begin * strides_[dim]);
  result.shape_[dim] = end - begin;
  return result;
}

TensorView TensorView::select(int dim, std::int64_t index) const {
  dim = check_dim("TensorView::select", *this, dim);
  if (index < 0 || index >= shape_[dim]) {
    bad_argument("TensorView::select", "index", fmt::format("in [0, {})", shape_[dim]),
                 std::to_string(index));
  }
  TensorView result = slice(dim, index, index + 1);
  result.shape_ = Dims();
  result.strides_ = Dims();
  for (int i = 0; i < rank(); ++i) {
    if (i == dim) continue;
    result.shape_.push_back(shape_[i]);
    result.strides_.push_back(strides_[i]);
  }
  return result;
}

TensorView TensorView::unflatten(int dim, std::initializer_list<std::int64_t> sizes) const {
  dim = check_dim("TensorView::unflatten", *this, dim);
  const Dims parts(sizes);
  if (parts.rank() == 0 || element_count(parts) != shape_[dim]) {
    bad_argument("TensorView::unflatten", "sizes",
                 fmt::format("sizes that multiply to {}", shape_[dim]), to_string(parts));
  }
  const Dims steps = row_major_strides(parts);
  TensorView result = *this;
  result.shape_ = Dims();
  result.strides_ = Dims();
  for (int i = 0; i < rank(); ++i) {
    if (i != dim) {
      result.shape_.push_back(shape_[i]);
      result.strides_.push_back(strides_[i]);
      continue;
    }
    for (int p = 0; p < parts.rank(); ++p) {
      result.shape_.push_back(parts[p]);
      result.strides_.push_back(steps[p] * strides_[i]);
    }
  }
  return result;
}

TensorView TensorView::flatten(int first, int last) const {
  first = check_dim("TensorView::flatten", *this, first);
  last = check_dim("TensorView::flatten", *this, last);
  std::int64_t count = 1;
  std::int64_t step = strides_[last];
  std::int64_t want = step;  // the stride that the next dimension outwards must have
  bool fits = first <= last;
  for (int i = last; i >= first; --i) {
    if (shape_[i] != 1) {
      if (count == 1) step = want = strides_[i];
      fits = fits && (strides_[i] == want || size() == 0);
      want *= shape_[i];
    }
    count *= shape_[i];
  }
  if (!fits) {
    bad_argument("TensorView::flatten", "strides",
                 fmt::format("dimensions {} to {} that follow on from each other", first, last),
                 fmt::format("shape {} with strides {}", to_string(shape_), to_string(strides_)));
  }
  TensorView result = *this;
  result.shape_ = Dims();
  result.strides_ = Dims();
  for (int i = 0; i < rank(); ++i) {
    if (i > first && i <= last) continue;
    result.shape_.push_back(i == first ? count : shape_[i]);
    result.strides_.push_back(i == first ? step : strides_[i]);
  }
  return result;
}

TensorView TensorView::broadcast_to(const Dims& shape) const {
  TensorView result = *this;
  result.shape_ = shape;
  result.strides_ = shape;
  const int missing = shape.rank() - rank();
  bool fits = missing >= 0;
  for (int i = 0; fits && i < shape.rank(); ++i) {
    const bool own = i >= missing;
    const std::int64_t extent = own ? shape_[i - missing] : 1;
    fits = extent == shape[i] || extent == 1;
    result.strides_[i] = own && extent == shape[i] ? strides_[i - missing] : 0;
  }
  if (!fits) {
    bad_argument("TensorView::broadcast_to", "shape",
                 fmt::format("a shape that broadcasts to {}", to_string(shape)), to_string(shape_));
  }
  return result;
}

// --- MutableTensorView --------------------------------------------------------------------

MutableTensorView::MutableTensorView(void* data, DType dtype, const Dims& shape)
    : TensorView(data, dtype, shape) {}

MutableTensorView::MutableTensorView(void* data, DType dtype, const Dims& shape,
                                     const Dims& strides)
    : TensorView(data, dtype, shape, strides) {}

MutableTensorView::MutableTensorView(Tensor& tensor) noexcept : TensorView(tensor) {}

namespace {

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return static_cast<double>(value) != 0;
  } else if constexpr (is_float(dtype_of<To>)) {
    // f16 and bf16 round from f64 in one step; i64 to f64 is the only inexact widening.
    return static_cast<To>(static_cast<double>(value));
  } else if constexpr (is_float(dtype_of<From>)) {
    const double wide = static_cast<double>(value);
    const double low = static_cast<double>(std::numeric_limits<To>::min());
    // 2^63 is a double and the limit plus one for i64; max() itself is not.
    const double high = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (!(wide >= low && wide < high) || wide != std::trunc(wide)) {
      bad_argument("copy", "value",
                   fmt::format("a whole number that fits {}", name_of(dtype_of<To>)),
                   fmt::format("{}", wide));
    }
    return static_cast<To>(wide);
  } else {
    const auto wide = static_cast<std::int64_t>(value);
    if (!std::in_range<To>(wide)) {
      bad_argument("copy", "value", fmt::format("a number that fits {}", name_of(dtype_of<To>)),
                   std::to_string(wide));
    }
    return static_cast<To>(wide);
  }
}

}  // namespace

void MutableTensorView::set(std::initializer_list<std::int64_t> index, double value) const {
  const std::int64_t offset =
      offset_of(*this, std::span<const std::int64_t>(index.begin(), index.size()));
  visit_dtype(dtype_, [&](auto tag) { store(data(), offset, convert<decltype(tag)>(value)); });
}

MutableTensorView MutableTensorView::permute(std::initializer_list<int> order) const {
  return MutableTensorView(TensorView::permute(order));
}
MutableTensorView MutableTensorView::transpose(int a, int b) const {
  return MutableTensorView(TensorView::transpose(a, b));
}
MutableTensorView MutableTensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  return MutableTensorView(TensorView::slice(dim, begin, end));
}
MutableTensorView MutableTensorView::select(int dim, std::int64_t index) const {
  return MutableTensorView(TensorView::select(dim, index));
}
MutableTensorView MutableTensorView::unflatten(int dim,
                                               std::initializer_list<std::int64_t> sizes) const {
  return MutableTensorView(TensorView::unflatten(dim, sizes));
}
MutableTensorView MutableTensorView::flatten(int first, int last) const {
  return MutableTensorView(TensorView::flatten(first, last));
}

// --- Tensor -------------------------------------------------------------------------------

void Tensor::Free::operator()(std::byte* p) const noexcept { std::free(p); }

Tensor::Tensor(DType dtype, const Dims& shape) : shape_(shape), dtype_(dtype) {
  const auto bytes = checked_mul(element_count(shape), static_cast<std::int64_t>(size_of(dtype)));
  const auto padded = bytes ? checked_add(*bytes, kAlignment) : bytes;
  if (!padded) {
    bad_argument("Tensor", "shape", "a size in bytes that fits in 63 bits", to_string(shape));
  }
  // aligned_alloc wants a multiple of the alignment; at least one line, so that data is not null.
  const std::size_t size = static_cast<std::size_t>(*padded) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, std::max(size, kAlignment))));
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, static_cast<std::size_t>(*bytes));
}

Tensor Tensor::copy_of(const TensorView& source) { return copy_of(source, source.dtype()); }

Tensor Tensor::copy_of(const TensorView& source, DType dtype) {
  if (!source.has_value()) return Tensor();
  Tensor result(dtype, source.shape());
  copy(source, result.view());
  return result;
}

std::int64_t Tensor::size() const noexcept { return view().size(); }

void Tensor::check_type(DType wanted) const {
  if (wanted != dtype_) {
    throw Error(ErrorKind::type, "Tensor::as", "dtype", name_of(dtype_), name_of(wanted));
  }
}

void copy(const TensorView& source, const MutableTensorView& target) {
  if (!(source.shape() == target.shape())) {
    bad_argument("copy", "target", fmt::format("shape {}", to_string(source.shape())),
                 to_string(target.shape()));
  }
  const std::int64_t count = source.size();
  if (count == 0) return;
  if (source.dtype() == target.dtype() && source.is_dense() && target.is_dense()) {
    std::memmove(target.data(), source.data(),
                 static_cast<std::size_t>(count) * size_of(source.dtype()));
    return;
  }
  visit_dtype(source.dtype(), [&](auto from_tag) {
    visit_dtype(target.dtype(), [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      Dims index = source.shape();
      for (int i = 0; i < index.rank(); ++i) index[i] = 0;
      std::int64_t from = 0, to = 0;
      for (std::int64_t n = 0; n < count; ++n) {
        store(target.data(), to, convert<To>(load<From>(source.data(), from)));
        for (int i = index.rank() - 1; i >= 0; --i) {  // counts up like an odometer
          from += source.stride(i);
          to += target.stride(i);
          if (++index[i] < source.dim(i)) break;
          from -= index[i] * source.stride(i);
          to -= index[i] * target.stride(i);
          index[i] = 0;
        }
      }
    });
  });
}

}  // namespace qkv
