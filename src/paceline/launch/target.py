"""The command line's training target: `train.py` or `train.py:function`."""

import ast
from dataclasses import dataclass
from pathlib import Path

from paceline.specs import PacelineError


@dataclass(frozen=True)
class Target:
    """A file, its function that returns the `Training`, and the script's arguments."""

    file: Path
    function: str = "training"
    arguments: tuple[str, ...] = ()
    """The rest of `sys.argv` while the file runs."""

    @classmethod
    def parse(cls, text: str, arguments: tuple[str, ...] = ()) -> "Target":
        """Parse `FILE[:FUNCTION]` and check, without running the file, that both exist."""
        name, _, function = text.partition(":")
        target = cls(Path(name).absolute(), function or "training", arguments)
        target._check()
        return target

    @property
    def run_name(self) -> str:
        """Default name of its runs: the file's, or its folder's for `train.py` and `main.py`."""
        stem = self.file.stem
        return self.file.parent.name if stem in ("train", "main") else stem

    def _check(self) -> None:
        try:
            tree = ast.parse(self.file.read_text(), str(self.file))
        except OSError as error:
            raise PacelineError(
                f"{self.file} cannot be read: {error.strerror}",
                fix="give the path of the Python file that defines the training",
            ) from None
        except SyntaxError as error:
            raise PacelineError(
                f"{self.file.name} is not valid Python: line {error.lineno}: {error.msg}",
                fix="mend that line",
            ) from None
        except (ValueError, RecursionError) as error:  # not a text, or nested too deeply
            raise PacelineError(
                f"{self.file.name} is not valid Python: {error}",
                fix="give the Python file that defines the training",
            ) from None
        names = _names_bound_at_top(tree)
        if self.function not in names and "*" not in names:
            functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            there = f"it has {', '.join(functions)}" if functions else "it has no function at all"
            raise PacelineError(
                f"{self.file.name} has no function {self.function}(); {there}",
                fix=f"write `def {self.function}() -> paceline.Training`, or name another one:"
                f" {self.file.name}:FUNCTION",
            )


def _names_bound_at_top(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.add(asname or name)
    return names
