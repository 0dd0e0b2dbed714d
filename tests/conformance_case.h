#pragma once

// Published attention results, as tests: where they are, one of them in memory, and how a result is
// compared with what was published, and with f64.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qkv/attention.h"
#include "qkv/file.h"
#include "qkv/tensor.h"
#include "tests/engines.h"

namespace qkv::testing {

// $QKV_SHARED/conformance, by default ../shared/conformance beside the sources.
std::filesystem::path conformance_folder();

// Names of the cases in a subfolder, sorted; none when it is absent.
std::vector<std::string> case_names(const std::string& subfolder);

// One test: a case and an engine.
struct CaseParam {
  std::string subfolder, name;
  Engine engine;
};
void PrintTo(const CaseParam& param, std::ostream* out);
std::vector<CaseParam> case_params(const std::string& subfolder);
std::string param_name(const ::testing::TestParamInfo<CaseParam>& info);

// A folder of the data: case.json and the arrays that it names.
struct ConformanceCase {
  std::string op;
  nlohmann::json attributes;
  std::map<std::string, FileTensor> inputs, outputs;
  double rtol = 0, atol = 0;

  TensorView input(const std::string& name) const;  // empty when the case has none
};
ConformanceCase load_case(const std::string& subfolder, const std::string& name);

// The worked examples of golden_examples.json, as they stand there; none when it is absent.
std::vector<nlohmann::json> golden_examples();

// Elements that nothing writes by chance: NaN.
Tensor poisoned(DType dtype, const Dims& shape);

// Same shape, and |actual - expected| ≤ atol + rtol·|expected| everywhere; NaN and infinities are
// equal to themselves alone.
::testing::AssertionResult close(const TensorView& actual, const TensorView& expected, double rtol,
                                 double atol);

// How far f32 may be from f64, from the sizes of what it worked on.
//
// With u = eps/2, A the largest Σ|scale·q·k| and M the largest |S| of an attended pair, to first
// order: a score is off by (D + 2)·u·A from the product and the scale, 4·u·A from softcap, and u·M
// from the bias. Subtracting the maximum costs 2·M·u and exp 2·u, so an exponential is off by
// ρ = u·((D + 6)·A + 3·M + 2), relatively. A weight is a quotient of such by a sum of Tk: 2·ρ +
// (Tk + 1)·u. Weighing Tk values and rounding add (Tk + 2)·u. In all, for values up to max|V|:
//
//   |δ| ≤ eps·((D + 6)·A + 3·M + Tk + 4)·max|V|
//
// Semantics 12 is stated against the plain computation instead; `over_plain` is its other term,
// eps·(8 + max|S|)·max|V|.
struct F32Bounds {
  double scores = 0;      // of each score, up to the masked ones
  double weights = 0;     // of each weight
  double out = 0;         // of each output, for the plain computation
  double over_plain = 0;  // of each output, on top of 2 × the plain computation's error
};

// `masked` is the f64 stage of that name, [B, Hq, Tq, Tk]: it tells which pairs are attended.
F32Bounds f32_bounds(const TensorView& query, const TensorView& key, const TensorView& value,
                     const TensorView& masked, double scale);

// max|a - b| over all elements, or over those that `masked` shows.
double max_difference(const TensorView& a, const TensorView& b,
                      const TensorView& masked = TensorView());

}  // namespace qkv::testing
