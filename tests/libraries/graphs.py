"""Graphs and molecules."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new

_GRAPH = {"n": (7, 5, 9), "e": (20, 12, 31)}


def _edges(n: int, e: int) -> Any:
    return torch.randn(n, 8), torch.randint(0, n, (2, e))


def _conv(name: str, *args: Any, **config: Any) -> Case:
    return Case(f"torch_geometric/{name}", lambda: _new(f"torch_geometric.nn.{name}", *args, **config), _edges, _GRAPH)


class _Pooled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = _new("torch_geometric.nn.models.GIN", 8, 16, 2, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> Any:
        from torch_geometric.nn import global_add_pool, global_mean_pool

        h = self.net(x, edge_index)
        return global_mean_pool(h, batch), global_add_pool(h, batch, 3)


def _batch(n: int) -> torch.Tensor:
    return (torch.arange(n) * 3 // n).long()


CASES = [
    _conv("GCNConv", 8, 16),
    _conv("GATConv", 8, 16, heads=2),
    _conv("GATv2Conv", 8, 16, heads=2),
    _conv("SAGEConv", 8, 16),
    _conv("ChebConv", 8, 16, K=3),
    _conv("TransformerConv", 8, 16, heads=2),
    _conv("TAGConv", 8, 16),
    _conv("ARMAConv", 8, 16),
    Case(
        "torch_geometric/EdgeConv", lambda: _new("torch_geometric.nn.EdgeConv", torch.nn.Linear(16, 4)), _edges, _GRAPH
    ),
    _conv("APPNP", 3, 0.1),
    _conv("models.GCN", 8, 16, 2, 4),
    _conv("models.GAT", 8, 16, 2, 4),
    _conv("models.GraphSAGE", 8, 16, 2, 4),
    _conv(
        "models.PNA",
        8,
        16,
        2,
        4,
        aggregators=["mean", "max", "std"],
        scalers=["identity", "amplification"],
        deg=torch.tensor([1, 2, 3, 4]),
    ),
    Case("torch_geometric/GIN pooled", _Pooled, lambda n, e: (*_edges(n, e), _batch(n)), _GRAPH),
    Case(
        "torch_geometric/DimeNetPlusPlus",
        lambda: _dimenet(),
        lambda n: (torch.randint(1, 9, (n,)), torch.randn(n, 3), torch.zeros(n, dtype=torch.int64)),
        {"n": (6, 5, 7)},
    ),
    Case(
        "torch_geometric/SchNet",
        lambda: _schnet(),
        lambda n: (torch.randint(1, 9, (n,)), torch.randn(n, 3), torch.zeros(n, dtype=torch.int64)),
        {"n": (6, 5, 7)},
    ),
    Case("torch_geometric/TopKPooling", lambda: _new("torch_geometric.nn.TopKPooling", 8, ratio=0.5), _edges, _GRAPH),
    Case(
        "torch_geometric/Set2Set",
        lambda: _new("torch_geometric.nn.aggr.Set2Set", 8, processing_steps=2),
        lambda n: (torch.randn(n, 8), _batch(n)),
        {"n": (7, 6, 9)},
    ),
    Case(
        "schnetpack/SchNet",
        lambda: _schnetpack(),
        lambda n: (torch.randint(1, 9, (n,)), torch.randn(n, 3)),
        {"n": (6, 5, 7)},
    ),
]


class _OnePair(torch.nn.Module):
    """All pairs of atoms as edges: the search for neighbours is compiled code of another library."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, z: torch.Tensor, positions: torch.Tensor, batch: torch.Tensor) -> Any:
        return self.net(z, positions, batch)


class _AllPairs(torch.nn.Module):
    def forward(self, positions: torch.Tensor, batch: torch.Tensor) -> Any:
        n = positions.shape[0]
        index = torch.arange(n).repeat(n), torch.arange(n).repeat_interleave(n)
        pairs = torch.stack(index)
        pairs = pairs[:, pairs[0] != pairs[1]]
        return pairs, (positions[pairs[0]] - positions[pairs[1]]).norm(dim=-1)


def _schnet() -> Any:
    net = _new(
        "torch_geometric.nn.models.SchNet",
        hidden_channels=16,
        num_filters=16,
        num_interactions=1,
        num_gaussians=8,
        interaction_graph=_AllPairs(),
    )
    return _OnePair(net)


def _dimenet() -> Any:
    from torch_geometric.nn.models.dimenet import BesselBasisLayer, EmbeddingBlock

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pairs, self.basis, self.embed = (
                _AllPairs(),
                BesselBasisLayer(4),
                EmbeddingBlock(4, 16, torch.nn.SiLU()),
            )

        def forward(self, z: torch.Tensor, positions: torch.Tensor, batch: torch.Tensor) -> Any:
            pairs, distance = self.pairs(positions, batch)
            return self.embed(z, self.basis(distance), pairs[0], pairs[1])

    return Net()


def _schnetpack() -> Any:
    import schnetpack.representation as representation
    from schnetpack import properties
    from schnetpack.nn import CosineCutoff, GaussianRBF

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pairs = _AllPairs()
            self.net = representation.SchNet(16, 1, GaussianRBF(8, 5.0), CosineCutoff(5.0))

        def forward(self, z: torch.Tensor, positions: torch.Tensor) -> Any:
            pairs, _ = self.pairs(positions, z)
            inputs = {
                properties.Z: z,
                properties.Rij: positions[pairs[0]] - positions[pairs[1]],
                properties.idx_i: pairs[0],
                properties.idx_j: pairs[1],
            }
            return self.net(inputs)["scalar_representation"]

    return Net()
