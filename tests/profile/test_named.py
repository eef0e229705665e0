"""Models in one line of text, and what is said when the line is wrong."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.profile.families import FAMILIES, Decoder, Llama, ResNet
from paceline.profile.named_models import known, parse_model, profile_of
from paceline.specs import PacelineError

GPT = "gpt: layers=96 width=12288 heads=96 seq=2048 vocab=51200"


def test_a_line_is_a_shape() -> None:
    assert parse_model(GPT)[2] == Decoder(layers=96, hidden=12288, heads=96, seq=2048, vocab=51200)
    assert parse_model(GPT.replace("2048", "2k"))[2] == parse_model(GPT)[2]
    assert parse_model("resnet: depth=50 image=224 classes=10")[2] == ResNet(
        depth=50, image=224, classes=10
    )


def test_words_beside_numbers() -> None:
    shape = parse_model(f"{GPT} tied=no attention=whole")[2]
    assert isinstance(shape, Decoder)
    assert (shape.tied, shape.attention) == (False, "whole")


@given(
    layers=st.integers(1, 200),
    heads=st.integers(1, 64),
    of_a_head=st.integers(1, 256),
    seq=st.integers(1, 1 << 20),
    vocab=st.integers(1, 1 << 20),
)
def test_what_is_written_is_what_is_read(
    layers: int, heads: int, of_a_head: int, seq: int, vocab: int
) -> None:
    width = heads * of_a_head
    line = f"gpt: layers={layers} width={width} heads={heads} seq={seq} vocab={vocab}"
    shape = Decoder(layers=layers, hidden=width, heads=heads, seq=seq, vocab=vocab)
    assert parse_model(line)[2] == shape


@pytest.mark.parametrize("name", FAMILIES)
def test_the_example_of_each_family_is_one(name: str) -> None:
    line = f"{name}: {FAMILIES[name].example}"
    assert isinstance(parse_model(line)[2], FAMILIES[name].shape)
    assert profile_of(line).flops > 0


@pytest.mark.parametrize("name", known())
def test_well_known_models_have_their_published_parameters(name: str) -> None:
    profile = profile_of(name)
    assert profile.name == name
    assert profile.parameters == pytest.approx(known()[name].parameters, rel=0.01)
    assert known()[name].source


def test_a_well_known_model_with_another_dimension() -> None:
    shape = parse_model("llama2-7b: seq=8k")[2]
    assert isinstance(shape, Llama)
    assert (shape.seq, shape.layers) == (8192, 32)


@pytest.mark.parametrize(
    ("line", "problem", "fix"),
    [
        ("gtp: layers=1", "no family of models 'gtp'", "gpt, llama, moe, bert, vit, resnet"),
        ("llama9-7b", "no family of models 'llama9-7b'", "llama2-7b, llama3-8b"),
        ("gpt layers=1", "no family of models 'gpt layers=1'", "and a colon"),
        (f"{GPT} depth=3", "gpt has no dimension 'depth'", "use some of layers, width, heads"),
        (f"{GPT} hidden=3", "gpt has no dimension 'hidden'", "layers, width, heads"),
        ("gpt: layers=96 width=12288", "gpt needs heads, seq, vocab", "'gpt: layers=24 width="),
        ("resnet: depth=50", "resnet needs image, classes", "'resnet: depth=50 image=224"),
        (GPT.replace("96 w", "many w"), "layers=many is not a number", "layers=2048 or layers=2k"),
        (GPT.replace("12288", "12.5k"), "width=12.5k is not a number", "width=2048 or width=2k"),
        (
            GPT.replace("heads=96", "heads=97"),
            "a width of 12288 is not divided by heads=97",
            "a multiple of the heads",
        ),
        (GPT.replace("96 w", "0 w"), "layers=0 is not valid: .* greater than 0", "another layers"),
        (
            "resnet: depth=49 image=224 classes=10",
            "depth=49 is not valid: .* 50, 101",
            "another depth",
        ),
        (f"{GPT} layers=1", "layers is given twice", "leave one of them out"),
        ("gpt: layers 96", "'layers' is not a dimension", "key=value"),
    ],
)
def test_what_is_said_of_a_wrong_line(line: str, problem: str, fix: str) -> None:
    with pytest.raises(PacelineError, match=problem) as raised:
        parse_model(line)[2]
    assert fix in raised.value.fix


def test_planning_a_named_model_loads_no_torch() -> None:
    program = (
        "import sys; from paceline.profile.named_models import profile_of; profile_of('resnet50');"
        " sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_model_beyond_all_bounds_is_refused() -> None:
    with pytest.raises(PacelineError, match="parameters is too large to compute with"):
        profile_of("gpt: layers=96 width=999999999k heads=1 seq=2k vocab=51200")
