#include "arguments.h"

#include <climits>
#include <string>
#include <vector>

#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

std::string shown(nb::handle object) {
  constexpr std::size_t kLongest = 60;
  std::string text = nb::repr(object).c_str();
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

bool is_list(nb::handle object) {
  return nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object);
}

std::string entry(std::string_view name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

double read_one_number(std::string_view name, nb::handle number) {
  if (!nb::isinstance<nb::bool_>(number) && !nb::isinstance<nb::str>(number)) {
    const double value = PyFloat_AsDouble(number.ptr());
    if (value != -1.0 || PyErr_Occurred() == nullptr) return value;
    PyErr_Clear();
  }
  refuse_type(name, "a number", shown(number));
}

template <typename T, typename Read>
Input read_list(std::string_view name, nb::handle numbers, Read read) {
  if (numbers.is_none() || !is_list(numbers)) return read_array(name, numbers);
  Input input;
  const std::size_t count = nb::len(numbers);
  input.owned = Tensor(dtype_of<T>, {static_cast<std::int64_t>(count)});
  for (std::size_t i = 0; i < count; ++i) {
    input.owned.as<T>()[i] = read(entry(name, i), numbers[i]);
  }
  input.view = input.owned.view();
  return input;
}

}  // namespace

std::int64_t read_integer(std::string_view name, nb::handle number) {
  if (!nb::isinstance<nb::bool_>(number) && PyIndex_Check(number.ptr()) != 0) {
    const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
    if (index.is_valid()) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
      if (overflow != 0) refuse_value(name, "an integer of 64 bits", shown(number));
      return value;
    }
    PyErr_Clear();
  }
  refuse_type(name, "an integer", shown(number));
}

std::optional<double> read_number(std::string_view name, nb::handle number) {
  if (number.is_none()) return std::nullopt;
  return read_one_number(name, number);
}

int read_threads(nb::handle threads) {
  if (threads.is_none()) return 0;
  const std::int64_t count = read_integer("threads", threads);
  if (count < 1 || count > INT_MAX) refuse_value("threads", "None, or 1 or more", shown(threads));
  return static_cast<int>(count);
}

int read_word(std::string_view name, nb::handle word,
              std::initializer_list<std::string_view> words) {
  if (nb::isinstance<nb::str>(word)) {
    const std::string_view given = nb::borrow<nb::str>(word).c_str();
    int i = 0;
    for (const std::string_view known : words) {
      if (known == given) return i;
      ++i;
    }
  }
  std::string expected;
  for (const std::string_view known : words) {
    if (!expected.empty()) expected += known == *(words.end() - 1) ? " or " : ", ";
    expected += '"' + std::string(known) + '"';
  }
  refuse_value(name, expected, shown(word));
}

WeightStorage read_storage(nb::handle storage) {
  if (storage.is_none()) return WeightStorage::as_given;
  constexpr WeightStorage kinds[] = {WeightStorage::f32, WeightStorage::f16, WeightStorage::bf16,
                                     WeightStorage::i8};
  return kinds[read_word("storage", storage, {"f32", "f16", "bf16", "int8"})];
}

bool read_bool(std::string_view name, nb::handle value) {
  if (!nb::isinstance<nb::bool_>(value)) refuse_type(name, "True or False", shown(value));
  return value.is(Py_True);
}

Input read_integers(std::string_view name, nb::handle numbers) {
  return read_list<std::int64_t>(name, numbers, read_integer);
}

Input read_numbers(std::string_view name, nb::handle numbers) {
  return read_list<double>(name, numbers, read_one_number);
}

Window read_window(nb::handle window) {
  if (window.is_none()) return {};
  if (!is_list(window) || nb::len(window) != 2) {
    refuse_type("window", "(left, right), each -1 (unbounded) or more", shown(window));
  }
  return {read_integer("window[0]", window[0]), read_integer("window[1]", window[1])};
}

Causal read_causal(nb::handle causal) {
  if (causal.is_none() || causal.is(Py_False)) return Causal::none;
  if (causal.is(Py_True)) return Causal::aligned;
  if (!nb::isinstance<nb::str>(causal)) {
    refuse_type("causal", R"(None, True, "top_left" or "bottom_right")", shown(causal));
  }
  return read_word("causal", causal, {"top_left", "bottom_right"}) == 0 ? Causal::top_left
                                                                        : Causal::bottom_right;
}

Input read_rows(std::string_view name, nb::handle rows) {
  if (!is_list(rows)) return read_array(name, rows);
  Input input;
  const std::size_t count = nb::len(rows);
  input.owned = Tensor(DType::i64, {static_cast<std::int64_t>(count), 3});
  for (std::size_t i = 0; i < count; ++i) {
    const nb::object row = rows[i];
    if (!is_list(row) || nb::len(row) != 3) {
      refuse_type(entry(name, i), "(batch, head, query)", shown(row));
    }
    for (std::size_t c = 0; c < 3; ++c) {
      input.owned.as<std::int64_t>()[3 * i + c] = read_integer(entry(name, i), row[c]);
    }
  }
  input.view = input.owned.view();
  return input;
}

bool is_scalar(nb::handle value) {
  if (nb::isinstance<nb::int_>(value)) return true;
  if (is_list(value)) return false;
  if (nb::hasattr(value, "ndim")) return read_integer("ndim", value.attr("ndim")) == 0;
  return PyIndex_Check(value.ptr()) != 0;
}

}  // namespace qkv::python
