from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Sequence, Union

from . import _arguments, _core
from ._explain import Explanation, _checked

if TYPE_CHECKING:  # qkv itself imports no NumPy
    import numpy as np

Text = Union[str, bytes]


class Token(NamedTuple):
    """A generated token. `text` has whole characters only: it may be empty, or end an earlier token's.

    What was held back when the end token came is a last one, with an id of -1.
    """

    id: int
    text: str


class Tokenizer:
    """Text to token ids and back: byte-level BPE (GPT-2, Llama 3) or byte-fallback BPE (older Llamas).

    `path` is a tokenizer.json, or a folder with one or with vocab.json and merges.txt. Other
    tokenizers are refused by name.

    Examples
    --------
    >>> import qkv
    >>> tokenizer = qkv.Tokenizer("gpt2")
    >>> tokenizer.decode(tokenizer.encode("Your journey starts"))
    'Your journey starts'
    """

    def __init__(self, path: Union[str, os.PathLike]) -> None:
        self._core = _core.Tokenizer.open(os.fspath(path))

    @classmethod
    def _of(cls, core: Any) -> "Tokenizer":
        tokenizer = cls.__new__(cls)
        tokenizer._core = core
        return tokenizer

    def encode(self, text: Text, *, add_special: bool = True) -> List[int]:
        """The ids of a text, special tokens in it included. Bytes that are no UTF-8 count as U+FFFD."""
        return self._core.encode(text, bool(add_special))

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        return self._core.decode(_arguments.token_ids("qkv.Tokenizer", "ids", ids), bool(skip_special))

    def bytes(self, id: int) -> bytes:
        """The bytes of one token, which need not be whole characters."""
        return self._core.bytes(_arguments.integer("qkv.Tokenizer", "id", id, 32))

    def __len__(self) -> int:
        return self._core.size

    def __repr__(self) -> str:
        return f"<qkv.Tokenizer: {self._core.kind}, {len(self)} tokens>"


class GPT:
    """A GPT from a folder: config.json, model.safetensors (or parts with an index) and a tokenizer.

    GPT-2's family (Hugging Face's, minGPT's and nanoGPT's names) and Llama's.

    Parameters
    ----------
    folder
        Where the files are. Without tokenizer files, tokens are ids.
    storage : "f32", "f16" or "bf16"
        How weights are kept; as the file has them unless given.
    cache : "f32", "f16", "bf16" or "int8"
        How keys and values are kept while generating.
    threads
        All unless given.

    Examples
    --------
    >>> import qkv
    >>> gpt = qkv.GPT("gpt2")
    >>> for token in gpt.generate("Once upon a time", max_tokens=20):
    ...     print(token.text, end="", flush=True)
    , there was a cat.
    """

    def __init__(self, folder: Union[str, os.PathLike], *, storage: Optional[str] = None, cache: str = "f32",
                 threads: Optional[int] = None) -> None:
        self._cache = _arguments.word("qkv.GPT", "cache", cache, ("f32", "f16", "bf16", "int8"))
        self._threads = _arguments.threads("qkv.GPT", threads)
        self._core = _core.Gpt.load(os.fspath(folder), storage)
        core = self._core.tokenizer
        self.tokenizer: Optional[Tokenizer] = None if core is None else Tokenizer._of(core)

    @property
    def family(self) -> str:
        return self._core.family

    @property
    def vocabulary(self) -> int:
        return self._core.vocabulary

    @property
    def context(self) -> int:
        return self._core.context

    @property
    def layers(self) -> int:
        return self._core.layers

    def encode(self, text: Text, *, add_special: bool = True) -> List[int]:
        if self.tokenizer is None:
            raise ValueError("[qkv.GPT] text: expected token ids, since the model has no tokenizer, found text")
        return self.tokenizer.encode(text, add_special=add_special)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        if self.tokenizer is None:
            raise ValueError("[qkv.GPT] decode: expected a model with a tokenizer, found none")
        return self.tokenizer.decode(ids, skip_special=skip_special)

    def _tokens(self, prompt: Union[Text, Sequence[int]]) -> List[int]:
        if isinstance(prompt, (str, bytes)):
            return self.encode(prompt)
        return _arguments.token_ids("qkv.GPT", "prompt", prompt)

    def _session(self, capacity: int) -> Any:
        return _core.GptSession.make(self._core, capacity, self._cache, self._threads)

    def logits(self, prompt: Union[Text, Sequence[int]]) -> np.ndarray:
        """What comes after each token of the prompt: [T, vocabulary], f32."""
        tokens = self._tokens(prompt)
        return self._session(max(len(tokens), 1)).append_all(tokens)

    def generate(self, prompt: Union[Text, Sequence[int]], *, max_tokens: int = 128, temperature: float = 1.0,
                 top_k: int = 0, top_p: float = 1.0, seed: int = 0, stop: Union[str, Sequence[str], None] = (),
                 stop_at_end: bool = True) -> Iterator[Token]:
        """Continues a text or ids: tokens, one by one, as they come.

        temperature 0 takes the most likely token always; top_k and top_p cut the unlikely ones off;
        the same seed gives the same text. Ends after max_tokens, at the model's end token, before a
        text of `stop`, or when its context is full.
        """
        tokens, where = self._tokens(prompt), "qkv.GPT.generate"
        max_tokens = _arguments.integer(where, "max_tokens", max_tokens)
        options = (max_tokens, _arguments.number(where, "temperature", temperature),
                   _arguments.integer(where, "top_k", top_k), _arguments.number(where, "top_p", top_p),
                   _arguments.seed(where, seed), _arguments.texts(where, "stop", stop),
                   _arguments.boolean(where, "stop_at_end", stop_at_end))
        session = self._session(min(self.context, len(tokens) + max(max_tokens, 1)))
        return self._stream(_core.Generator.make(self._core, session, tokens, *options))

    @staticmethod
    def _stream(generator: Any) -> Iterator[Token]:
        while (token := generator.next()) is not None:
            id, text = token
            yield Token(id, text + (generator.rest() if generator.end != "not_yet" else ""))
        if rest := generator.rest():
            yield Token(-1, rest)

    def explain(self, prompt: Union[Text, Sequence[int]], *, layer: int = 0, cached: int = 0,
                language: str = "en") -> Explanation:
        """The attention of one layer on a text, step by step; `cached` tokens come from the cache."""
        _checked(language)
        tokens, where = self._tokens(prompt), "qkv.GPT.explain"
        if not tokens:
            _arguments.refuse(ValueError, where, "prompt", "one token or more", "none")
        layer, cached = _arguments.integer(where, "layer", layer), _arguments.integer(where, "cached", cached)
        return Explanation(self._core.explain(tokens, layer, cached, [self._label(i) for i in tokens]), language)

    def _label(self, id: int) -> str:
        if self.tokenizer is None:
            return str(id)
        text = self.tokenizer.bytes(id).decode("utf-8", "backslashreplace")
        spaces = len(text) - len(text.lstrip(" "))
        return "·" * spaces + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[spaces:])

    def __repr__(self) -> str:
        return f"<qkv.GPT: {self._core.description}>"
