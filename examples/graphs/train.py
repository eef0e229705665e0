"""Graph classification: rings against trees. A batch is one large graph of all its graphs.

PyTorch Geometric's batches train in the same way: `collate=Batch.from_data_list`, `size=lambda
batch: batch.num_graphs`. This example needs no library.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import paceline

FEATURES, WIDTH = 3, 32


@dataclass(frozen=True)
class Graph:
    nodes: torch.Tensor
    edges: torch.Tensor
    label: int


class RingsAndTrees(Dataset[Any]):
    """Graphs of 4 to 12 nodes; a ring is a tree with one more edge."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, index: int) -> Graph:
        label, count = index % 2, int(torch.randint(4, 13, ()))
        parents = [int(torch.randint(0, node, ())) for node in range(1, count)]
        edges = torch.tensor([list(range(1, count)), parents])
        if label:
            edges = torch.cat([edges, torch.tensor([[0], [count - 1]])], dim=1)
        return Graph(torch.randn(count, FEATURES), torch.cat([edges, edges.flip(0)], dim=1), label)


class GraphBatch:
    """Graphs side by side. Rows of its tensors are nodes and edges, not samples."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        sizes = [len(each.nodes) for each in graphs]
        begins = [sum(sizes[:number]) for number in range(len(graphs))]
        self.graphs = graphs
        self.nodes = torch.cat([each.nodes for each in graphs])
        self.edges = torch.cat(
            [each.edges + begin for each, begin in zip(graphs, begins, strict=True)], dim=1
        )
        self.owners = torch.arange(len(graphs)).repeat_interleave(torch.tensor(sizes))
        self.labels = torch.tensor([each.label for each in graphs])

    def to(self, device: torch.device) -> "GraphBatch":
        moved = GraphBatch(self.graphs)
        for name in ("nodes", "edges", "owners", "labels"):
            setattr(moved, name, getattr(self, name).to(device))
        return moved


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES, WIDTH, WIDTH, WIDTH]
        self.layers = nn.ModuleList(
            nn.Linear(2 * before, after) for before, after in pairwise(sizes)
        )
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        nodes, (sender, receiver) = batch.nodes, batch.edges
        for layer in self.layers:
            heard = torch.zeros_like(nodes).index_add(0, receiver, nodes[sender])
            nodes = layer(torch.cat([nodes, heard], dim=1)).relu()
        sums = nodes.new_zeros(len(batch.labels), WIDTH).index_add(0, batch.owners, nodes)
        logits: torch.Tensor = self.head(sums)
        return logits


def training() -> paceline.Training:
    return paceline.Training(
        model=Classifier,
        loss=F.cross_entropy,
        data=RingsAndTrees(),
        collate=GraphBatch,
        size=lambda batch: len(batch.graphs),
        cut=lambda batch, rows: GraphBatch(batch.graphs[rows.start : rows.stop]).to(
            batch.labels.device
        ),
        split=lambda batch: (batch, batch.labels),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-3),
        batch=50,
        epochs=5,
    )


if __name__ == "__main__":
    paceline.fit(training())
