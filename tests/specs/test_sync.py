"""Ways to agree as people write them, and what is said of those that cannot be."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.specs import Layout, PacelineError, Plan, Sync

REPLICAS = Layout(replicas=4)


def test_a_name_stands_for_its_numbers_and_what_is_given_counts_more() -> None:
    diloco = Sync.parse("diloco:every=50,compress=int8")
    assert (diloco.outer_rate, diloco.outer_momentum) == (0.7, 0.9)
    assert (diloco.every, diloco.compress) == (50, "int8")
    assert Sync.parse("diloco:outer_momentum=0.5").outer_momentum == 0.5
    assert Sync.parse("stale:staleness=any").staleness is None


def test_a_plan_file_says_it_as_the_command_line_does(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('[sync]\nmode = "sparseloco"\nevery = 30\n')
    assert Plan.read(file).sync == Sync.parse("sparseloco:every=30")
    Plan(sync=Sync.parse("sparseloco:every=30")).write(file)
    assert Plan.read(file).sync == Sync.parse("sparseloco:every=30")


@given(
    st.sampled_from(
        ["allreduce", "canonical", "local", "diloco", "sparseloco", "gossip", "stale", "easgd"]
    ),
    st.integers(1, 100),
    st.sampled_from(["none", "int8", "topk"]),
)
def test_what_a_table_shows_can_be_typed(mode: str, every: int, compress: str) -> None:
    sync = Sync(mode=mode, every=every, compress=compress)
    assert Sync.parse(sync.short()) == sync


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dilico", "names no way to synchronise"),
        ("diloco:evry=20", "'evry=20' is not a setting of a mode"),
        ("diloco:every", "'every' is not a setting of a mode"),
        ("diloco:every=often", "every=often cannot be"),
        ("diloco:compress=int9", "compress=int9 cannot be"),
        ("diloco:keep=2", "keep=2 cannot be"),
    ],
)
def test_words_that_mean_nothing(words: str, message: str) -> None:
    with pytest.raises(PacelineError, match=message) as raised:
        Sync.parse(words)
    assert "\n  -> " in str(raised.value)


@pytest.mark.parametrize(
    ("words", "layout", "message"),
    [
        ("diloco:every=4,overlap=4", REPLICAS, "would end only after the next one has begun"),
        ("diloco:every=4,fragments=5", REPLICAS, "at most one is sent after each step"),
        ("gossip:compress=int8", REPLICAS, "sends weights, not changes of them"),
        ("gossip:overlap=2", REPLICAS, "done by the end of a step"),
        ("easgd:overlap=1", REPLICAS, "together with mode=easgd"),
        ("easgd:pull=0.9", REPLICAS, "pull=0.9"),
        ("local", Layout(replicas=2, batch_norm="synchronised"), "use --batch-norm local"),
        ("local", Layout(shards=4), "the layout has no replicas"),
        (
            "allreduce:compress=int8",
            Layout(replicas=2, precision="fp16"),
            "was scaled for this one's loss",
        ),
        ("canonical:parts=3", REPLICAS, "parts=3 was given for 4 replicas"),
        ("canonical", Layout(replicas=2, shards=2), "together with shards=2"),
        ("canonical", Layout(replicas=2, tensor=2), "together with tensor=2"),
        ("canonical", Layout(replicas=2, pipeline=2), "together with pipeline=2"),
        ("canonical:compress=int8", REPLICAS, "which parts are sent together"),
        ("canonical", Layout(replicas=2, batch_norm="synchronised"), "use --batch-norm local"),
        ("canonical", Layout(replicas=2, compile=True), "leave compile out"),
    ],
)
def test_settings_that_do_not_go_together(words: str, layout: Layout, message: str) -> None:
    with pytest.raises(PacelineError, match=message):
        Sync.parse(words).check(layout)


def test_a_canonical_plan_keeps_the_parts_that_it_began_with() -> None:
    canonical = Sync.parse("canonical")
    assert canonical.among(4) == Sync.parse("canonical:parts=4")
    assert canonical.among(4).among(3) == Sync.parse("canonical:parts=4")
    assert Sync().among(4) == Sync()
