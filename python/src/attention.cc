// qkv._core.attention: arguments of Python become options and stages of attention_forward. What the
// function means for a user stands in python/qkv/_attention.py.

#include "qkv/attention.h"

#include <string>
#include <utility>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "interrupt.h"
#include "options.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

// Where the axes [B, H, T, D] stand in a layout. Each of them is its own inverse.
enum class Layout : std::uint8_t { bhtd, bthd, bhdt };

constexpr std::string_view kAxes[] = {"[B, H, T, D]", "[B, T, H, D]", "[B, H, D, T]"};

template <typename View>
View reorder(const View& view, Layout layout) {
  switch (layout) {
    case Layout::bthd: return view.transpose(1, 2);
    case Layout::bhdt: return view.transpose(2, 3);
    default: return view;
  }
}

Dims reorder(Dims shape, Layout layout) {
  if (layout == Layout::bthd) std::swap(shape[1], shape[2]);
  if (layout == Layout::bhdt) std::swap(shape[2], shape[3]);
  return shape;
}

TensorView read_tensor(std::string_view name, nb::handle array, Layout layout, Input& input) {
  if (array.is_none()) refuse_type(name, "an array", "None");
  input = read_floats(name, array);
  if (input.view.rank() != 4) {
    refuse_value(name, "4 dimensions " + std::string(kAxes[static_cast<int>(layout)]),
                 "shape " + to_string(input.view.shape()));
  }
  return reorder(input.view, layout);
}

[[noreturn]] void rethrow(const Error& error, Layout layout) {
  std::string found = error.found();
  const std::string& subject = error.subject();
  if (layout != Layout::bhtd &&
      (subject == "query" || subject == "key" || subject == "value" || subject == "out")) {
    found += " (both in the order [B, H, T, D]; the layout is " +
             std::string(kAxes[static_cast<int>(layout)]) + ")";
  }
  throw Error(error.kind(), "qkv.attention", python_name(subject), error.expected(), found);
}

// Everything that one call borrows and makes.
class Call {
 public:
  // Reads the tensors and makes the outputs that were not given.
  Call(nb::handle query, nb::handle key, nb::handle value, const OptionHandles& options,
       Layout layout)
      : framework_(framework_of(query)),
        layout_(layout),
        query_(read_tensor("query", query, layout, tensors_[0])),
        key_(read_tensor("key", key, layout, tensors_[1])),
        value_(read_tensor("value", value, layout, tensors_[2])),
        arguments_(options) {}

  bool has_equal_heads() const {
    return query_.dim(1) == key_.dim(1) && query_.dim(1) == value_.dim(1);
  }

  void align_top_left() { arguments_.options.causal = Causal::top_left; }

  void prepare_outputs(nb::handle out, nb::handle return_weights, nb::handle return_lse) {
    const std::int64_t B = query_.dim(0), Hq = query_.dim(1), Tq = query_.dim(2), Tk = key_.dim(2);
    const DType dtype = query_.dtype();
    if (!return_weights.is_none() && !return_weights.is(Py_False)) {
      Dims shape{B, Hq, Tq, Tk};
      if (!return_weights.is(Py_True)) {
        rows_ = read_rows("return_weights", return_weights);
        stages_.rows = rows_.view;
        shape = {stages_.rows.rank() > 0 ? stages_.rows.dim(0) : 0, Tk};
      }
      weights_ = Output(framework_, dtype, shape);
      stages_.weights = weights_.view();
    }
    if (read_bool("return_lse", return_lse)) {
      lse_ = Output(framework_, dtype == DType::f64 ? DType::f64 : DType::f32, {B, Hq, Tq});
      stages_.lse = lse_.view();
    }
    if (out.is_none()) {
      out_ = Output(framework_, dtype, reorder(Dims{B, Hq, Tq, value_.dim(3)}, layout_));
      out_view_ = reorder(out_.view(), layout_);
      return;
    }
    given_out_ = nb::borrow(out);
    lent_out_ = borrow_output("out", out);
    if (lent_out_.view.rank() != 4) {
      refuse_value("out", "4 dimensions " + std::string(kAxes[static_cast<int>(layout_)]),
                   "shape " + to_string(lent_out_.view.shape()));
    }
    out_view_ = reorder(lent_out_.view, layout_);
  }

  void run(int threads) {
    arguments_.options.threads = threads;
    const nb::gil_scoped_release unlocked;
    const SignalWatch watch;
    attention_forward(query_, key_, value_, out_view_, arguments_.options, stages_);
  }

  // out, (out, weights), (out, lse) or (out, weights, lse).
  nb::object results() {
    nb::object out = given_out_.is_valid() ? given_out_ : out_.take();
    const bool weights = stages_.weights.has_value(), lse = stages_.lse.has_value();
    if (weights && lse) return nb::make_tuple(out, weights_.take(), lse_.take());
    if (weights) return nb::make_tuple(out, weights_.take());
    if (lse) return nb::make_tuple(out, lse_.take());
    return out;
  }

 private:
  Input tensors_[3], rows_;
  Framework framework_;
  Layout layout_;
  TensorView query_, key_, value_;
  OptionArguments arguments_;
  AttentionStages stages_;
  Output out_, weights_, lse_;
  nb::object given_out_;
  Borrowed lent_out_;
  MutableTensorView out_view_;
};

nb::object attention(nb::handle query, nb::handle key, nb::handle value, nb::handle mask,
                     nb::handle bias, nb::handle causal, nb::handle offset, nb::handle window,
                     nb::handle prefix, nb::handle scale, nb::handle softcap, nb::handle alibi,
                     nb::handle key_lengths, nb::handle query_starts, nb::handle key_starts,
                     nb::handle sinks, nb::handle layout, nb::handle out, nb::handle return_weights,
                     nb::handle return_lse, nb::handle threads) {
  Layout order = Layout::bhtd;
  try {
    order = static_cast<Layout>(read_word("layout", layout, {"bhtd", "bthd", "bhdt"}));
    const OptionHandles options{mask,         bias,       causal,  offset, window,
                                prefix,       scale,      softcap, alibi,  key_lengths,
                                query_starts, key_starts, sinks};
    Call call(query, key, value, options, order);
    call.prepare_outputs(out, return_weights, return_lse);
    call.run(read_threads(threads));
    return call.results();
  } catch (const Error& error) {
    rethrow(error, error.where() == "qkv" ? Layout::bhtd : order);
  }
}

// False where PyTorch's own calls would be dispatched to someone else (a mode), where autocast
// would change the arguments, and where one is not a plain tensor: this is not the place to compute
// it.
bool is_plain_torch(nb::handle query, nb::handle key, nb::handle value) {
  static const nb::handle tensor = nb::getattr(nb::module_::import_("torch"), "Tensor").release();
  if (!query.type().is(tensor) || !key.type().is(tensor) || !value.type().is(tensor)) return false;
  static const nb::handle modes =
      nb::getattr(nb::module_::import_("torch._C"), "_len_torch_dispatch_stack", nb::none())
          .release();
  if (modes.is_none()) return false;
  const nb::object depth = nb::steal(PyObject_CallNoArgs(modes.ptr()));
  if (!depth.is_valid()) PyErr_Clear();
  if (!depth.is_valid() || PyLong_AsLong(depth.ptr()) != 0) return false;
  static const nb::handle autocast =
      nb::getattr(nb::module_::import_("torch"), "is_autocast_enabled").release();
  static PyObject* const cpu = PyUnicode_InternFromString("cpu");
  const nb::object casts = nb::steal(PyObject_CallOneArg(autocast.ptr(), cpu));
  if (!casts.is_valid()) PyErr_Clear();
  return casts.is(Py_False);
}

// PyTorch's SDPA in its plainest form: four dimensions, equal heads, no mask. None where the call
// is not that, or is refused: the caller has another way, which says why.
nb::object plain_attention(nb::handle query, nb::handle key, nb::handle value, bool is_causal,
                           nb::handle scale) {
  if (!is_plain_torch(query, key, value)) return nb::none();
  try {
    Call call(query, key, value, OptionHandles{.scale = scale}, Layout::bhtd);
    if (!call.has_equal_heads()) return nb::none();
    if (is_causal) call.align_top_left();
    call.prepare_outputs(Py_None, Py_False, Py_False);
    call.run(0);
    return call.results();
  } catch (const Error&) {
    return nb::none();
  }
}

}  // namespace

void bind_attention(nb::module_& module) {
  // None is for us to judge, wherever it stands.
  module.def("attention", &attention, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value").none(), nb::arg("mask").none(), nb::arg("bias").none(),
             nb::arg("causal").none(), nb::arg("offset").none(), nb::arg("window").none(),
             nb::arg("prefix").none(), nb::arg("scale").none(), nb::arg("softcap").none(),
             nb::arg("alibi").none(), nb::arg("key_lengths").none(), nb::arg("query_starts").none(),
             nb::arg("key_starts").none(), nb::arg("sinks").none(), nb::arg("layout").none(),
             nb::arg("out").none(), nb::arg("return_weights").none(), nb::arg("return_lse").none(),
             nb::arg("threads").none(), "The engine behind qkv.attention, all arguments in order.");
  module.def("plain_attention", &plain_attention, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value").none(), nb::arg("is_causal"), nb::arg("scale").none(),
             "SDPA of plain tensors of PyTorch; None where it is not that.");
}

}  // namespace qkv::python
