"""Every message of a `PacelineError` with its fix, by topic, from the code's own `raise`s."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.cli.help.topics import page_text, sections
from paceline.specs.error_topics import TOPICS, topic_of

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True, order=True)
class Message:
    """A place in the code that makes an error."""

    module: str
    line: int
    topic: str
    problem: str
    fix: str


def error_classes() -> dict[str, str | None]:
    """Return the names of `PacelineError` and its subclasses, with the topic of the class."""
    found: dict[str, str | None] = {"PacelineError": None}
    classes = [
        node for _, tree in _modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    while True:
        more = {
            each.name: _class_topic(each) or found[base.id]
            for each in classes
            for base in each.bases
            if isinstance(base, ast.Name) and base.id in found and each.name not in found
        }
        if not more:
            return found
        found |= more


def messages() -> list[Message]:
    """Return the messages of all errors that are made with a text of their own."""
    classes, found = error_classes(), []
    for module, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (made := _made(node, classes)):
                name, problem, fix = made
                topic = classes.get(name) or topic_of(module)
                found.append(Message(module, node.lineno, topic, problem, fix))
    return sorted(found)


def page() -> str:
    """Return the page of all errors: the sections of `paceline help`, and below, their messages."""
    text = page_text("errors")
    by_topic: dict[str, list[Message]] = {topic: [] for topic in TOPICS}
    for each in messages():
        by_topic[each.topic].append(each)
    first, *_ = text.partition("\n## ")
    lines = [first]
    for topic, section in sections(text).items():
        lines += [f"## {section.title} {{#{topic}}}", "", f"`paceline help {topic}`", ""]
        lines += [section.text, ""]
        rows = sorted({(each.problem, each.fix) for each in by_topic[topic]})
        if rows:
            lines += ["| message | what to do |", "|---|---|"]
            said = "as the error says"  # the whole of it is filled in
            lines += [
                f"| {_plain(problem)} | {_plain(fix) if fix.strip('… ') else said} |"
                for problem, fix in rows
            ]
            lines.append("")
    return "\n".join(lines)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((SOURCE / "paceline").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), ast.parse(path.read_text())


def _class_topic(node: ast.ClassDef) -> str | None:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
            if names == ["class_topic"]:
                return str(statement.value.value)
    return None


def _made(call: ast.Call, classes: dict[str, str | None]) -> tuple[str, str, str] | None:
    """Return the class, problem and fix of a call that makes an error; None for another call."""
    fix = next((each.value for each in call.keywords if each.arg == "fix"), None)
    if fix is None or not call.args:
        return None
    if isinstance(call.func, ast.Name) and call.func.id in classes:
        name = call.func.id
    elif isinstance(call.func, ast.Attribute) and call.func.attr == "__init__":
        name = "PacelineError"  # a subclass that makes its own text
    else:
        return None
    problem = _template(call.args[0])
    return (name, problem, _template(fix)) if problem.strip("… ") else None


def _template(node: ast.expr) -> str:
    """Return a text with … for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(each) for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left) + _template(node.right)
    return "…"


def _plain(text: str) -> str:
    """Return a text as a table's cell in which Markdown means nothing but code."""
    for sign in ("\\", "|", "*", "_", "[", "]", "<", ">"):
        text = text.replace(sign, f"&#{ord(sign)};")
    return " ".join(text.split())
