// qkv._core.explain_example, explain_attention: steps as data. For users: python/qkv/_explain.py.

#include "explain.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "explain/explain.h"
#include "explain/writers/writer.h"
#include "options.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

// Large explanations take a while to be handed over, too.
void look_at_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::tuple to_python(const Step& step, Framework framework) {
  look_at_signals();
  Output array(framework, step.value->dtype(), step.value->shape());
  copy(step.value->view(), array.view());
  nb::dict words;
  for (const Language language : kLanguages) {
    words[nb::cast(code_of(language))] =
        nb::make_tuple(title_of(step, language), meaning_of(step, language));
  }
  return nb::make_tuple(step.name, step.formula, array.take(), step.axes, step.rows, step.cols,
                        step.shares, words);
}

nb::dict example(nb::handle name) {
  try {
    const std::vector<std::string>& known = example_names();
    std::string names;
    for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
    const std::string given = nb::str(name).c_str();
    for (const std::string& one : known) {
      if (one == given)
        return python::to_python(interruptibly(explain_example, one), Framework::numpy);
    }
    refuse_value("source", "arrays, a block or one of " + names, given);
  } catch (const Error& error) {
    rethrow_as("qkv.explain", error);
  }
}

nb::dict attention(nb::handle query, nb::handle key, nb::handle value, const nb::dict& given,
                   const std::vector<std::string>& tokens) {
  try {
    OptionArguments arguments(option_handles(given));
    arguments.options.accumulate = Accumulate::f64;
    const std::pair<const char*, nb::handle> arrays[] = {
        {"query", query}, {"key", key}, {"value", value}};
    Input inputs[3];
    for (int i = 0; i < 3; ++i) {
      const auto& [name, array] = arrays[i];
      if (array.is_none()) refuse_type(name, "an array", "None");
      inputs[i] = read_floats(name, array);
    }
    return python::to_python(interruptibly(explain_attention, inputs[0].view, inputs[1].view,
                                           inputs[2].view, arguments.options, tokens),
                             framework_of(query));
  } catch (const Error& error) {
    rethrow_as("qkv.explain", error);
  }
}

}  // namespace

nb::dict to_python(const Explanation& explanation, Framework framework) {
  nb::dict title, intro, text;
  for (const Language language : kLanguages) {
    const nb::object code = nb::cast(code_of(language));
    title[code] = nb::cast(message(language, explanation.text + ".title"));
    intro[code] = nb::cast(message(language, explanation.text + ".intro"));
    WriteOptions options;
    options.language = language;
    look_at_signals();
    text[code] = nb::cast(write_text(explanation, options));
  }
  nb::list steps;
  for (const Step& step : explanation.steps) steps.append(to_python(step, framework));
  nb::dict result;
  result["block"] = nb::cast(explanation.block);
  result["title"] = title;
  result["intro"] = intro;
  result["text"] = text;
  result["steps"] = steps;
  return result;
}

void bind_explain(nb::module_& module) {
  module.def("explain_example", &example, nb::arg("name").none());
  module.def("explain_attention", &attention, nb::arg("query").none(), nb::arg("key").none(),
             nb::arg("value").none(), nb::arg("options"), nb::arg("tokens"));
}

}  // namespace qkv::python
