"""Exported weights, loaded by the libraries that they are written for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import paceline
from layouts.models import TiedGPT, training_of
from paceline.specs import Layout
from ranks import RankFailed, run_ranks
from train.trainings import classification

VOCABULARY, LENGTH = 64, 12
LAYOUTS = {"2 replicas": Layout(replicas=2), "2 shards": Layout(shards=2)}


def tied_llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
            tie_word_embeddings=True,
        )
    )


def text(**changes: Any) -> paceline.Training:
    from transformers import LlamaForCausalLM  # noqa: F401 -- slow: before the workers meet

    tokens = torch.arange(8 * (LENGTH + 1)).view(8, -1) % VOCABULARY
    fields: dict[str, Any] = {
        "model": tied_llama,
        "loss": lambda output, target: nn.functional.cross_entropy(
            output.logits.flatten(0, 1), target.flatten()
        ),
        "data": torch.utils.data.TensorDataset(tokens[:, :-1], tokens[:, 1:]),
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        "batch": 4,
        "steps": 2,
    }
    return paceline.Training(**fields | changes)


def whole(trainer: paceline.Trainer) -> dict[str, list[float]]:
    from paceline.comm.dtensor import full_tensor

    state = trainer.model.state_dict()
    return {name: full_tensor(each).flatten().tolist() for name, each in state.items()}


def export_text(folder: Path) -> dict[str, list[float]]:
    with paceline.start(text()) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export(folder, "huggingface", file_bytes=4_000)
        return whole(trainer)


def check_equals(state: dict[str, torch.Tensor], weights: dict[str, list[float]]) -> None:
    assert {name: each.flatten().tolist() for name, each in state.items()} == weights


def test_transformers_loads_its_folder(tmp_path: Path) -> None:
    """Under shards, calling save_pretrained oneself ended in "invalid python storage"."""
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "tuned"
    weights = run_ranks(export_text, 2, tmp_path, folder, layout=Layout(shards=2))[0]
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors.index.json", "settings.json"} <= names
    assert "model-00001-of-" in str(sorted(names))
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder)
    assert type(loaded).__name__ == "LlamaForCausalLM"
    check_equals(loaded.state_dict(), weights)


def export_dcp(folder: Path) -> dict[str, list[float]]:
    with paceline.start(training_of("gpt", steps=2)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export(folder, "dcp", file_bytes=4_000)
        return whole(trainer)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dcp_loads_its_folder(layout: str, tmp_path: Path) -> None:
    from torch.distributed import checkpoint

    folder = tmp_path / "tuned"
    weights = run_ranks(export_dcp, 2, tmp_path, folder, layout=LAYOUTS[layout])[0]
    state = TiedGPT().state_dict()
    checkpoint.load(state, checkpoint_id=folder, no_dist=True)  # type: ignore[attr-defined]
    check_equals(state, weights)
    assert len(list(folder.glob("*.distcp"))) > 1  # larger than file_bytes


def export_twice(folder: Path) -> dict[str, list[float]]:
    with paceline.start(classification(steps=2)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export(folder / "model.safetensors")
        trainer.export(folder / "parts" / "model.safetensors", file_bytes=1_000)
        return whole(trainer)


def test_large_weights_become_several_files(tmp_path: Path) -> None:
    weights = run_ranks(export_twice, 2, tmp_path, tmp_path, layout=Layout(shards=2))[0]
    check_equals(load_file(tmp_path / "model.safetensors"), weights)
    parts = sorted((tmp_path / "parts").glob("model-*.safetensors"))
    assert parts[0].name == "model-00001-of-00002.safetensors"
    check_equals({name: each for part in parts for name, each in load_file(part).items()}, weights)
    assert {path.name for path in (tmp_path / "parts").iterdir()} == {
        *(path.name for path in parts),
        "model.safetensors.index.json",
        "model.json",
    }


def export_badly(path: str, format: Any) -> None:
    with paceline.start(classification(steps=1)) as trainer:
        for batch in trainer:
            trainer.step(batch)
        trainer.export(path, format)


@pytest.mark.parametrize(
    ("path", "format", "says"),
    [
        ("model.pt", "safetensors", "give model.safetensors"),
        ("folder", "onnx", "give one of safetensors, huggingface, dcp"),
        ("folder", "huggingface", "has no save_pretrained"),
    ],
)
def test_a_wrong_request_is_one_sentence(path: str, format: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RankFailed, match=says):
        run_ranks(export_badly, 1, tmp_path, path, format)
