#include "tests/conformance_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <stdexcept>

#include "qkv/npy.h"

namespace qkv::testing {
namespace {

namespace fs = std::filesystem;

using Index = std::vector<std::int64_t>;

// Calls fn for every index of a shape, the last axis fastest.
void for_each_index(const Dims& shape, const std::function<void(const Index&)>& fn) {
  if (element_count(shape) == 0) return;
  Index index(static_cast<std::size_t>(shape.rank()), 0);
  for (;;) {
    fn(index);
    int d = shape.rank() - 1;
    for (; d >= 0; --d) {
      if (++index[static_cast<std::size_t>(d)] < shape[d]) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
    if (d < 0) return;
  }
}

std::map<std::string, FileTensor> load_arrays(const fs::path& folder, const nlohmann::json& list) {
  std::map<std::string, FileTensor> arrays;
  for (const auto& entry : list) {
    FileTensor array = load_npy(folder / entry.at("file").get<std::string>());
    const Dims shape(entry.at("shape").get<std::vector<std::int64_t>>());
    if (!(array.view.shape() == shape)) throw std::runtime_error("case.json and .npy disagree");
    arrays.emplace(entry.at("name").get<std::string>(), std::move(array));
  }
  return arrays;
}

}  // namespace

fs::path conformance_folder() {
  const char* shared = std::getenv("QKV_SHARED");
  const fs::path root = shared != nullptr && *shared != '\0'
                            ? fs::path(shared)
                            : fs::path(QKV_SOURCE_DIR).parent_path() / "shared";
  return root / "conformance";
}

std::vector<std::string> case_names(const std::string& subfolder) {
  // Runs before main, where an exception would end the whole test program: no throwing overloads.
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(conformance_folder() / subfolder, error), end; !error && it != end;
       it.increment(error)) {
    if (fs::exists(it->path() / "case.json", error)) names.push_back(it->path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void PrintTo(const CaseParam& param, std::ostream* out) {
  *out << param.subfolder << '/' << param.name << " through " << param.engine.name;
}

std::vector<CaseParam> case_params(const std::string& subfolder) {
  std::vector<CaseParam> params;
  for (const Engine& engine : engines()) {
    for (const std::string& name : case_names(subfolder)) {
      params.push_back({subfolder, name, engine});
    }
  }
  return params;
}

std::string param_name(const ::testing::TestParamInfo<CaseParam>& info) {
  return info.param.name + "__" + info.param.engine.name;
}

TensorView ConformanceCase::input(const std::string& name) const {
  const auto found = inputs.find(name);
  return found == inputs.end() ? TensorView() : found->second.view;
}

ConformanceCase load_case(const std::string& subfolder, const std::string& name) {
  const fs::path folder = conformance_folder() / subfolder / name;
  std::ifstream file(folder / "case.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  ConformanceCase result;
  result.op = json.at("op");
  result.attributes = json.at("attributes");
  result.inputs = load_arrays(folder, json.at("inputs"));
  result.outputs = load_arrays(folder, json.at("outputs"));
  result.rtol = json.at("rtol");
  result.atol = json.at("atol");
  return result;
}

std::vector<nlohmann::json> golden_examples() {
  // Also before main.
  std::ifstream file(conformance_folder() / "golden_examples.json");
  const auto document = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("examples")) return {};
  return document["examples"].get<std::vector<nlohmann::json>>();
}

Tensor poisoned(DType dtype, const Dims& shape) {
  Tensor result(dtype, shape);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  copy(TensorView(&nan, DType::f32, {}).broadcast_to(shape), result);
  return result;
}

::testing::AssertionResult close(const TensorView& actual, const TensorView& expected, double rtol,
                                 double atol) {
  if (!(actual.shape() == expected.shape())) {
    return ::testing::AssertionFailure()
           << "shape " << to_string(actual.shape()) << ", expected " << to_string(expected.shape());
  }
  std::string first;
  int wrong = 0;
  for_each_index(expected.shape(), [&](const Index& index) {
    const double a = actual.at(index), e = expected.at(index);
    if (a == e || (std::isnan(a) && std::isnan(e))) return;
    if (std::isfinite(e) && std::abs(a - e) <= atol + rtol * std::abs(e)) return;
    if (wrong++ == 0) {
      first =
          to_string(Dims(index)) + " is " + std::to_string(a) + ", expected " + std::to_string(e);
    }
  });
  if (wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << wrong << " of " << expected.size() << " elements differ; " << first;
}

F32Bounds f32_bounds(const TensorView& query, const TensorView& key, const TensorView& value,
                     const TensorView& masked, double scale) {
  const std::int64_t D = query.dim(3), Dv = value.dim(3), Tk = key.dim(2);
  const std::int64_t group = key.dim(1) == 0 ? 1 : query.dim(1) / key.dim(1);
  double A = 0, M = 0, largest_value = 0;
  for_each_index(masked.shape(), [&](const Index& at) {
    const double score = masked.at(at);
    if (score == -std::numeric_limits<double>::infinity()) return;
    const std::int64_t b = at[0], h = at[1], i = at[2], j = at[3];
    double size = 0;
    for (std::int64_t d = 0; d < D; ++d) {
      size += std::abs(scale * query.at({b, h, i, d}) * key.at({b, h / group, j, d}));
    }
    A = std::max(A, size);
    M = std::max(M, std::abs(score));
    for (std::int64_t d = 0; d < Dv; ++d) {
      largest_value = std::max(largest_value, std::abs(value.at({b, h / group, j, d})));
    }
  });
  constexpr double eps = std::numeric_limits<float>::epsilon();
  const double width = static_cast<double>(D), tokens = static_cast<double>(Tk);
  F32Bounds bounds;
  bounds.scores = eps / 2 * ((width + 6) * A + M);
  bounds.weights = eps * ((width + 6) * A + 3 * M + tokens + 4);
  bounds.out = bounds.weights * largest_value;
  bounds.over_plain = eps * (8 + M) * largest_value;
  return bounds;
}

double max_difference(const TensorView& a, const TensorView& b, const TensorView& masked) {
  double largest = 0;
  for_each_index(a.shape(), [&](const Index& index) {
    if (masked.has_value() && masked.at(index) == -std::numeric_limits<double>::infinity()) return;
    const double difference = std::abs(a.at(index) - b.at(index));
    // A NaN is as far away as can be, and std::max would drop it.
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                     : std::max(largest, difference);
  });
  return largest;
}

}  // namespace qkv::testing
