"""What every specification is made of, and mistakes in them as one line each."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from text import counted, escaped

Direction = Literal["higher", "lower"]
# What a number has to be, by kinds of pydantic's.
NUMBERS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than": "must be less than {lt:g}",
}
# What a text has to look like, in words, by its pattern.
FORMS: dict[str, str] = {}


def of_form(pattern: str, words: str) -> Any:
    """A field whose text matches; ``words`` say in errors what it must be."""
    FORMS[pattern] = words
    return Field(pattern=pattern)


NAME = r"^[a-z0-9][a-z0-9_-]{0,63}$"
Name = Annotated[str, of_form(NAME, "1 to 64 of a-z, 0-9, _ and -, the first no _ or -")]
LONGEST_NAME = 40
# Of a key that the lab writes into a record, and nobody into a file.
READ_ONLY = {"readOnly": True}
WRITTEN_BY_LAB = Field(json_schema_extra=dict[str, JsonValue](READ_ONLY))


# No number of a run comes near these, and sums, squares and quotients of such numbers are numbers.
MOST = {"int": 1 << 63, "float": 1e30}


def bounded(part: Any, model: type) -> Any:
    """A copy of a schema in which each number has a bound; other models have their own."""
    if isinstance(part, list | tuple):
        return type(part)(bounded(each, model) for each in part)
    if not isinstance(part, dict) or part.get("cls", model) is not model:
        return part
    copy = {key: bounded(value, model) for key, value in part.items()}
    if (most := MOST.get(part.get("type", ""))) is not None:
        copy |= {"le": most} if not {"le", "lt"} & part.keys() else {}
        copy |= {"ge": -most} if not {"ge", "gt"} & part.keys() else {}
    return copy


class Frozen(BaseModel):
    """Base of every specification: immutable, strict about types and keys, bounded in numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The model's, each number in it with a bound."""
        return bounded(handler(source), cls)

    def _mistakes(self) -> Iterator[str]:
        """In what parts that are right by themselves do not agree, the key first; none here."""
        yield from ()

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        for mistake in self._mistakes():
            raise ValueError(mistake)
        return self


def plain_name(text: str) -> str:
    """The text as a name: small letters, digits and dashes; empty where it has none."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST_NAME].strip("-")


def as_name(text: str) -> str:
    """The text itself where it is a name, else as one."""
    return text if re.fullmatch(NAME, text) else plain_name(text)


KeyPath = tuple[str | int, ...]

SHOWN_CHARACTERS = 80
# Below 0.6 difflib proposes words that share only a few letters.
CLOSE_ENOUGH, NEAREST = 0.6, 5
# So many are shown, all of them.
FEW = 8


class _Nothing:
    """The value of a key that is not there; ``None`` could be a value."""


NOTHING = _Nothing()


@dataclass(frozen=True)
class Problem:
    """One mistake at one key.

    ``allowed`` are the values to choose from; a suggestion is the one of them, or of
    ``candidates`` where given, that is most like what was ``intended``, or the text found.
    """

    path: KeyPath
    words: str
    value: object = NOTHING
    allowed: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    allowed_word: str = "allowed"
    intended: str | None = None

    def line(self, place: str) -> str:
        """``PLACE: KEY: found VALUE: WORDS; allowed: A, B; did you mean 'A'?``"""
        parts = [
            self.words if self.value is NOTHING else f"found {shown(self.value)}: {self.words}"
        ]
        text = self.intended or (self.value if isinstance(self.value, str) else None)
        if self.allowed:
            parts.append(f"{self.allowed_word}: {likely(text, self.allowed)}")
        near = nearest(text or "", self.candidates or self.allowed, 1, CLOSE_ENOUGH)
        parts += [f"did you mean {name!r}?" for name in near]
        return escaped(": ".join(filter(None, (place, key_path(self.path), "; ".join(parts)))))


def key_path(path: KeyPath) -> str:
    """``("cases", 0, "primary", 1)`` as ``cases[0].primary[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = re.fullmatch(r"[A-Za-z0-9_-]+", part)
            text += f"{'.' if text else ''}{part if plain else json.dumps(part)}"
    return text


def shown(value: object) -> str:
    """A value on one line: text quoted, containers by what they hold, nothing too long."""
    if isinstance(value, dict):
        keys = ", ".join(json.dumps(key)[1:-1] for key in value) or "no keys"
        text = f"a table with {keys}"
    elif isinstance(value, list):
        text = f"an array of {len(value)}"
    elif isinstance(value, bool | str):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = str(value)
    return shortened(text)


def shortened(text: str) -> str:
    """At most 80 characters of ``text``, with dots for what is left out."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def nearest(
    value: str, allowed: Iterable[str], most: int = NEAREST, like: float = 0.0
) -> list[str]:
    """The allowed values most like ``value`` (or the last part of one), likeliest first."""
    spellings: dict[str, str] = {}
    for name in allowed:
        spellings.setdefault(re.split(r"[/.]", name)[-1].lower(), name)
        spellings[name.lower()] = name
    close = difflib.get_close_matches(value.lower(), spellings, len(spellings) or 1, like)
    return [name for name in dict.fromkeys(map(spellings.__getitem__, close)) if name != value][
        :most
    ]


def likely(value: str | None, allowed: Iterable[str]) -> str:
    """The ``allowed``, likeliest for ``value`` first: of more than eight the five nearest and how
    many others there are; all of them, in their order, where there is nothing to be like.
    """
    names = tuple(dict.fromkeys(allowed))
    shown_names = nearest(value, names, NEAREST if len(names) > FEW else FEW) if value else names
    others = len(names) - len(shown_names)
    return ", ".join(shown_names) + (f" and {others} more" if others else "")


def not_allowed(
    path: KeyPath, value: object, allowed: Iterable[str], *, what: str = "unknown"
) -> Iterator[Problem]:
    """A problem when ``value`` is text and not one of ``allowed``."""
    names = tuple(allowed)
    if isinstance(value, str) and value not in names:
        # An empty list of values is worth saying too.
        yield Problem(path, what, value=value, allowed=names or ("nothing",))


def from_validation(error: ValidationError, model: type[BaseModel] = BaseModel) -> list[Problem]:
    """One problem for each mistake that pydantic found in data meant for ``model``."""
    return [
        _translated(details, model)
        for details in error.errors(include_url=False)
        # Said of an array whose entries are wrong, too: they do not count.
        if details["type"] != "too_short" or not details["input"]
    ]


def first_of(error: ValidationError) -> str:
    """The first mistake in one line: key, what is wrong, and the value found."""
    first, *others = from_validation(error)
    return first.line("") + (f", and {counted(len(others), 'more mistake')}" if others else "")


def _translated(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    path, kind, context = details["loc"], details["type"], details.get("ctx", {})
    value = details["input"]
    if kind == "extra_forbidden":
        # Here the key is wrong, not its value, so the key is what is compared.
        keys = keys_at(model, path[:-1]) if model is not BaseModel else ()
        words = f"unknown key (value {shown(value)})"
        if path[0] == "dataset" and re.search("cgroup|cpuset|memory", str(path[-1])):
            words += (
                "; of the cgroup a dataset has memory.max alone: memory.high, cpusets and others "
                'are of arms: cgroup = { "memory.high" = "24M" }'
            )
        return Problem(path, words, allowed=keys, intended=str(path[-1]))
    if kind == "too_short":
        return Problem(path, f"needs at least {context['min_length']}", value=value)
    if kind == "missing":
        return Problem(path, "missing: this key is required")
    if kind == "value_error":
        # Our own validators name the values themselves, and the key where the whole
        # specification is at fault.
        words = details["msg"].removeprefix("Value error, ")
        key, colon, rest = words.partition(": ")
        return Problem((key,), rest) if not path and colon else Problem(path, words)
    if kind == "json_invalid":
        return Problem((), f"cannot be read: {context['error']}")
    if kind == "literal_error":
        allowed = tuple(re.findall(r"'([^']*)'", str(context["expected"])))
        return Problem(path, "unknown", value=value, allowed=allowed)
    if kind == "string_pattern_mismatch" and context["pattern"] in FORMS:
        return Problem(path, f"must be {FORMS[context['pattern']]}", value=value)
    if kind in NUMBERS:
        return Problem(path, NUMBERS[kind].format(**context), value=value)
    words = re.sub(r"^(Input|String) should ", "must ", details["msg"])
    words = words.replace("a valid tuple", "an array").replace("a valid dictionary", "a table")
    words = re.sub(r"an object$|a valid dictionary or instance of \w+", "a table", words)
    return Problem(path, words[0].lower() + words[1:], value=value)


def keys_at(model: type[BaseModel], path: KeyPath) -> tuple[str, ...]:
    """The keys a table at ``path`` may have, by the models' fields; none that the lab writes."""
    here: Any = model
    for part in path:
        here = _without_none(here)
        if isinstance(here, type) and issubclass(here, BaseModel):
            here = here.model_fields[str(part)].annotation
        else:
            # tuple[X, ...] by its first argument, dict[str, X] by its last.
            arguments = here.__args__
            here = arguments[0] if isinstance(part, int) else arguments[-1]
    fields = _without_none(here).model_fields.items()
    return tuple(name for name, field in fields if field.json_schema_extra != READ_ONLY)


def _without_none(annotation: Any) -> Any:
    """``X`` for ``X | None``; anything else as it is."""
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (argument for argument in get_args(annotation) if argument is not NoneType)
    return annotation
