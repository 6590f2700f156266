"""A cell as a function of a frame.

The cell's code stays what it would be outside: it reads and writes the user's variables. Only
``frame`` and ``n`` are its own, so that two jobs, and the user's own ``frame``, do not meet.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = ["FrameFunction", "function_of"]

FrameFunction: TypeAlias = Callable[[Any, int], None]

_PARAMETERS: Final = ("frame", "n")
_NAME: Final = "cell"


def function_of(source: str, filename: str, names: dict[str, Any]) -> FrameFunction:
    """Return a function ``(frame, n)`` that runs a cell.

    Parameters
    ----------
    source
        The cell's code, Python only.
    filename
        What tracebacks call it.
    names
        The variables that it reads and writes.

    Raises
    ------
    SyntaxError
        If it is no Python, or awaits, returns or yields outside of its own functions.
    """
    compile(source, filename, "exec", dont_inherit=True)  # raises what a plain cell would
    module = ast.parse(f"def {_NAME}({', '.join(_PARAMETERS)}): pass")
    function = module.body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101  the line above
    body = _WithoutAnnotations().visit(ast.parse(source, filename)).body
    written = _names_written(source, filename)
    function.body = [*([ast.Global(names=written)] if written else []), *body] or function.body
    found: dict[str, Any] = {}
    code = compile(ast.fix_missing_locations(module), filename, "exec", dont_inherit=True)
    exec(code, names, found)  # noqa: S102  the user's own code; this only defines the function
    made: FrameFunction = found[_NAME]
    return made


def _names_written(source: str, filename: str) -> list[str]:
    """Return the variables that the code itself, and not one of its functions, writes."""
    table = symtable.symtable(source, filename, "exec")
    return sorted(
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.get_name() not in _PARAMETERS
        and (symbol.is_assigned() or symbol.is_imported() or symbol.is_declared_global())
    )


class _WithoutAnnotations(ast.NodeTransformer):
    """Makes ``x: int = 1`` an assignment: a variable declared global may not be annotated."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)

    def _leave(self, node: ast.AST) -> ast.AST:
        return node  # what is in there has variables of its own

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave  # noqa: N815
