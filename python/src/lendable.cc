#include "lendable.h"

#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

// Whether an attribute, or what a method without arguments returns, is True.
bool is_true(PyObject* found) {
  if (found == nullptr) PyErr_Clear();
  const nb::object held = nb::steal(found);
  return held.is(Py_True);
}

bool attribute_is_true(nb::handle object, PyObject*& place, const char* name) {
  return is_true(PyObject_GetAttr(object.ptr(), interned(place, name)));
}

bool method_says_true(nb::handle object, PyObject*& place, const char* name) {
  return is_true(PyObject_CallMethodNoArgs(object.ptr(), interned(place, name)));
}

// Results carry no gradient, so a tensor that asks for one is refused, unless gradients are off
// anyway. (PyTorch itself only refuses to lend such a tensor in one of its two ways to do it.)
void refuse_gradient(std::string_view name, nb::handle object) {
  static PyObject* name_of_it = nullptr;
  if (!attribute_is_true(object, name_of_it, "requires_grad")) return;
  if (!nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")())) return;
  refuse_value(name,
               "a tensor without gradient, since no gradients are computed here yet (.detach() it, "
               "or call under torch.no_grad())",
               "requires_grad=True");
}

// The same for forward mode, which no_grad() does not turn off. A look into a dict where nobody
// uses it: this stands in every call.
void refuse_tangent(std::string_view name, nb::handle object) {
  static PyObject* level_name = nullptr;
  static const nb::handle module =
      nb::module_::import_("torch.autograd.forward_ad").release();  // held for good
  PyObject* level =
      PyDict_GetItem(PyModule_GetDict(module.ptr()), interned(level_name, "_current_level"));
  if (level == nullptr || PyLong_AsLong(level) < 0) return;
  if (module.attr("unpack_dual")(object).attr("tangent").is_none()) return;
  refuse_value(name,
               "a tensor without tangent, since no derivatives are computed here yet "
               "(forward_ad.unpack_dual it)",
               "one of forward-mode AD");
}

}  // namespace

void refuse_negative(std::string_view name, nb::handle object) {
  static PyObject* name_of_it = nullptr;
  if (method_says_true(object, name_of_it, "is_neg")) {
    refuse_value(name, "a tensor whose elements are what stands in memory (.resolve_neg() it)",
                 "one with its negative bit set");
  }
}

void refuse_derivatives(std::string_view name, nb::handle object) {
  refuse_gradient(name, object);
  refuse_tangent(name, object);
}

void refuse_masked(std::string_view name, nb::handle object) {
  for (nb::handle base : nb::borrow<nb::tuple>(Py_TYPE(object.ptr())->tp_mro)) {
    const auto* type = reinterpret_cast<const PyTypeObject*>(base.ptr());
    if (std::string_view(type->tp_name) != "MaskedArray") continue;
    const nb::object mask = nb::getattr(object, "mask", nb::none());
    if (mask.is_none()) return;  // another library's class of that name
    if (nb::cast<bool>(nb::module_::import_("numpy").attr("any")(mask).attr("item")())) {
      refuse_type(name, "an array all of whose elements count (.filled(…) it)",
                  "a MaskedArray with some that are masked");
    }
    return;
  }
}

std::string why_not_lent(nb::handle tensor) {
  const auto says = [&](const char* attribute) {
    const nb::object value = tensor.attr(attribute);
    return std::string(nb::str(nb::handle(value)).c_str());
  };
  try {
    const nb::object wrappers = nb::module_::import_("torch._C").attr("_functorch");
    if (nb::cast<bool>(wrappers.attr("is_batchedtensor")(tensor)))
      return "a tensor inside torch.vmap";
    if (nb::cast<bool>(wrappers.attr("is_functorch_wrapped_tensor")(tensor))) {
      return "a tensor inside a transform of torch.func";
    }
    if (nb::cast<bool>(tensor.attr("is_nested"))) return "a nested tensor";
    if (says("layout") != "torch.strided") return "a tensor of layout " + says("layout");
    if (says("device") != "cpu") return "a tensor on the device " + says("device");
  } catch (nb::python_error&) {  // another version of PyTorch
  }
  return "";
}

}  // namespace qkv::python
