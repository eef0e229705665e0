"""Graph classification: a batch is one large graph, whose rows are nodes, not samples.

PyTorch Geometric's `Batch` is the case that is meant. It takes seconds to import in every worker,
so most tests use a stand-in of the same manners, and one slow test the library itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline
from paceline.specs import Layout
from ranks import RankFailed
from trainings.comparison import (
    LAYOUTS,
    Trained,
    killed_and_resumed,
    plain_loop,
    skip_if_torch_cannot_shard_branches,
    under_paceline,
)


@dataclass(frozen=True)
class Graph:
    x: torch.Tensor
    edge_index: torch.Tensor
    y: torch.Tensor


class GraphBatch:
    """A stand-in for torch_geometric.data.Batch: graphs side by side, as one graph."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs, self.num_graphs = graphs, len(graphs)
        nodes = torch.tensor([len(each.x) for each in graphs])
        begins = (nodes.cumsum(0) - nodes).tolist()
        self.x = torch.cat([each.x for each in graphs])
        self.edge_index = torch.cat(
            [each.edge_index + begin for each, begin in zip(graphs, begins, strict=True)], dim=1
        )
        self.y = torch.cat([each.y for each in graphs])
        self.batch = torch.arange(len(graphs)).repeat_interleave(nodes).to(self.x.device)

    @classmethod
    def from_data_list(cls, graphs: Sequence[Graph]) -> "GraphBatch":
        return cls(graphs)

    def index_select(self, rows: range) -> Sequence[Graph]:
        return self.graphs[rows.start : rows.stop]

    def to(self, device: torch.device) -> "GraphBatch":
        return GraphBatch(
            [
                Graph(each.x.to(device), each.edge_index.to(device), each.y.to(device))
                for each in self.graphs
            ]
        )


class Graphs(Dataset[Any]):
    """Random graphs of 3 to 9 nodes; the label is whether they have many edges."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, number: int) -> Graph:
        generator = torch.Generator().manual_seed(number)
        nodes = int(torch.randint(3, 10, (), generator=generator))
        joined = torch.rand(nodes, nodes, generator=generator).triu(1) > 0.5
        one_way = joined.nonzero().T
        return Graph(
            x=torch.randn(nodes, 4, generator=generator),
            edge_index=torch.cat([one_way, one_way.flip(0)], dim=1),
            y=torch.tensor([int(one_way.shape[1] > nodes)]),
        )


class Classifier(nn.Module):
    """Two rounds of messages between neighbors, and a sum over the nodes of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, graphs: Any) -> torch.Tensor:
        nodes, (sender, receiver) = graphs.x, graphs.edge_index
        for layer in (self.first, self.second):
            nodes = nodes.index_add(0, receiver, nodes[sender])
            nodes = layer(nodes).tanh()
        sums = nodes.new_zeros(graphs.num_graphs, 16).index_add(0, graphs.batch, nodes)
        logits: torch.Tensor = self.head(sums)
        return logits


def cut_graphs(batch: Any, rows: range) -> Any:
    return GraphBatch.from_data_list(batch.index_select(rows))


def graphs() -> paceline.Training:
    """Batches of 16 do not divide 60 graphs."""
    return paceline.Training(
        model=Classifier,
        loss=F.cross_entropy,
        data=Graphs(),
        collate=GraphBatch.from_data_list,
        size=lambda batch: batch.num_graphs,
        cut=cut_graphs,
        split=lambda batch: (batch, batch.y),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        batch=16,
        steps=12,
    )


def geometric() -> paceline.Training:
    """The same with the library's own batches."""
    from torch_geometric.data import Batch, Data

    def joined(samples: list[Graph]) -> Any:
        return Batch.from_data_list([Data(**vars(each)) for each in samples])

    def cut(batch: Any, rows: range) -> Any:
        return Batch.from_data_list(batch.index_select(rows))

    return graphs().replace(collate=joined, cut=cut)


def uncut() -> paceline.Training:
    return graphs().replace(cut=None)


@pytest.fixture(scope="module")
def plain() -> Trained:
    def loss_of(model: nn.Module, samples: list[Any]) -> torch.Tensor:
        batch = GraphBatch.from_data_list(samples)
        return F.cross_entropy(model(batch), batch.y)

    return plain_loop(
        graphs(), lambda model: torch.optim.Adam(model.parameters(), lr=0.01), loss_of
    )


@pytest.mark.parametrize(
    "layout",
    [*LAYOUTS.values(), Layout(replicas=2, micro_batch=3)],
    ids=[*LAYOUTS, "2 replicas with micro-batches"],
)
def test_it_equals_a_plain_loop(layout: Layout, plain: Trained, tmp_path: Path) -> None:
    skip_if_torch_cannot_shard_branches(layout)
    under_paceline(graphs, layout, tmp_path).check_equals(plain)


def test_without_cut_it_trains_where_nothing_is_cut(plain: Trained, tmp_path: Path) -> None:
    under_paceline(uncut, LAYOUTS["2 replicas"], tmp_path / "whole").check_equals(plain)
    with pytest.raises(RankFailed, match=r"give Training\(cut="):
        under_paceline(uncut, Layout(replicas=2, micro_batch=3), tmp_path / "cut")


@pytest.mark.nightly  # no state of its own: test_buffers.py, test_closures.py and others have one
def test_it_resumes_after_a_kill(plain: Trained, tmp_path: Path) -> None:
    skip_if_torch_cannot_shard_branches(LAYOUTS["2 shards"])
    killed_and_resumed(graphs, LAYOUTS["2 shards"], tmp_path, killed_after=5).check_equals(
        plain.after(4)
    )


@pytest.mark.slow
def test_batches_of_pytorch_geometric(plain: Trained, tmp_path: Path) -> None:
    layout = Layout(replicas=2, micro_batch=3)
    under_paceline(geometric, layout, tmp_path).check_equals(plain)
