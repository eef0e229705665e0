"""Any request has an answer that makes sense, or one error that says what to choose instead."""

import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from paceline.cluster.catalog import device as device_named
from paceline.cluster.catalog import link, names, usual_cluster
from paceline.launch.target import Target
from paceline.plan.answer import plan_of
from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import Planned, make_plan
from paceline.plan.search.nearest import NothingFeasible
from paceline.profile.named_models import known
from paceline.specs import Amount, Answer, Cluster, CriticalBatch, PacelineError, Plan, Prices
from paceline.specs.measurements.cluster import MixedNodes, Tier

PRIMES = [2, 3, 7, 13, 97, 1021, 65_537, 99_991]
ODD_NUMBERS = st.sampled_from([1, 2, 3, 5, 7, 11, 24, 31, 64, 97])
nodes = st.one_of(
    st.integers(1, 16),
    st.sampled_from([16, 64, 1024]),
    st.sampled_from([*PRIMES, 12_500, 16_384, 100_000]),
)
awkward_batches = st.one_of(
    st.integers(1, 5000),
    st.sampled_from([64, 720, 4096, 6250, 100_000, 1 << 20, 2**31 - 1, *PRIMES]),
)


@st.composite
def dimensions(draw: st.DrawFn) -> str:
    """Transformers and residual networks of odd sizes."""
    family = draw(st.sampled_from(["gpt", "llama", "moe", "bert", "vit", "resnet"]))
    if family == "resnet":
        depth = draw(st.sampled_from([18, 34, 50, 101, 152]))
        return f"resnet: depth={depth} image={draw(st.integers(1, 600))} classes=1000"
    heads = draw(ODD_NUMBERS)
    sizes = {
        "layers": draw(st.one_of(st.integers(1, 8), st.integers(1, 130))),
        "width": heads * draw(st.sampled_from([8, 1, 63, 64, 128])),
        "heads": heads,
    }
    if family == "vit":
        patch = draw(st.integers(1, 32))
        sizes |= {"image": patch * draw(st.integers(1, 20)), "patch": patch, "classes": 10}
    else:
        sizes |= {"seq": draw(st.sampled_from([512, 17, 1, 4099, 131_072])), "vocab": 50_257}
    if family == "moe":
        sizes |= {"experts": 8, "active": draw(st.integers(1, 8))}
    return f"{family}: " + " ".join(f"{name}={size}" for name, size in sizes.items())


def rarely(*values: Any) -> st.SearchStrategy[Any]:
    """None in most examples: an option that was not given."""
    return st.sampled_from([*(8 * len(values) * [None]), *values])


LEAF = Tier(name="leaf", nodes=7, oversubscription=1.5)
SPINE = Tier(name="spine", nodes=56, oversubscription=8.0)
modes = rarely(
    *("allreduce", "allreduce:compress=powersgd", "canonical", "canonical:parts=8", "local"),
    *("local:every=3,overlap=1", "diloco", "diloco:every=20,fragments=4", "sparseloco"),
    *("gossip", "gossip:overlap=2", "easgd", "stale", "auto"),
)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Requests of models by their dimensions, most with a batch that the nodes can divide."""
    counts = tuple(sorted(draw(st.sets(nodes, min_size=1, max_size=2))))
    divisible = st.sampled_from([1, 8, 56, 512]).map(lambda each: each * counts[-1])
    batch = draw(st.one_of(divisible, divisible, awkward_batches))
    return PlanRequest(
        model=draw(st.one_of(dimensions(), st.sampled_from(sorted(known())))),
        device=draw(st.sampled_from(names("devices"))),
        nodes=counts,
        batch=draw(rarely((batch, 2 * batch))) or (batch,),
        critical_batch=draw(rarely(CriticalBatch.exactly(1.0), CriticalBatch.exactly(5e4))),
        steps=draw(st.one_of(st.integers(1, 10**9), st.none())),
        tokens=draw(rarely(1, 10**9, 15 * 10**12)),
        goal=draw(st.sampled_from(["fastest", "cheapest", "greenest", "knee"])),
        deadline_seconds=draw(rarely(0.0, 60.0, 86_400.0, 1e9)),
        budget=draw(rarely(0.0, 1000.0, 1e15)),
        slot_seconds=draw(rarely(0.0, 600.0, 86_400.0)),
        precision=draw(rarely("bf16", "fp16", "fp32")),
        sync=draw(modes),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters as in a file, with a price, few devices in a node and little memory."""
    usual = usual_cluster(draw(st.sampled_from(names("devices"))), 64)
    device = {
        "watts": draw(st.sampled_from([700.0, None])),
        "memory_bytes": draw(st.sampled_from([80 << 30, 16 << 30, 1 << 20])),
    }
    return usual.model_copy(
        update={
            "devices_per_node": draw(st.sampled_from([4, 1, 2, 3, 7, 8, 9])),
            "device": usual.device.model_copy(update=device),
            "between": link(draw(st.sampled_from(names("links")))),
            "prices": draw(st.sampled_from([Prices(per_node_hour=2.5, per_kwh=0.2), None])),
            "failures_per_device_hour": draw(st.sampled_from([None, 0.0, 1e-3])),
            "tiers": draw(rarely((LEAF,), (LEAF, SPINE))) or (),
            "mixed": draw(rarely((MixedNodes(nodes=3, device=device_named("a100-80gb")),))) or (),
        }
    )


BLOCKS = {
    "linear": "nn.Linear({width}, {width})",
    "mlp": "nn.Sequential(nn.Linear({width}, 64), nn.GELU(), nn.Linear(64, {width}))",
    "norm": "nn.LayerNorm({width})",
    "batch norm": "Across(nn.BatchNorm1d({width}))",
    "convolution": "Across(nn.Conv1d({width}, {width}, 3, padding=1))",
    "lstm": "First(nn.LSTM({width}, {width}, batch_first=True))",
    "gru": "First(nn.GRU({width}, {width}, batch_first=True))",
    "attention": "Attention({width}, {heads})",
    "encoder": "nn.TransformerEncoderLayer({width}, {heads}, 32, batch_first=True)",
    "dropout": "nn.Dropout()",
}
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
import paceline

class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]

class Across(First):
    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)

class Attention(First):
    def __init__(self, width, heads):
        super().__init__(nn.MultiheadAttention(width, heads, batch_first=True))

    def forward(self, x):
        return self.inner(x, x, x)[0]

def training():
    return paceline.Training(
        model=lambda: nn.Sequential({blocks}, nn.Flatten(), nn.Linear({length} * {width}, 3)),
        loss=nn.functional.cross_entropy,
        data=TensorDataset(torch.randn(96, {length}, {width}), torch.zeros(96, dtype=torch.long)),
        optimizer=lambda parameters: torch.optim.{optimizer}(parameters, lr=0.1),
        batch={batch},
        epochs=1,
    )
"""


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """Trainings of small random models: a row of blocks, some repeated."""
    heads = draw(st.sampled_from([1, 2, 3]))
    sizes = {
        "heads": heads,
        "width": heads * draw(st.sampled_from([8, 11])),
        "length": draw(st.sampled_from([1, 5, 16])),
    }
    row = draw(st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=4))
    row *= draw(st.sampled_from([1, 1, 3]))
    return SCRIPT.format(
        blocks=", ".join(BLOCKS[each].format(**sizes) for each in row),
        optimizer=draw(st.sampled_from(["SGD", "AdamW"])),
        batch=draw(st.sampled_from([1, 2, 7, 32, 96])),
        **sizes,
    )


# A request takes 0.4 s: fewer of them than of other examples, in each profile.
FEWER = settings(max_examples=max(10, settings().max_examples // 5))


@FEWER
@given(requests())
@example(PlanRequest(model="llama3-70b", device="h100-80gb", nodes=(8,), batch=(1024,)))
@example(PlanRequest(model="llama3-8b", device="h100-80gb", nodes=(7, 13), batch=(1021,)))
@example(PlanRequest(model="llama3-405b", device="h100-80gb", nodes=(12_500,), batch=(2048,)))
def test_a_model_on_a_device_of_the_catalog(request: PlanRequest) -> None:
    plan_or_explain(request)


@FEWER
@given(requests(), clusters(), st.booleans())
def test_a_model_on_a_cluster_of_a_file(
    request: PlanRequest, cluster: Cluster, all_nodes: bool
) -> None:
    counts = None if all_nodes else request.nodes
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.toml"
        cluster.model_copy(update={"nodes": max(request.nodes or [1])}).write(file)
        plan_or_explain(replace(request, device=None, cluster=file, nodes=counts))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(600)
@FEWER
@given(requests(), scripts(), rarely(True))
def test_a_random_model_of_torch(request: PlanRequest, script: str, measure: bool | None) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(script)
        given = request.batch if isinstance(request.batch, tuple) else ()
        batch = given if given and max(given) < 10**5 else None
        plan_or_explain(
            replace(
                request,
                model=None,
                train=Target(file, "training"),
                batch=batch,
                measure=bool(measure),
            )
        )


def plan_or_explain(request: PlanRequest) -> None:
    """Make a plan and check it; or get an error whose suggestion has a plan."""
    try:
        planned = make_plan(request)
    except NothingFeasible as error:
        event(f"error with {len(error.choices)} choices")
        nearest = error.choices[:1]
    except PacelineError as error:
        event(f"error: {error.problem[:12]}")
        nearest = ()
    else:
        event("plan")
        check(request, planned)
        return
    for choice in nearest:
        if request.cluster is not None:
            there = Cluster.read(request.cluster)
            nodes = max(there.nodes, choice.nodes)
            there.model_copy(update={"nodes": nodes}).write(request.cluster)
        suggested = PlanRequest(
            model=request.model,
            train=request.train,
            measure=request.measure,
            device=request.device,
            cluster=request.cluster,
            precision=request.precision,
            nodes=(choice.nodes,),
            batch=(choice.batch,),
            sync=None if choice.sync is None else choice.sync.short(),
        )
        check(suggested, make_plan(suggested))


def check(request: PlanRequest, planned: Planned) -> None:
    """The plan's figures are possible, and its file says the same."""
    said = planned.answer
    layout = said.estimate.layout
    layout.check()
    assert said.nodes in (request.nodes or [said.nodes])
    assert layout.workers == said.nodes * said.devices_per_node
    share, rest = divmod(said.batch, layout.data_workers)
    assert rest == 0
    assert layout.micro_batch is not None
    assert share % layout.micro_batch == 0
    assert said.estimate.fits
    for amount in amounts(said):
        assert 0 < amount.low <= amount.value <= amount.high < math.inf
    for parts, whole in (
        (said.estimate.seconds, said.estimate.step_seconds.value),
        (said.estimate.bytes, said.estimate.peak_bytes.value),
    ):
        assert min(parts.values()) >= 0
        assert math.isclose(sum(parts.values()), whole, rel_tol=1e-6)
    explained = any(remark.startswith("efficiency above 100 %") for remark in said.remarks)
    assert explained or all(point.efficiency <= 1.000001 for point in said.curve)
    assert said.nodes in {point.nodes for point in said.curve}
    if said.training is not None:
        assert 0 < said.training.goodput <= 1
    assert Plan.model_validate(plan_of(said).model_dump(mode="json")).layout == layout


def amounts(said: Answer) -> list[Amount]:
    """All amounts with intervals."""
    found = [said.estimate.step_seconds, said.estimate.peak_bytes]
    found += [point.step_seconds for point in said.curve]
    return found + ([said.training.seconds] if said.training else [])
