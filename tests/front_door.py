"""Random questions to `paceline plan`, as a user might ask them: most of them sensible, all options
tried, some values and files wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import strategies as st

from command import CLUSTER
from paceline.cluster.catalog import names
from paceline.profile.named_models import known

_T = TypeVar("_T")

AWKWARD = st.one_of(
    st.sampled_from(
        [
            *("", " ", "0", "-1", "1.5", "1e3", "1e400", "nan", "inf", "-inf", "1,,2", "1-3", "٣"),
            *("9" * 30, "9" * 5000, "none", "best", "None", "[]", "{}", "0x10", "1_000", "x y"),
            *("\U0001f600", "a\nb", "<&>", "[bold]", "..", "/", "no/such/file", "train.py", "."),
        ]
    ),
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
)
"""What nobody means to write; a shell passes no null characters."""

BLOCK = """
[precisions.bf16.{name}]
name = "{name}"
kernels = 5
parameters = 1000
output_bytes = 256
[[precisions.bf16.{name}.matmuls]]
rows = 16
inner = 64
columns = 64
sliced = "columns"
"""
PROFILE = (
    """
train = "train.py"
function = "training"
batch = 64
steps = 100
[precisions.bf16]
name = "train.py"
measured_on = "a small computer"
"""
    + "".join(BLOCK.format(name=name) for name in ("before", "block", "after"))
    + """
[precisions.bf16.block.timing]
samples = [1, 8]
forward_seconds = [0.001, 0.004]
backward_seconds = [0.002, 0.008]
"""
)
"""A profile.toml of a training, as `paceline probe train.py` writes it: nothing is timed here."""
PRICED = """
failures_per_device_hour = 1e-4

[prices]
currency = "EUR"
per_node_hour = 2.5
per_kwh = 0.2

[power]
other_watts = 100.0
computing = 0.9
communicating = 0.6
idle = 0.2
source = "assumed"
"""
SITE = """
name = "here"

[options]
goal = "fastest"

[options.plan]
device = "a100-80gb"
nodes = "1,2"
steps = 100

[prices]
currency = "EUR"
per_node_hour = 4.0
spot_per_node_hour = 1.5
interruptions_per_node_hour = 0.01
replacement_seconds = 120.0
source = "a price list"
"""
LEARNING = """
training = "train.py:training"
batch = 64.0
steps = 300
critical = 500.0
low = 300.0
high = 800.0
growth = [{ samples = 19200, scale = 500.0, low = 300.0, high = 800.0 }]
"""
LINKED = CLUSTER.replace("[device]", PRICED.partition("[prices]")[0] + "[device]")
CLUSTERS = (
    CLUSTER,
    LINKED + "[prices]" + PRICED.partition("[prices]")[2],
    'nodes = 4\ndevices_per_node = 8\ndevice = "h100-80gb"\ninside = "nvlink4"\n'
    'between = "infiniband-ndr"\n',
)


@dataclass(frozen=True)
class Question:
    """The words after `paceline plan`, and the files that are there."""

    words: tuple[str, ...]
    files: dict[str, bytes]

    @property
    def json(self) -> bool:
        """Whether the answer is to be JSON."""
        return "--json" in self.words

    def given(self, option: str) -> str | None:
        """Return the value of an option; None if it was not given."""
        at = [place for place, word in enumerate(self.words) if word == option]
        return self.words[at[-1] + 1] if at else None

    def asked_with(self, option: str, value: str) -> "Question":
        """Return the question with another value of an option."""
        at = self.words.index(option) + 1
        return Question((*self.words[:at], value, *self.words[at + 1 :]), self.files)


@st.composite
def damaged(draw: st.DrawFn, text: str) -> bytes:
    """A file with a mistake: a line less, another value, or not a text at all."""
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    kind = draw(st.sampled_from(["less", "value", "value", "value", "twice", "cut", "bytes"]))
    if kind == "bytes":
        return draw(st.sampled_from([b"", b"\xff\xfe\0", b"[" * 3000, text.encode("utf-16")]))
    if kind == "cut":
        return text[: draw(st.integers(0, len(text)))].encode()
    if kind == "twice":
        lines.insert(at, lines[at])
    elif kind == "less":
        del lines[at]
    elif " = " in lines[at]:
        wrong = ["0", "-1", "1e308", "5e-324", "inf", "nan", "9" * 40, '""', '"x"', "[]", "[1, 2]"]
        wrong += ["{}", "true", "2024-01-01", "1000000000000", '["a"]', "0.5"]
        lines[at] = lines[at].partition(" = ")[0] + " = " + draw(st.sampled_from(wrong))
    return "\n".join(lines).encode()


def file_like(text: str) -> st.SearchStrategy[bytes]:
    """The file, in most questions; or a damaged one."""
    return rarely(damaged(text), st.just(text.encode()))


def rarely(
    one: st.SearchStrategy[_T], other: st.SearchStrategy[_T], times: int = 7
) -> st.SearchStrategy[_T]:
    """One of `times` + 1 examples, and the other in the rest."""
    return st.integers(0, times).flatmap(lambda number: other if number else one)


def or_awkward(*values: str) -> st.SearchStrategy[str]:
    """One of the values; rarely, something else."""
    return rarely(AWKWARD, st.sampled_from(values), 15)


COUNTS = or_awkward("1", "2", "1,2", "3", "4", "1,4", "2,7", "16", "64", "512", "12500", "1000000")
BATCHES = or_awkward(
    *("64", "64", "512", "1024", "1", "7", "97", "4096", "65536", str(2**40), "64,128", "best")
)
OPTIONS: dict[str, st.SearchStrategy[str]] = {
    "--steps": or_awkward("1", "100", "100000", "1000000000"),
    "--goal": or_awkward("fastest", "cheapest", "greenest", "knee"),
    "--deadline": or_awkward("1", "90", "1:00:00", "2-12", "30-00", "999999-00", "0"),
    "--budget": or_awkward("0", "1", "1000", "100000", "1000000000"),
    "--price": or_awkward("0", "1", "2.5", "30", "1e300"),
    "--time": or_awkward("10", "24:00:00", "2-12", "0", "1"),
    "--precision": or_awkward("bf16", "fp16", "fp32"),
    "--sync": or_awkward("diloco:every=20", "allreduce", "local", "gossip", "auto", "stale"),
    "--engine": or_awkward("paceline", "megatron", "deepspeed", "torchtitan", "fsdp"),
    "--critical-batch": or_awkward("100", "5000", "1"),
    "-o": or_awkward("other.toml", "plan.svg", "plan", "missing/plan.toml", "folder"),
    "--profile": or_awkward("profile.toml", "train.py", "folder"),
    "--compare": or_awkward("site.toml,second.toml", "site.toml", "site.toml,site.toml"),
    "--site": or_awkward("site.toml", "second.toml", "folder"),
    "--cluster": or_awkward("cluster.toml", "train.py", "folder"),
    "--calibrate": or_awkward("folder", "train.py"),
}
FLAGS = ("--json", "--json", "--json", "--explain", "--quiet", "--count", "--nonsense")


@st.composite
def models(draw: st.DrawFn) -> tuple[str, ...]:
    """The training or the model."""
    kind = draw(st.sampled_from(["known", "known", "sizes", "sizes", "train", "train", "odd"]))
    if kind == "train":
        return ("train.py",)
    if kind == "known":
        return ("--model", draw(st.sampled_from(sorted(known()))))
    if kind == "odd":
        word = draw(AWKWARD)
        odd = [(), ("train.py", "--model", "llama3-8b"), ("missing.py",), ("binary.py",)]
        odd += [("train.py:other",), ("--model", word), (word,) if word[:1] != "-" else ()]
        return draw(st.sampled_from(odd))
    sizes = {
        "layers": or_awkward("1", "4", "12", "97"),
        "width": or_awkward("64", "768", "1k"),
        "heads": or_awkward("1", "8", "12", "16"),
        "seq": or_awkward("17", "512", "2k", "128k"),
        "vocab": or_awkward("50257", "50k"),
    }
    family = draw(or_awkward("gpt", "llama", "bert"))
    return ("--model", f"{family}: " + " ".join(f"{key}={draw(sizes[key])}" for key in sizes))


@st.composite
def places(draw: st.DrawFn) -> tuple[str, ...]:
    """Where it is to run: a device of the catalog, or the cluster of cluster.toml."""
    if draw(st.integers(0, 2)):
        words = ("--device", draw(or_awkward(*names("devices"))))
        return (*words, "--nodes", draw(COUNTS)) if draw(st.integers(0, 9)) else words
    return ("--nodes", draw(COUNTS)) if draw(st.booleans()) else ()


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A question with its files."""
    words: list[str] = [*draw(models()), *draw(places())]
    if draw(st.integers(0, 9)):
        words += ["--batch", draw(BATCHES)]
    for option in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=3, unique=True)):
        words += [option, draw(OPTIONS[option])]
    words += draw(st.lists(st.sampled_from(FLAGS), max_size=2, unique=True))
    files = {
        "cluster.toml": draw(file_like(draw(st.sampled_from(CLUSTERS)))),
        "profile.toml": draw(file_like(PROFILE)),
        "learning.toml": draw(file_like(LEARNING)),
        "second.toml": draw(file_like(SITE.replace("a100-80gb", "h100-80gb"))),
    }
    if not draw(st.integers(0, 3)) or mentions(words, "site.toml"):
        files["site.toml"] = draw(file_like(SITE))
    return Question(tuple(words), files)


def mentions(words: Sequence[str], name: str) -> bool:
    """Whether a word has the name of a file in it."""
    return any(name in word for word in words)
