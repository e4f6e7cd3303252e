"""Maps HTTP requests to parameters: from the path, the query, headers and the body. Contract: answers 3."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, Struct, defstruct
from msgspec.structs import FieldInfo, fields
from starlette.datastructures import QueryParams
from starlette.requests import Request

from antiphon.gateway.operations.operation import Header, Http, Params
from antiphon.incoming import MAX_PROBLEMS, convert, decode, misfit

MAX_NAME_LENGTH = 100
"""How many characters of an unknown parameter's name an error shows."""
_BODILESS = ("GET", "DELETE")

P = TypeVar("P", bound=Params)


class Binding(Generic[P]):
    """Reads one type of parameters. Each part is decoded into its own type, so no value is checked twice."""

    def __init__(self, kind: type[P], http: Http, *, beside: Sequence[str] = ()) -> None:
        """`beside` are the names in the query that tell operations at the same place apart."""
        has_body = http.method not in _BODILESS
        in_query, in_body, in_headers = list[FieldInfo](), list[FieldInfo](), list[FieldInfo]()
        for field in fields(kind):
            if f"{{{field.name}}}" in http.path:
                continue
            if field.name in http.query or not has_body:
                in_query.append(field)
            elif field.name in http.headers:
                in_headers.append(field)
            else:
                in_body.append(field)
        assert not (http.reads_body and in_body)
        self.query = _part(f"{kind.__name__}Query", kind, tuple(field.name for field in in_query))
        self.body = _part(f"{kind.__name__}Body", kind, tuple(field.name for field in in_body)) if in_body else None
        self.own = {field.encode_name for field in in_query}
        """The parameters' names in the query."""
        self._kind = kind
        self._is_lenient = http.is_lenient
        self._decoder = None if self.body is None else msgspec.json.Decoder(self.body)
        self._no_body = b"" if any(field.required for field in in_body) else b"{}"
        self._lists = {field.encode_name for field in in_query if _is_list(field)}
        self._beside = {name: defstruct("Flag", [(name, bool)]) for name in beside if name not in self.own}
        self._needs_query = any(field.required for field in in_query)
        self._query_headers = [
            (each.encode_name, http.headers[each.name]) for each in in_query if each.name in http.headers
        ]
        self._headers = [(field.name, http.headers[field.name]) for field in in_headers]

    async def read(self, request: Request) -> P:
        """Raises `NotJson`, `Misfit`, and `Invalid` for headers."""
        values: dict[str, Any] = dict(request.path_params)
        said = _said(self._query_headers, request)
        if said or self._needs_query or request.scope["query_string"]:
            values |= _values(convert(self._named(request.query_params) | said, self.query))
        values |= _said(self._headers, request)
        if self._decoder is not None:
            values |= _values(decode(await request.body() or self._no_body, self._decoder))
        return self._kind(**values)

    def _named(self, query: QueryParams) -> dict[str, object]:
        """The texts of the query by name. Refuses unknown names."""
        found: dict[str, object] = {}
        unknown: dict[str, None] = {}
        for name, value in query.multi_items():
            if name in self._lists:
                found[name] = query.getlist(name)
            elif name in self.own:
                found[name] = value
            elif name in self._beside:
                convert({name: value}, self._beside[name])
            else:
                unknown[name] = None
        if unknown and not self._is_lenient:
            known = ", ".join((*self.query.__struct_encode_fields__, *self._beside)) or "none"
            told = f"unknown parameter. Known here: {known}"
            raise misfit(*(f"{name[:MAX_NAME_LENGTH]}: {told}" for name in [*unknown][:MAX_PROBLEMS]))
        return found


def _said(headers: Iterable[tuple[str, Header]], request: Request) -> dict[str, object]:
    """The headers' values, by parameter."""
    said: dict[str, object] = {}
    for name, header in headers:
        text = request.headers.get(header.name)
        if text is not None and (value := header.read(text)) is not None:
            said[name] = value
    return said


@cache
def _part(name: str, kind: type[Params], names: tuple[str, ...]) -> type[Struct]:
    """A type with only these fields of another type."""
    definitions: list[Any] = []
    for part in fields(kind):
        if part.name not in names:
            continue
        if part.default_factory is not NODEFAULT:
            default: Any = msgspec.field(default_factory=part.default_factory, name=part.encode_name)
        elif part.default is not NODEFAULT:
            default = msgspec.field(default=part.default, name=part.encode_name)
        else:
            default = msgspec.field(name=part.encode_name)
        definitions.append((part.name, part.type, default))
    return defstruct(name, definitions, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _values(struct: Struct) -> Mapping[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _is_list(field: FieldInfo) -> bool:
    return any(getattr(choice, "__origin__", None) is list for choice in (field.type, *get_args(field.type)))
