#include "array.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "exchange.h"
#include "lendable.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

using Code = nb::dlpack::dtype_code;

struct KnownType {
  Code code;
  std::uint8_t bits;
  DType dtype;
};

constexpr std::array<KnownType, 8> kTypes{{
    {Code::Float, 32, DType::f32},
    {Code::Float, 64, DType::f64},
    {Code::Float, 16, DType::f16},
    {Code::Bfloat, 16, DType::bf16},
    {Code::Int, 32, DType::i32},
    {Code::Int, 64, DType::i64},
    {Code::UInt, 8, DType::u8},
    {Code::Bool, 8, DType::boolean},
}};

nb::dlpack::dtype dlpack_of(DType dtype) {
  const auto* known =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& t) { return t.dtype == dtype; });
  return {static_cast<std::uint8_t>(known->code), known->bits, 1};
}

// "int16", for types that the engine has no name for.
std::string name_of(nb::dlpack::dtype type) {
  const char* kind = "type";
  switch (static_cast<Code>(type.code)) {
    case Code::Int: kind = "int"; break;
    case Code::UInt: kind = "uint"; break;
    case Code::Float: kind = "float"; break;
    case Code::Bfloat: kind = "bfloat"; break;
    case Code::Complex: kind = "complex"; break;
    case Code::Bool: kind = "bool"; break;
    default: break;
  }
  return kind + std::to_string(type.bits) +
         (type.lanes == 1 ? "" : " × " + std::to_string(type.lanes));
}

constexpr const char* kAnyType = "dtype f32, f64, f16, bf16, i32, i64, u8 or bool";
constexpr const char* kFloat = "dtype f32, f64, f16 or bf16";

DType dtype_of_array(std::string_view name, nb::dlpack::dtype type, const char* expected) {
  for (const KnownType& known : kTypes) {
    if (static_cast<std::uint8_t>(known.code) == type.code && known.bits == type.bits &&
        type.lanes == 1) {
      return known.dtype;
    }
  }
  refuse_type(name, expected, name_of(type));
}

// Refuses memory that a CPU does not reach, and more dimensions than there are.
void check_place(std::string_view name, std::int32_t device, std::size_t rank) {
  if (device != nb::device::cpu::value) {
    refuse_type(name, "an array in the CPU's memory",
                "one on another device (DLPack type " + std::to_string(device) + ")");
  }
  if (rank > static_cast<std::size_t>(kMaxRank)) {
    refuse_value(name, "at most " + std::to_string(kMaxRank) + " dimensions", std::to_string(rank));
  }
}

template <typename View, typename Lent>
View view_of(std::string_view name, const Lent& lent, const char* expected) {
  const std::size_t rank = lent.ndim();
  check_place(name, lent.device_type(), rank);
  return View(lent.data(), dtype_of_array(name, lent.dtype(), expected),
              Dims(std::span(lent.shape_ptr(), rank)), Dims(std::span(lent.stride_ptr(), rank)));
}

template <typename Lent>
Lent lend(std::string_view name, nb::handle object, const char* what) {
  const Framework framework = framework_of(object);
  if (framework == Framework::torch) {
    refuse_derivatives(name, object);
    refuse_negative(name, object);
  } else if (framework == Framework::numpy) {
    refuse_masked(name, object);
  }
  Lent lent;
  if (nb::try_cast<Lent>(object, lent, false) && lent.is_valid()) return lent;
  PyErr_Clear();  // the reason is said in words of our own
  std::string found = framework == Framework::torch ? why_not_lent(object) : "";
  if (!found.empty()) refuse_type(name, "an array whose elements are in the CPU's memory", found);
  found = class_name(object);
  if (nb::hasattr(object, "dtype")) {
    const nb::object dtype = object.attr("dtype");
    found += " of dtype " + std::string(nb::str(nb::handle(dtype)).c_str());
  }
  refuse_type(name, what, found);
}

// Whether a view may be of imaginary parts: those are every other number in memory. Asking the
// tensor itself would cost a short call as much as its arithmetic.
bool may_be_imaginary(const TensorView& view) {
  for (int i = 0; i < view.rank(); ++i) {
    if (view.dim(i) > 1 && view.stride(i) % 2 != 0) return false;
  }
  return true;
}

// Without a call of Python, where the library has DLPack's table for it.
bool describe(std::string_view name, nb::handle array, TensorView& view, const char* expected) {
  const ExchangeTable* table = exchange_table(array.type());
  if (table == nullptr || table->describe == nullptr) return false;
  const bool torch = framework_of(array) == Framework::torch;
  if (torch) refuse_derivatives(name, array);
  nb::dlpack::dltensor found;
  if (table->describe(array.ptr(), &found) != 0) {
    PyErr_Clear();  // the long way says why
    return false;
  }
  const auto rank = static_cast<std::size_t>(found.ndim);
  check_place(name, found.device.device_type, rank);
  const Dims shape(std::span<const std::int64_t>(found.shape, rank));
  const Dims strides = found.strides == nullptr
                           ? row_major_strides(shape)
                           : Dims(std::span<const std::int64_t>(found.strides, rank));
  const auto* data = static_cast<const std::byte*>(found.data) + found.byte_offset;
  view = TensorView(data, dtype_of_array(name, found.dtype, expected), shape, strides);
  if (torch && may_be_imaginary(view)) refuse_negative(name, array);
  return true;
}

Input keep(std::string_view name, nb::handle array, const char* expected) {
  Input input;
  if (array.is_none()) return input;
  input.lent = lend<nb::ndarray<nb::ro>>(name, array, "an array (DLPack or the buffer protocol)");
  input.view = view_of<TensorView>(name, input.lent, expected);
  return input;
}

Input read(std::string_view name, nb::handle array, const char* expected) {
  Input input;
  if (!array.is_none() && describe(name, array, input.view, expected)) {
    input.array = nb::borrow(array);
    return input;
  }
  return keep(name, array, expected);
}

// A function of a module that is there for good; looked up once.
template <typename Tag>
nb::handle cached(const char* module, const char* function) {
  static PyObject* const found =
      nb::object(nb::module_::import_(module).attr(function)).release().ptr();
  return found;
}

const char* numpy_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f64: return "float64";
    case DType::f16: return "float16";
    default: return nullptr;
  }
}

const char* torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : numpy_name(dtype);
}

nb::tuple to_tuple(const Dims& shape) {
  PyObject* numbers = PyTuple_New(shape.rank());
  if (numbers == nullptr) throw nb::python_error();
  for (int i = 0; i < shape.rank(); ++i) {
    PyTuple_SET_ITEM(numbers, i, PyLong_FromLongLong(shape[i]));
  }
  return nb::steal<nb::tuple>(numbers);
}

nb::object new_numpy(DType dtype, const Dims& shape) {
  const char* name = numpy_name(dtype);
  if (name == nullptr) {
    refuse_type("out", "an array to write to, since NumPy has no such type", name_of(dtype));
  }
  struct Empty {};
  return cached<Empty>("numpy", "empty")(to_tuple(shape), name);
}

// In a process whose default device is another one, too.
nb::object new_torch(DType dtype, const Dims& shape) {
  static std::array<PyObject*, 4> models{};  // a tensor of each type: its new_empty is the fastest
  PyObject*& model = models[static_cast<std::size_t>(dtype)];
  if (model != nullptr) {
    static PyObject* name = nullptr;
    const nb::object made = nb::steal(
        PyObject_CallMethodOneArg(model, interned(name, "new_empty"), to_tuple(shape).ptr()));
    if (!made.is_valid()) throw nb::python_error();
    return made;
  }
  const nb::module_ torch = nb::module_::import_("torch");
  const auto empty = [&](const nb::object& sizes) {
    return nb::object(torch.attr("empty")(sizes, nb::arg("dtype") = torch.attr(torch_name(dtype)),
                                          nb::arg("device") = "cpu"));
  };
  nb::object none = empty(nb::int_(0));  // not while PyTorch pretends: then it is of another class
  if (none.type().is(torch.attr("Tensor"))) model = none.release().ptr();
  return empty(to_tuple(shape));
}

// The same through DLPack's table, which costs half as much. False where it cannot: nothing is
// made.
bool allocate_torch(DType dtype, const Dims& shape, nb::object& made, void*& data) {
  static const ExchangeTable* const table =
      exchange_table(nb::module_::import_("torch").attr("Tensor"));
  if (table == nullptr || table->allocate == nullptr || table->to_object == nullptr) return false;
  nb::dlpack::dltensor like{};
  Dims sizes = shape;
  like.device = {nb::device::cpu::value, 0};
  like.ndim = shape.rank();
  like.dtype = dlpack_of(dtype);
  like.shape = &sizes[0];
  ManagedTensor* lent = nullptr;
  const auto ignore = [](void*, const char*, const char*) {};
  if (table->allocate(&like, &lent, nullptr, ignore) != 0 || lent == nullptr) {
    PyErr_Clear();
    return false;
  }
  const nb::dlpack::dltensor& tensor = lent->tensor;
  data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  void* object = nullptr;
  if (tensor.device.device_type != nb::device::cpu::value || tensor.data == nullptr ||
      table->to_object(lent, &object) != 0) {  // while PyTorch pretends, say
    PyErr_Clear();
    if (object == nullptr) lent->deleter(lent);
    return false;
  }
  made = nb::steal(static_cast<PyObject*>(object));
  return true;
}

void* address_of_tensor(nb::handle tensor) {
  static PyObject* name = nullptr;
  const nb::object address =
      nb::steal(PyObject_CallMethodNoArgs(tensor.ptr(), interned(name, "data_ptr")));
  if (!address.is_valid()) throw nb::python_error();
  return PyLong_AsVoidPtr(address.ptr());
}

void* writable_buffer(nb::handle array) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_SIMPLE | PyBUF_WRITABLE) != 0) {
    throw nb::python_error();
  }
  void* data = buffer.buf;
  PyBuffer_Release(&buffer);  // the array itself is held
  return data;
}

Framework framework_by_module(nb::handle array) {
  // By the base classes' modules: a subclass, such as a parameter, may be anyone's.
  PyObject* bases = Py_TYPE(array.ptr())->tp_mro;
  for (nb::handle base : nb::borrow<nb::tuple>(bases)) {
    const nb::object module = nb::getattr(base, "__module__", nb::str(""));
    if (!nb::isinstance<nb::str>(module)) continue;
    const std::string_view name = nb::borrow<nb::str>(module).c_str();
    if (name == "numpy") return Framework::numpy;
    if (name == "torch" || name.starts_with("torch.")) return Framework::torch;
    if (name.starts_with("jaxlib") || name.starts_with("jax.")) return Framework::jax;
  }
  return Framework::numpy;
}

}  // namespace

Framework framework_of(nb::handle array) {
  // Each type that was looked at is held for good, so that its address stays its own.
  struct Seen {
    nb::handle type;
    Framework framework = Framework::numpy;
  };
  static std::array<Seen, 8> seen;
  static std::size_t next = 0;
  const nb::handle type = array.type();
  for (const Seen& one : seen) {
    if (one.type.is(type)) return one.framework;
  }
  const Framework framework = framework_by_module(array);
  if (next < seen.size()) {
    seen[next] = {type.inc_ref(), framework};
    ++next;
  }
  return framework;
}

Input read_array(std::string_view name, nb::handle array) { return read(name, array, kAnyType); }

Input read_floats(std::string_view name, nb::handle array) {
  Input input = read(name, array, kFloat);
  if (!array.is_none() && !is_float(input.view.dtype())) {
    refuse_type(name, kFloat, name_of(input.view.dtype()));
  }
  return input;
}

Input keep_array(std::string_view name, nb::handle array) { return keep(name, array, kAnyType); }

Borrowed borrow_output(std::string_view name, nb::handle array) {
  Borrowed output;
  if (framework_of(array) == Framework::jax) {
    refuse_type(name, "a writable array", "one of JAX, whose arrays are constants");
  }
  output.lent = lend<nb::ndarray<>>(name, array, "a writable array");
  output.view = view_of<MutableTensorView>(name, output.lent, kAnyType);
  return output;
}

Output::Output(Framework framework, DType dtype, const Dims& shape) {
  switch (framework) {
    case Framework::numpy:
      array_ = new_numpy(dtype, shape);
      view_ = MutableTensorView(writable_buffer(array_), dtype, shape);
      return;
    case Framework::torch: {
      void* data = nullptr;
      if (!allocate_torch(dtype, shape, array_, data)) {
        array_ = new_torch(dtype, shape);
        data = address_of_tensor(array_);
      }
      view_ = MutableTensorView(data, dtype, shape);
      return;
    }
    case Framework::jax:
      owned_ = Tensor(dtype, shape);
      view_ = owned_.view();
      return;
  }
}

nb::object Output::take() {
  if (array_.is_valid() || !view_.has_value()) return std::move(array_);
  const Dims shape = owned_.shape();
  auto owner = std::make_unique<Tensor>(std::move(owned_));
  void* data = owner->view().data();
  const auto rank = static_cast<std::size_t>(shape.rank());
  std::array<std::size_t, kMaxRank> extents{};
  std::copy(shape.begin(), shape.end(), extents.begin());
  const nb::capsule keeper(owner.get(), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  const DType dtype = owner->dtype();
  (void)owner.release();  // the capsule's now
  return nb::cast(nb::ndarray<nb::jax>(data, rank, extents.data(), keeper, nullptr,
                                       dlpack_of(dtype), nb::device::cpu::value));
}

}  // namespace qkv::python
