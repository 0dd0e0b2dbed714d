// qkv._core.KVCache: the cache and attention over it. What it means for a user stands in
// python/qkv/_kv_cache.py.

#include "qkv/kv_cache.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "arguments.h"
#include "array.h"
#include "bindings.h"
#include "interrupt.h"
#include "options.h"
#include "qkv/cached_attention.h"
#include "refuse.h"

namespace nb = nanobind;

namespace qkv::python {
namespace {

using Ids = std::vector<SequenceId>;

Input read_given(std::string_view name, nb::handle array) {
  if (array.is_none()) refuse_type(name, "an array", "None");
  return read_floats(name, array);
}

// One call at a time: threads of Python may share the object, and the GIL is released in between.
class Cache {
 public:
  explicit Cache(KVCache cache) : cache_(std::move(cache)) {}

  template <class Fn>
  auto with(const Fn& fn) {
    try {
      const nb::gil_scoped_release unlocked;
      const std::lock_guard lock(mutex_);
      return fn(cache_);
    } catch (const Error& error) {
      rethrow_as("qkv.KVCache", error);
    }
  }

  // Errors name the file.
  void save(const std::string& path) {
    const nb::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    save_kv_cache(path, cache_);
  }

  void write(SequenceId s, nb::handle layer, nb::handle key, nb::handle value) {
    try {
      const Input k = read_given("key", key), v = read_given("value", value);
      if (layer.is_none()) {
        return with([&](KVCache& c) { c.append(s, k.view, v.view); });
      }
      const std::int64_t n = read_integer("layer", layer);
      with([&](KVCache& c) { c.write(s, n, k.view, v.view); });
    } catch (const Error& error) {
      rethrow_as("qkv.KVCache", error);
    }
  }

  nb::object tokens(SequenceId s, std::int64_t layer, bool values) {
    const Tensor x =
        with([&](KVCache& c) { return values ? c.values(s, layer) : c.keys(s, layer); });
    Output out(Framework::numpy, DType::f32, x.shape());
    copy(x, out.view());
    return out.take();
  }

  nb::dict usage() {
    const KVCacheUsage u = with([](KVCache& c) { return c.usage(); });
    nb::dict result;
    result["sequences"] = u.sequences;
    result["tokens"] = u.tokens;
    result["pages"] = u.pages;
    result["pages_used"] = u.pages_used;
    result["pages_free"] = u.pages_free;
    result["pages_shared"] = u.pages_shared;
    result["bytes"] = u.bytes;
    result["bytes_used"] = u.bytes_used;
    return result;
  }

  nb::object attention(nb::handle query, std::int64_t layer, const Ids& ids, nb::handle scale,
                       nb::handle softcap, nb::handle causal, nb::handle window,
                       nb::handle key_lengths, nb::handle alibi, nb::handle sinks, nb::handle out,
                       nb::handle return_weights, nb::handle return_lse, nb::handle threads) {
    try {
      const Input q = read_given("query", query);
      if (q.view.rank() != 4) {
        refuse_value("query", "4 dimensions [B, H, T, D]", "shape " + to_string(q.view.shape()));
      }
      const Input lengths = read_integers("key_lengths", key_lengths);
      const Input slopes = read_numbers("alibi", alibi), sink = read_numbers("sinks", sinks);
      CachedAttentionOptions options;
      options.scale = read_number("scale", scale);
      options.softcap = read_number("softcap", softcap);
      options.causal = read_bool("causal", causal);
      options.window = read_window(window);
      options.key_lengths = lengths.view;
      options.alibi = slopes.view;
      options.sinks = sink.view;
      options.threads = read_threads(threads);
      const bool weights = read_bool("return_weights", return_weights);
      const bool lse = read_bool("return_lse", return_lse);
      return run(q, layer, ids, options, out, weights, lse, framework_of(query));
    } catch (const Error& error) {
      rethrow_as("qkv.KVCache.attention", error);
    }
  }

 private:
  nb::object run(const Input& q, std::int64_t layer, const Ids& ids,
                 const CachedAttentionOptions& options, nb::handle given, bool weights, bool lse,
                 Framework framework) {
    const std::int64_t B = q.view.dim(0), Hq = q.view.dim(1), Tq = q.view.dim(2);
    const Borrowed lent = given.is_none() ? Borrowed() : borrow_output("out", given);
    Output out, w, l;
    if (given.is_none()) {
      out = Output(framework, q.view.dtype(), {B, Hq, Tq, cache_.config().Dv});
    }
    AttentionStages stages;
    if (weights) {
      std::int64_t longest = 0;
      with([&](KVCache& c) {
        for (const SequenceId id : ids) {
          longest = std::max(longest, c.length(id) + c.pending(id));
        }
      });
      w = Output(framework, DType::f32, {B, Hq, Tq, longest});
      stages.weights = w.view();
    }
    if (lse) {
      l = Output(framework, DType::f32, {B, Hq, Tq});
      stages.lse = l.view();
    }
    {
      const nb::gil_scoped_release unlocked;
      const std::lock_guard lock(mutex_);
      const SignalWatch watch;
      cached_attention_forward(q.view, cache_, layer, ids, given.is_none() ? out.view() : lent.view,
                               options, stages);
    }
    nb::object result = given.is_none() ? out.take() : nb::borrow(given);
    if (weights && lse) return nb::make_tuple(result, w.take(), l.take());
    if (weights) return nb::make_tuple(result, w.take());
    if (lse) return nb::make_tuple(result, l.take());
    return result;
  }

  std::mutex mutex_;
  KVCache cache_;
};

std::unique_ptr<Cache> make(nb::handle layers, nb::handle heads, nb::handle D, nb::handle Dv,
                            nb::handle kind, nb::handle storage, nb::handle capacity,
                            nb::handle sequences, nb::handle page_tokens, nb::handle window) {
  try {
    KVCacheConfig c;
    c.layers = read_integer("layers", layers);
    c.heads = read_integer("heads", heads);
    c.D = read_integer("D", D);
    c.Dv = Dv.is_none() ? 0 : read_integer("Dv", Dv);
    c.kind = static_cast<KVCacheKind>(read_word("kind", kind, {"contiguous", "paged", "windowed"}));
    c.storage =
        static_cast<KVStorage>(read_word("storage", storage, {"f32", "f16", "bf16", "int8"}));
    c.capacity = read_integer("capacity", capacity);
    c.sequences = read_integer("sequences", sequences);
    c.page_tokens = read_integer("page_tokens", page_tokens);
    c.window = window.is_none() ? 0 : read_integer("window", window);
    return std::make_unique<Cache>(KVCache(c));
  } catch (const Error& error) {
    rethrow_as("qkv.KVCache", error);
  }
}

}  // namespace

void bind_kv_cache(nb::module_& module) {
  nb::class_<Cache>(module, "KVCache")
      .def_static("make", &make, nb::arg("layers").none(), nb::arg("heads").none(),
                  nb::arg("D").none(), nb::arg("Dv").none(), nb::arg("kind").none(),
                  nb::arg("storage").none(), nb::arg("capacity").none(),
                  nb::arg("sequences").none(), nb::arg("page_tokens").none(),
                  nb::arg("window").none())
      .def_static(
          "load",
          [](const std::string& path) { return std::make_unique<Cache>(load_kv_cache(path)); })
      .def("save", &Cache::save)
      .def("add", [](Cache& c) { return c.with([](KVCache& cache) { return cache.add(); }); })
      .def("fork",
           [](Cache& c, SequenceId s) {
             return c.with([&](KVCache& cache) { return cache.fork(s); });
           })
      .def("release",
           [](Cache& c, SequenceId s) { c.with([&](KVCache& cache) { cache.release(s); }); })
      .def("truncate",
           [](Cache& c, SequenceId s, std::int64_t n) {
             c.with([&](KVCache& cache) { cache.truncate(s, n); });
           })
      .def("reserve",
           [](Cache& c, const Ids& ids, std::int64_t n) {
             c.with([&](KVCache& cache) { cache.reserve(ids, n); });
           })
      .def("commit",
           [](Cache& c, const Ids& ids) { c.with([&](KVCache& cache) { cache.commit(ids); }); })
      .def("rollback",
           [](Cache& c, SequenceId s) { c.with([&](KVCache& cache) { cache.rollback(s); }); })
      .def("write", &Cache::write, nb::arg("sequence"), nb::arg("layer").none(),
           nb::arg("key").none(), nb::arg("value").none())
      .def("length",
           [](Cache& c, SequenceId s) {
             return c.with([&](KVCache& cache) { return cache.length(s); });
           })
      .def("pending",
           [](Cache& c, SequenceId s) {
             return c.with([&](KVCache& cache) { return cache.pending(s); });
           })
      .def("first",
           [](Cache& c, SequenceId s) {
             return c.with([&](KVCache& cache) { return cache.first(s); });
           })
      .def("sequences",
           [](Cache& c) { return c.with([](KVCache& cache) { return cache.sequences(); }); })
      .def("tokens", &Cache::tokens)
      .def("usage", &Cache::usage)
      .def("attention", &Cache::attention, nb::arg("query").none(), nb::arg("layer"),
           nb::arg("sequences"), nb::arg("scale").none(), nb::arg("softcap").none(),
           nb::arg("causal").none(), nb::arg("window").none(), nb::arg("key_lengths").none(),
           nb::arg("alibi").none(), nb::arg("sinks").none(), nb::arg("out").none(),
           nb::arg("return_weights").none(), nb::arg("return_lse").none(),
           nb::arg("threads").none());
}

}  // namespace qkv::python
