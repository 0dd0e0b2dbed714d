// qkv._core.Tokenizer, Gpt, GptSession, Generator. For users: python/qkv/_gpt.py.

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "explain.h"
#include "explain/explain.h"
#include "interrupt.h"
#include "qkv/generate.h"
#include "qkv/gpt_model.h"
#include "qkv/tokenizer.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

using Ids = std::vector<std::int32_t>;

// str, whose lone surrogates are no text, or bytes.
std::string text_of(nb::handle text) {
  if (PyBytes_Check(text.ptr())) {
    return {PyBytes_AS_STRING(text.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(text.ptr()))};
  }
  if (!PyUnicode_Check(text.ptr())) refuse_type("text", "a str or bytes", class_name(text));
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

nb::bytes bytes_of(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string_view bytes = tokenizer.bytes(id);
  return nb::bytes(bytes.data(), bytes.size());
}

std::unique_ptr<GptModel> load(const std::filesystem::path& folder, nb::handle storage) {
  GptLoadOptions options;
  constexpr WeightStorage kinds[] = {WeightStorage::as_given, WeightStorage::f32,
                                     WeightStorage::f16, WeightStorage::bf16};
  if (!storage.is_none()) {
    options.storage = kinds[1 + read_word("storage", storage, {"f32", "f16", "bf16"})];
  }
  const nb::gil_scoped_release released;
  const SignalWatch watch;
  return std::make_unique<GptModel>(GptModel::load(folder, options));
}

std::unique_ptr<DecoderSession> make_session(const GptModel& model, std::int64_t capacity,
                                             nb::handle cache, nb::handle threads) {
  constexpr KVStorage kinds[] = {KVStorage::f32, KVStorage::f16, KVStorage::bf16, KVStorage::int8};
  DecoderSessionOptions options;
  options.capacity = capacity;
  options.storage = kinds[read_word("cache", cache, {"f32", "f16", "bf16", "int8"})];
  options.threads = read_threads(threads);
  return std::make_unique<DecoderSession>(model.decoder(), options);
}

nb::object append(DecoderSession& session, const Ids& tokens) {
  Output logits(Framework::numpy, DType::f32, {session.decoder().vocabulary()});
  {
    const nb::gil_scoped_release released;
    const SignalWatch watch;
    copy(session.append(tokens), logits.view());
  }
  return logits.take();
}

nb::object append_all(DecoderSession& session, const Ids& tokens) {
  Output logits(Framework::numpy, DType::f32,
                {static_cast<std::int64_t>(tokens.size()), session.decoder().vocabulary()});
  {
    const nb::gil_scoped_release released;
    const SignalWatch watch;
    session.append_all(tokens, logits.view());
  }
  return logits.take();
}

std::unique_ptr<Generator> make_generator(const GptModel& model, DecoderSession& session,
                                          const Ids& prompt, std::int64_t max_tokens,
                                          double temperature, std::int64_t top_k, double top_p,
                                          std::uint64_t seed, const std::vector<std::string>& stop,
                                          bool stop_at_end) {
  const nb::gil_scoped_release released;
  const SignalWatch watch;
  return std::make_unique<Generator>(
      model, session, prompt,
      GenerateOptions{{temperature, top_k, top_p, seed}, max_tokens, stop, stop_at_end});
}

std::optional<std::pair<std::int32_t, std::string>> next(Generator& generator) {
  std::optional<GeneratedToken> token;
  {
    const nb::gil_scoped_release released;
    const SignalWatch watch;
    token = generator.next();
  }
  if (!token) return std::nullopt;
  return std::pair{token->id, token->text};
}

nb::dict explain(const GptModel& model, const Ids& tokens, std::int64_t layer, std::int64_t cached,
                 const std::vector<std::string>& labels) {
  return to_python(interruptibly(explain_decoder, model.decoder(), model.weights(), tokens,
                                 DecoderPlace{layer, cached, 0}, labels),
                   Framework::numpy);
}

}  // namespace

void bind_gpt(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def_static("open", &Tokenizer::open)
      .def("encode", [](const Tokenizer& t, nb::handle text,
                        bool add_special) { return t.encode(text_of(text), add_special); })
      .def("decode", [](const Tokenizer& t, const Ids& ids,
                        bool skip_special) { return t.decode(ids, skip_special); })
      .def("bytes", &bytes_of)
      .def("find", &Tokenizer::find)
      .def("is_special", &Tokenizer::is_special)
      .def_prop_ro("size", &Tokenizer::size)
      .def_prop_ro("kind", [](const Tokenizer& t) { return std::string(t.kind()); });
  nb::class_<GptModel>(module, "Gpt")
      .def_static("load", &load, nb::arg("folder"), nb::arg("storage").none())
      .def("explain", &explain)
      .def_prop_ro("family", &GptModel::family)
      .def_prop_ro("tokenizer", &GptModel::tokenizer)
      .def_prop_ro("end_tokens", &GptModel::end_tokens)
      .def_prop_ro("description", &GptModel::describe)
      .def_prop_ro("vocabulary", [](const GptModel& m) { return m.decoder().vocabulary(); })
      .def_prop_ro("context", [](const GptModel& m) { return m.decoder().context(); })
      .def_prop_ro("layers", [](const GptModel& m) { return m.decoder().layers(); })
      .def_prop_ro("bytes", [](const GptModel& m) { return m.decoder().bytes(); });
  nb::class_<DecoderSession>(module, "GptSession")
      .def_static("make", &make_session, nb::arg("gpt"), nb::arg("capacity"), nb::arg("cache"),
                  nb::arg("threads").none())
      .def("append", &append)
      .def("append_all", &append_all)
      .def("truncate", &DecoderSession::truncate)
      .def_prop_ro("length", &DecoderSession::length)
      .def_prop_ro("capacity", &DecoderSession::capacity)
      .def_prop_ro("bytes_per_token", &DecoderSession::bytes_per_token);
  nb::class_<Generator>(module, "Generator")
      .def_static("make", &make_generator, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>())
      .def("next", &next)
      .def("rest", &Generator::rest)
      .def_prop_ro("end", [](const Generator& g) { return std::string(name_of(g.end())); });
}

}  // namespace qkv::python
