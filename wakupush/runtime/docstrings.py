"""The docstrings below the attributes of a class, which Python throws away when it runs."""

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise


@cache
def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return them by the names of the attributes, each as one line."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    docstrings = {}
    for attribute, text in pairwise(body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                docstrings[name] = " ".join(inspect.cleandoc(docstring).split())
    return docstrings
