// qkv._core.VisionModel: a whole vision transformer. For users: python/qkv/_vision.py.

#include "qkv/vision.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "interrupt.h"
#include "models/vision.h"
#include "options.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

PrepareOptions read_options(nb::handle storage) {
  try {
    return {.storage = read_storage(storage)};
  } catch (const Error& error) {
    rethrow_as("qkv.ViT", error);
  }
}

class Vision {
 public:
  Vision(const std::string& folder, std::optional<std::int64_t> heads, nb::handle storage)
      : Vision(folder, heads, read_options(storage)) {}

  nb::object forward(nb::handle pixels, nb::handle out, nb::handle threads) const {
    try {
      if (pixels.is_none()) refuse_type("pixels", "an array", "None");
      const Input input = read_array("pixels", pixels);
      if (!is_float(input.view.dtype())) {
        refuse_type("pixels", "dtype f32, f64, f16 or bf16", name_of(input.view.dtype()));
      }
      if (input.view.rank() != 4) {
        refuse_value("pixels", "4 dimensions [B, C, H, W]",
                     "shape " + to_string(input.view.shape()));
      }
      VisionOptions options;
      options.threads = read_threads(threads);
      Output made;
      Borrowed lent;
      if (out.is_none()) {
        made = Output(framework_of(pixels), input.view.dtype(),
                      Dims{input.view.dim(0), model_.classes()});
      } else {
        lent = borrow_output("out", out);
      }
      {
        const nb::gil_scoped_release unlocked;
        const SignalWatch watch;
        model_.forward(input.view, out.is_none() ? made.view() : lent.view, options);
      }
      return out.is_none() ? made.take() : nb::borrow(out);
    } catch (const Error& error) {
      rethrow_as("qkv.ViT", error);
    }
  }

  std::int64_t classes() const { return model_.classes(); }
  std::vector<std::int64_t> image() const {
    const Dims dims = model_.image();
    return {dims.begin(), dims.end()};
  }
  const std::vector<std::string>& labels() const { return labels_; }
  const std::string& origin() const { return origin_; }
  std::string plan(std::int64_t B) const { return to_string(model_.plan(B)); }

 private:
  Vision(const std::string& folder, std::optional<std::int64_t> heads,
         const PrepareOptions& options)
      : Vision(load_vision(folder, heads), options) {}
  Vision(VisionModel&& loaded, const PrepareOptions& options)
      : model_(loaded.weights, options),
        labels_(std::move(loaded.labels)),
        origin_(loaded.origin) {}

  PreparedVision model_;
  std::vector<std::string> labels_;
  std::string origin_;
};

}  // namespace

void bind_vision(nb::module_& module) {
  nb::class_<Vision>(module, "VisionModel")
      .def(nb::init<const std::string&, std::optional<std::int64_t>, nb::handle>(),
           nb::arg("folder"), nb::arg("heads").none(), nb::arg("storage").none())
      .def("forward", &Vision::forward, nb::arg("pixels").none(), nb::arg("out").none(),
           nb::arg("threads").none())
      .def("plan", &Vision::plan, nb::arg("batch"))
      .def_prop_ro("classes", &Vision::classes)
      .def_prop_ro("image", &Vision::image)
      .def_prop_ro("labels", &Vision::labels)
      .def_prop_ro("origin", &Vision::origin);
}

}  // namespace qkv::python
