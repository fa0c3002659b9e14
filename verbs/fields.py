"""Options that are declared once, as fields of a dataclass, and shared by verbs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints


class Without:
    """Fields that a verb has in its own way: ``Annotated[Request, Without("series")]``."""

    def __init__(self, *names: str) -> None:
        self.names = names


def flattened(verb: Callable[..., None]) -> Callable[..., None]:
    """A command of typer's in which each parameter that is a dataclass is given by its fields.

    A field carries its option: ``Annotated[TYPE, typer.Option(...)]``.  Everything is passed by
    name.  Two parameters that bring the same field are a mistake of the program.

    Raises:
        TypeError: two fields, or a field and a parameter, have one name.
    """
    signature, hints = inspect.signature(verb), get_type_hints(verb, include_extras=True)
    plain_types: dict[str, tuple[Any, tuple[str, ...]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        plain, left_out = _without(hints[parameter.name])
        if not dataclasses.is_dataclass(plain):
            parameters.append(_option(parameter.name, hints[parameter.name], parameter.default))
            continue
        of_field = get_type_hints(plain, include_extras=True)
        own_fields = [each for each in dataclasses.fields(plain) if each.name not in left_out]
        plain_types[parameter.name] = (plain, tuple(each.name for each in own_fields))
        parameters += [_option(each.name, of_field[each.name], each.default) for each in own_fields]
    names = [parameter.name for parameter in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TypeError(f"{verb.__name__}: declared twice: {', '.join(twice)}")

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        for name, (kind, fields) in plain_types.items():
            values[name] = kind(**{field: _frozen(values.pop(field)) for field in fields})
        verb(**values)

    # typer reads both, and must not find the verb's own behind the wrapper.
    del command.__wrapped__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _without(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The type behind an annotation, and the fields that the verb leaves out."""
    if get_origin(hint) is not Annotated:
        return hint, ()
    plain, *more = get_args(hint)
    return plain, tuple(name for each in more if isinstance(each, Without) for name in each.names)


def _option(name: str, hint: Any, default: Any) -> inspect.Parameter:
    plain, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(plain) is tuple:
        plain = types.GenericAlias(list, (get_args(plain)[0],))
        default = list(default)
    if more:
        plain = Annotated[plain, *more]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=plain
    )


def _frozen(value: Any) -> Any:
    # typer knows tuples of a fixed length only, and makes lists of the others.
    return tuple(value) if isinstance(value, list) else value
