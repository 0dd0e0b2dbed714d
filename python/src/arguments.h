#pragma once

// Arguments that are not arrays, or need not be: numbers, names, lists of numbers.

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "array.h"
#include "qkv/attention.h"
#include "qkv/linear.h"

namespace qkv::python {

// A whole number; a bool is none.
std::int64_t read_integer(std::string_view name, nanobind::handle number);

// A number or None; a bool is none.
std::optional<double> read_number(std::string_view name, nanobind::handle number);

// None or a thread count of 1 or more; 0 stands for None.
int read_threads(nanobind::handle threads);

// One of the words, by position.
int read_word(std::string_view name, nanobind::handle word,
              std::initializer_list<std::string_view> words);

// How weights are kept: None (as they are given), "f32", "f16", "bf16" or "int8".
WeightStorage read_storage(nanobind::handle storage);

// A bool.
bool read_bool(std::string_view name, nanobind::handle value);

// Numbers, one a sequence or a head: an array [n] of any library, a list or a tuple, or None.
Input read_integers(std::string_view name, nanobind::handle numbers);
Input read_numbers(std::string_view name, nanobind::handle numbers);

// A number of a pair (left, right), or None.
Window read_window(nanobind::handle window);

// None, False, True, "top_left" or "bottom_right".
Causal read_causal(nanobind::handle causal);

// (batch, head, query) rows: a sequence of triples, or an array [n, 3].
Input read_rows(std::string_view name, nanobind::handle rows);

// True for one number, as opposed to numbers: an int, or an array without dimensions.
bool is_scalar(nanobind::handle value);

}  // namespace qkv::python
