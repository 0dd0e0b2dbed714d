#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>

#include "qkv/dtype.h"
#include "qkv/export.h"

namespace qkv {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank numbers, one a dimension, held in place: a shape or the strides of one.
class QKV_API Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  int rank() const noexcept { return rank_; }
  // Negative indices count from the last dimension.
  std::int64_t operator[](int i) const noexcept { return values_[i < 0 ? i + rank_ : i]; }
  std::int64_t& operator[](int i) noexcept { return values_[i < 0 ? i + rank_ : i]; }
  const std::int64_t* begin() const noexcept { return values_.data(); }
  const std::int64_t* end() const noexcept { return values_.data() + rank_; }
  void push_back(std::int64_t value);  // refuses to pass kMaxRank

  friend bool operator==(const Dims& a, const Dims& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

// "[2, 8, 197, 64]"
QKV_API std::string to_string(const Dims& dims);

// Elements of a shape. Refuses negative extents, and extents whose product (zeros left out) does
// not fit in 63 bits.
QKV_API std::int64_t element_count(const Dims& shape);

// Strides of a dense row-major array of that shape, in elements.
QKV_API Dims row_major_strides(const Dims& shape);

class Tensor;

// A read-only window on elements that someone else owns: pointer, dtype, shape and strides. As
// with std::string_view, copying it copies no element and the owner has to outlive it. Strides
// count elements and may be anything (0, negative, overlapping): every layout is a choice of
// strides. The pointer needs no alignment.
//
// A default-constructed view stands for "not given" (see has_value).
class QKV_API TensorView {
 public:
  TensorView() = default;
  TensorView(const void* data, DType dtype, const Dims& shape);  // dense row-major
  TensorView(const void* data, DType dtype, const Dims& shape, const Dims& strides);

  TensorView(const Tensor& tensor) noexcept;  // NOLINT: a Tensor is passed where a view is taken

  // Dense view of C++ values: TensorView::of(vector, {2, 3}); without a shape, one row. The range
  // has to outlive the view, so a temporary vector is refused by the compiler.
  template <typename T>
  static TensorView of(std::span<const T> values, const Dims& shape) {
    static_assert(dtype_of<T> <= DType::boolean, "not an element type of qkv");
    check_span(values.size(), shape);
    return TensorView(values.data(), dtype_of<T>, shape);
  }
  template <std::ranges::contiguous_range Range>
  requires std::ranges::borrowed_range<Range>
  static TensorView of(Range&& values, const Dims& shape) {
    using T = std::remove_cv_t<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;
    return of<T>(std::span<const T>(values), shape);
  }
  template <typename Range>
  static TensorView of(Range&& values) {
    return of(values, {static_cast<std::int64_t>(std::ranges::size(values))});
  }

  // False for a default-constructed view: an optional argument that was left out.
  bool has_value() const noexcept { return given_; }

  const void* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  const Dims& shape() const noexcept { return shape_; }
  const Dims& strides() const noexcept { return strides_; }
  int rank() const noexcept { return shape_.rank(); }
  std::int64_t dim(int i) const noexcept { return shape_[i]; }
  std::int64_t stride(int i) const noexcept { return strides_[i]; }
  std::int64_t size() const noexcept;  // elements
  bool is_dense() const noexcept;      // row-major without gaps

  // The element at an index (one number a dimension), widened to f64. For tests, printing and
  // reference loops; throws on an index outside the shape.
  double at(std::initializer_list<std::int64_t> index) const;
  double at(std::span<const std::int64_t> index) const;
  double at(const Dims& index) const { return at(std::span(index.begin(), index.end())); }

  // Views of the same elements. None of them copies.
  TensorView permute(std::initializer_list<int> order) const;  // out dim i = dim order[i]
  TensorView transpose(int a, int b) const;                    // swaps two dimensions
  TensorView slice(int dim, std::int64_t begin, std::int64_t end) const;
  TensorView select(int dim, std::int64_t index) const;  // drops the dimension
  TensorView unflatten(int dim, std::initializer_list<std::int64_t> sizes) const;
  TensorView flatten(int first, int last) const;     // refuses when strides do not allow it
  TensorView broadcast_to(const Dims& shape) const;  // right-aligned, stride 0

 protected:
  static void check_span(std::size_t count, const Dims& shape);

  const void* data_ = nullptr;
  Dims shape_, strides_;
  DType dtype_ = DType::f32;
  bool given_ = false;
};

// The same window, through which elements may be written.
class QKV_API MutableTensorView : public TensorView {
 public:
  MutableTensorView() = default;
  MutableTensorView(void* data, DType dtype, const Dims& shape);
  MutableTensorView(void* data, DType dtype, const Dims& shape, const Dims& strides);
  MutableTensorView(Tensor& tensor) noexcept;  // NOLINT: as above

  template <typename T>
  static MutableTensorView of(std::span<T> values, const Dims& shape) {
    static_assert(dtype_of<T> <= DType::boolean, "not an element type of qkv");
    check_span(values.size(), shape);
    return MutableTensorView(values.data(), dtype_of<T>, shape);
  }
  template <std::ranges::contiguous_range Range>
  requires std::ranges::borrowed_range<Range>
  static MutableTensorView of(Range&& values, const Dims& shape) {
    return of(std::span(values), shape);
  }
  template <typename Range>
  static MutableTensorView of(Range&& values) {
    return of(values, {static_cast<std::int64_t>(std::ranges::size(values))});
  }

  // Only a MutableTensorView is ever built on a pointer that was not const.
  void* data() const noexcept { return const_cast<void*>(data_); }

  // Writes one element, rounded to the dtype.
  void set(std::initializer_list<std::int64_t> index, double value) const;

  MutableTensorView permute(std::initializer_list<int> order) const;
  MutableTensorView transpose(int a, int b) const;
  MutableTensorView slice(int dim, std::int64_t begin, std::int64_t end) const;
  MutableTensorView select(int dim, std::int64_t index) const;
  MutableTensorView unflatten(int dim, std::initializer_list<std::int64_t> sizes) const;
  MutableTensorView flatten(int first, int last) const;

 private:
  explicit MutableTensorView(const TensorView& view) : TensorView(view) {}
};

// Owns its elements: dense, row-major, aligned to kAlignment bytes. Moves, never copies in
// silence (see clone).
class QKV_API Tensor {
 public:
  static constexpr std::size_t kAlignment = 64;

  Tensor() = default;                      // owns nothing; its view has no value
  Tensor(DType dtype, const Dims& shape);  // zeros

  // A dense copy of any view, in its dtype or another one (rounded to nearest; floats to
  // integers only when the value is a whole number that fits).
  static Tensor copy_of(const TensorView& source);
  static Tensor copy_of(const TensorView& source, DType dtype);
  Tensor clone() const { return copy_of(view()); }

  MutableTensorView view() noexcept { return *this; }
  TensorView view() const noexcept { return *this; }

  DType dtype() const noexcept { return dtype_; }
  const Dims& shape() const noexcept { return shape_; }
  std::int64_t dim(int i) const noexcept { return shape_[i]; }
  std::int64_t size() const noexcept;

  // The elements as C++ values; T has to be the dtype.
  template <typename T>
  std::span<T> as() {
    check_type(dtype_of<T>);
    return {static_cast<T*>(static_cast<void*>(data_.get())), static_cast<std::size_t>(size())};
  }
  template <typename T>
  std::span<const T> as() const {
    check_type(dtype_of<T>);
    return {static_cast<const T*>(static_cast<const void*>(data_.get())),
            static_cast<std::size_t>(size())};
  }

 private:
  friend class TensorView;
  struct Free {
    void operator()(std::byte* p) const noexcept;
  };
  void check_type(DType wanted) const;

  std::unique_ptr<std::byte[], Free> data_;  // null: owns nothing, also after a move
  Dims shape_;
  DType dtype_ = DType::f32;
};

// Copies every element of `source` to `target`, which has the same shape; dtypes may differ as
// in Tensor::copy_of.
QKV_API void copy(const TensorView& source, const MutableTensorView& target);

}  // namespace qkv
