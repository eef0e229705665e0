"""Count the lines of code that a user of a framework writes."""

import ast
import io
import re
import tokenize
from collections.abc import Collection
from pathlib import Path


def lines_of(script: Path, apart: Collection[str], lines_apart: str) -> int:
    """Count lines without blank lines, comments and docstrings.

    Functions and classes named in `apart`, and lines and imports that match `lines_apart`, serve
    the comparison and do not count, nor do imports of `typing`, which serve this repository's type
    checker.
    """
    text = script.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        named = isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in apart
        imported = isinstance(node, ast.ImportFrom) and (
            node.module == "typing" or re.search(lines_apart, ast.unparse(node))
        )
        if isinstance(node, ast.stmt) and (docstring or named or imported):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*nothing, tokenize.ENDMARKER):
            code.update(range(token.start[0], token.end[0] + 1))
    matching = {
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(lines_apart, line)
    }
    return len(code - left_out - matching)
