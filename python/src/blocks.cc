// qkv._core.Block: a block of a model with its weights. For users: python/qkv/_blocks.py.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "explain.h"
#include "explain/explain.h"
#include "interrupt.h"
#include "models/block_file.h"
#include "models/prepared_block.h"
#include "options.h"
#include "qkv/layers.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

// The arrays of a dict under their names; whatever owns them is held as long as the file is.
WeightFile file_of(const nb::dict& arrays) {
  auto held = std::make_shared<std::vector<Input>>();
  std::vector<NamedTensor> tensors;
  for (const auto& [key, value] : arrays) {
    const std::string name = nb::str(key).c_str();
    held->push_back(keep_array(name, value));
    if (held->back().view.has_value()) tensors.push_back({name, held->back().view});
  }
  return {"weights", tensors, std::move(held)};
}

// A function object of several: one for each kind of block.
template <typename... Fns>
struct Overloaded : Fns... {
  using Fns::operator()...;
};
template <typename... Fns>
Overloaded(Fns...) -> Overloaded<Fns...>;

Explanation explain_block(const BlockWeights& weights, const TensorView& x,
                          const TensorView& memory, const BlockOptions& options,
                          const TokenLabels& tokens) {
  return std::visit(
      Overloaded{[&](const TransformerWeights& w) {
                   return explain_transformer(w, x, memory, options, tokens);
                 },
                 [&](const VitWeights& w) { return explain_vit(w, x, options, tokens); },
                 [&](const GptWeights& w) { return explain_gpt(w, x, options, tokens); },
                 [&](const DetectorWeights& w) { return explain_detector(w, x, options); },
                 [&](const PsaBlockWeights& w) { return explain_psa_block(w, x, options); },
                 [&](const C2psaWeights& w) { return explain_c2psa(w, x, options); }},
      weights);
}

class Block {
 public:
  Block(std::string class_name, const std::string& kind, nb::handle weights,
        const std::string& prefix, nb::handle heads, double attn_ratio, double bn_eps,
        double norm_eps)
      : name_("qkv." + class_name) {
    LoadOptions options{prefix, std::nullopt, attn_ratio, bn_eps, norm_eps};
    const bool dict = nb::isinstance<nb::dict>(weights);
    try {
      if (!heads.is_none()) {
        options.heads = read_integer("num_heads", heads);
        if (*options.heads < 1) {
          refuse_value("num_heads", "1 or more", std::to_string(*options.heads));
        }
      }
      const WeightFile file = dict ? file_of(nb::borrow<nb::dict>(weights))
                                   : WeightFile::open(nb::cast<std::string>(nb::str(weights)));
      loaded_ = load_block(kind, file, options);
      prepared_.emplace(loaded_.weights, false);
      if (std::holds_alternative<TransformerWeights>(loaded_.weights)) {
        prepared_cross_.emplace(loaded_.weights, true);
      }
    } catch (const Error& error) {
      const bool in_file = !dict && error.where() != "qkv";
      throw Error(error.kind(), in_file ? error.where() : name_, error.subject(), error.expected(),
                  error.found());
    }
  }

  // The output; (output, [(name, array) …]) with the steps that `steps` asks for: "weights" or
  // "all".
  nb::object forward(nb::handle x, nb::handle memory, const nb::dict& options, nb::handle out,
                     nb::handle steps, nb::handle threads) const {
    try {
      return run(x, memory, options, out, steps, threads);
    } catch (const Error& error) {
      rethrow_as(name_, error);
    }
  }

  nb::dict explain(nb::handle x, nb::handle memory, const nb::dict& given,
                   const TokenLabels& tokens) const {
    try {
      const OptionArguments arguments(option_handles(given));
      if (x.is_none()) refuse_type("x", "an array", "None");
      const Input input = read_floats("x", x), other = read_floats("memory", memory);
      BlockOptions options;
      options.attention = arguments.options;
      options.attention.accumulate = Accumulate::f64;
      return to_python(
          interruptibly(explain_block, loaded_.weights, input.view, other.view, options, tokens),
          framework_of(x));
    } catch (const Error& error) {
      rethrow_as(name_, error);
    }
  }

  std::string plan(const std::vector<std::int64_t>& x,
                   const std::optional<std::vector<std::int64_t>>& memory, const nb::dict& given,
                   nb::handle threads) const {
    try {
      const OptionArguments arguments(option_handles(given));
      BlockOptions options;
      options.attention = arguments.options;
      options.threads = read_threads(threads);
      if (!memory) return to_string(prepared_->plan(Dims(x), std::nullopt, options));
      if (!prepared_cross_)
        refuse_value("memory", "None: the block attends to its own input", "one");
      return to_string(prepared_cross_->plan(Dims(x), Dims(*memory), options));
    } catch (const Error& error) {
      rethrow_as(name_, error);
    }
  }

  const BlockWeights& weights() const { return loaded_.weights; }
  std::int64_t heads() const { return block_heads(loaded_.weights); }
  const std::string& prefix() const { return loaded_.prefix; }

 private:
  nb::object run(nb::handle x, nb::handle memory, const nb::dict& given, nb::handle out,
                 nb::handle steps, nb::handle threads) const {
    const OptionArguments arguments(option_handles(given));
    if (x.is_none()) refuse_type("x", "an array", "None");
    const Input input = read_floats("x", x), other = read_floats("memory", memory);
    const Framework framework = framework_of(x);
    const Dims shape = block_output_shape(loaded_.weights, input.view.shape());
    Output made;
    Borrowed lent;
    if (out.is_none()) {
      made = Output(framework, input.view.dtype(), shape);
    } else {
      lent = borrow_output("out", out);
    }
    BlockOptions options;
    options.attention = arguments.options;
    options.threads = read_threads(threads);
    nb::list shown;
    if (!steps.is_none()) options.observer = observer(framework, steps, shown);
    {
      const nb::gil_scoped_release unlocked;
      const SignalWatch watch;
      const MutableTensorView& to = out.is_none() ? made.view() : lent.view;
      if (options.observer) {  // the steps are those of the plain way
        block_forward(loaded_.weights, input.view, other.view, to, options);
      } else {
        const bool cross = other.view.has_value() && prepared_cross_.has_value();
        (cross ? *prepared_cross_ : *prepared_).forward(input.view, other.view, to, options);
      }
    }
    nb::object result = out.is_none() ? made.take() : nb::borrow(out);
    if (steps.is_none()) return result;
    return nb::make_tuple(result, shown);
  }

  static StepObserver observer(Framework framework, nb::handle steps, nb::list& shown) {
    const bool all = read_word("steps", steps, {"weights", "all"}) == 1;
    return [=, &shown](std::string_view step, const TensorView& value) {
      const bool weights = step == "weights" || step.ends_with(".weights");
      if (!all && !weights) return;
      const nb::gil_scoped_acquire locked;
      Output kept(framework, value.dtype(), value.shape());
      copy(value, kept.view());
      shown.append(nb::make_tuple(nb::cast(step), kept.take()));
    };
  }

  std::string name_;
  Loaded<BlockWeights> loaded_;
  // The same, in the order that the products read them in: what calls run on.
  std::optional<PreparedBlock> prepared_, prepared_cross_;
};

// An encoder layer around a block's attention. `parts`: norm1.weight, norm1.bias, norm2.…,
// linear1.weight, …, and perhaps scale1 and scale2.
class EncoderLayer {
 public:
  EncoderLayer(const Block& attention, const nb::dict& parts, const std::string& activation,
               bool norm_first, double eps, nb::handle storage) {
    try {
      EncoderLayerWeights w;
      if (const auto* vit = std::get_if<VitWeights>(&attention.weights())) {
        w.attention = *vit;
      } else {
        w.attention = std::get<TransformerWeights>(attention.weights());
      }
      std::vector<Input> held;  // until they are copied
      const auto part = [&](const char* name) {
        if (!parts.contains(name)) return TensorView();
        held.push_back(keep_array(name, parts[name]));
        return held.back().view;
      };
      w.norm1 = {part("norm1.weight"), part("norm1.bias"), eps};
      w.norm2 = {part("norm2.weight"), part("norm2.bias"), eps};
      w.linear1 = {part("linear1.weight"), part("linear1.bias")};
      w.linear2 = {part("linear2.weight"), part("linear2.bias")};
      w.scale1 = part("scale1");
      w.scale2 = part("scale2");
      w.activation = read_activation(activation);
      w.norm_first = norm_first;
      prepared_.emplace(w, PrepareOptions{.storage = read_storage(storage)});
    } catch (const Error& error) {
      rethrow_as(kName, error);
    }
  }

  nb::object forward(nb::handle x, const nb::dict& given, nb::handle out,
                     nb::handle threads) const {
    try {
      const OptionArguments arguments(option_handles(given));
      if (x.is_none()) refuse_type("x", "an array", "None");
      const Input input = read_floats("x", x);
      BlockOptions options;
      options.attention = arguments.options;
      options.threads = read_threads(threads);
      Output made;
      Borrowed lent;
      if (out.is_none()) {
        made = Output(framework_of(x), input.view.dtype(), input.view.shape());
      } else {
        lent = borrow_output("out", out);
      }
      {
        const nb::gil_scoped_release unlocked;
        const SignalWatch watch;
        prepared_->forward(input.view, out.is_none() ? made.view() : lent.view, options);
      }
      return out.is_none() ? made.take() : nb::borrow(out);
    } catch (const Error& error) {
      rethrow_as(kName, error);
    }
  }

 private:
  static constexpr std::string_view kName = "qkv.EncoderLayer";

  static Activation read_activation(std::string_view name) {
    std::string known;
    for (const Activation one : {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                 Activation::quick_gelu, Activation::silu, Activation::none}) {
      if (name_of(one) == name) return one;
      known += (known.empty() ? "" : ", ") + std::string(name_of(one));
    }
    refuse_value("activation", known, name);
  }

  std::optional<PreparedEncoderLayer> prepared_;
};

}  // namespace

void bind_blocks(nb::module_& module) {
  nb::class_<Block>(module, "Block")
      .def(nb::init<std::string, const std::string&, nb::handle, const std::string&, nb::handle,
                    double, double, double>(),
           nb::arg("class_name"), nb::arg("kind"), nb::arg("weights"), nb::arg("prefix"),
           nb::arg("heads").none(), nb::arg("attn_ratio"), nb::arg("bn_eps"), nb::arg("norm_eps"))
      .def("forward", &Block::forward, nb::arg("x").none(), nb::arg("memory").none(),
           nb::arg("options"), nb::arg("out").none(), nb::arg("steps").none(),
           nb::arg("threads").none())
      .def("explain", &Block::explain, nb::arg("x").none(), nb::arg("memory").none(),
           nb::arg("options"), nb::arg("tokens"))
      .def("plan", &Block::plan, nb::arg("x"), nb::arg("memory").none(), nb::arg("options"),
           nb::arg("threads").none())
      .def_prop_ro("heads", &Block::heads)
      .def_prop_ro("prefix", &Block::prefix);
  nb::class_<EncoderLayer>(module, "EncoderLayer")
      .def(nb::init<const Block&, const nb::dict&, const std::string&, bool, double, nb::handle>(),
           nb::arg("attention"), nb::arg("parts"), nb::arg("activation"), nb::arg("norm_first"),
           nb::arg("eps"), nb::arg("storage").none())
      .def("forward", &EncoderLayer::forward, nb::arg("x").none(), nb::arg("options"),
           nb::arg("out").none(), nb::arg("threads").none());
}

}  // namespace qkv::python
