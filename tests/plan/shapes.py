"""Models, clusters and layouts that the planner's tests have in common."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from paceline.cluster.catalog import device, link
from paceline.plan.calibration.calibrate import Steps
from paceline.plan.cost.engine import Engine
from paceline.plan.cost.layout_table import Layouts
from paceline.profile.families import Decoder, decoder
from paceline.specs import Cluster, Layout

GPT3 = Decoder(
    layers=96,
    hidden=12288,
    heads=96,
    seq=2048,
    vocab=51200,
    attention="whole",
    dropout=True,
)
SMALL = Decoder(layers=8, hidden=1024, heads=16, seq=512, vocab=32000)

degrees = st.sampled_from([1, 2, 4, 8])
layouts = st.builds(
    Layout,
    replicas=degrees,
    shards=degrees,
    tensor=degrees,
    pipeline=degrees,
    micro_batch=st.integers(1, 4),
    recompute=st.sampled_from(["none", "selective", "block"]),
    schedule=st.sampled_from(["1f1b", "interleaved"]),
)


def cluster(nodes: int = 8, inside: float = 1.0, between: float = 1.0) -> Cluster:
    """Of A100, with links that are so many times as fast as in the catalog."""
    near, far = link("nvlink3"), link("infiniband-hdr")
    return Cluster(
        nodes=nodes,
        devices_per_node=8,
        device=device("a100-80gb"),
        inside=near.model_copy(update={"bytes_per_second": near.bytes_per_second * inside}),
        between=far.model_copy(update={"bytes_per_second": far.bytes_per_second * between}),
    )


def steps(*chosen: Layout, shape: Decoder = SMALL, batch: int = 1024) -> Steps:
    """Of those layouts on a cluster that is large enough."""
    return Steps(
        profile=decoder(shape),
        cluster=cluster(),
        precision="bf16",
        engine=Engine(),
        layouts=Layouts.of(chosen, batch),
        batch=np.full(len(chosen), float(batch)),
    )


def on(where: Cluster, what: Steps) -> Steps:
    """The same on another cluster."""
    return replace(what, cluster=where)
