"""The docstrings below the attributes of a class, which Python throws away when it runs."""

import ast
import inspect
import textwrap
from functools import cache


@cache
def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return them by the names of the attributes, each as one line."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    return {
        attribute.target.id: " ".join(inspect.cleandoc(text.value.value).split())
        for attribute, text in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr)
    }
