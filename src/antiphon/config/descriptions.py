"""What each setting means, read from the text under it in the source.

Starting needs none of it, and reading the source of every section would be a tenth of the time to start.
"""

import ast
from collections.abc import Iterator
from inspect import cleandoc, getsource
from itertools import pairwise
from textwrap import dedent

from antiphon.annotations import types_in
from antiphon.settings.section import Section


def describe(section: type[Section]) -> None:
    """Gives every setting of the section, and of the sections in it, its description."""
    for inner in _sections_in(section):
        describe(inner)
    for base in reversed(section.__mro__):
        if issubclass(base, Section) and base is not Section:
            for name, text in _texts_of(base):
                if name in section.model_fields:  # and not a variable of the class
                    section.model_fields[name].description = text
    section.model_rebuild(force=True)


def _sections_in(section: type[Section]) -> set[type[Section]]:
    types = {type_ for field in section.model_fields.values() for type_ in types_in(field.annotation)}
    return {type_ for type_ in types if issubclass(type_, Section)}


def _texts_of(section: type[Section]) -> Iterator[tuple[str, str]]:
    """The names of the settings that the class itself declares with a text under them, and that text."""
    try:
        (declared,) = ast.parse(dedent(getsource(section))).body
    except OSError:  # it was made of others' sections, which say themselves what they are for
        return
    assert isinstance(declared, ast.ClassDef)
    for line, below in pairwise(declared.body):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield line.target.id, cleandoc(str(below.value.value))
