"""Synchronization modes as people write them, and which settings are refused."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

import paceline
from paceline.specs import SYNC_MODES, Layout, PacelineError, Plan, SyncSettings
from paceline.specs.plans.sync import DEFAULT_MODE
from paceline.specs.plans.traffic import ReplicatedPart
from paceline.sync.mode import SyncMode
from paceline.sync.modes.allreduce import AllReduce
from paceline.sync.modes.diloco import DiLoCo
from paceline.sync.modes.stale import Stale

REPLICAS = Layout(replicas=4)


def settings(mode: SyncSettings) -> st.SearchStrategy[SyncSettings]:
    """Any settings of a mode, by the types and bounds of its fields."""
    fields: dict[str, Any] = {
        name: st.one_of([st.from_type(each) for each in _types(field)])
        for name, field in type(mode).model_fields.items()
        if name != "mode"
    }
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: type(mode)(**given))


def _types(field: FieldInfo) -> list[Any]:
    bounds = tuple(field.metadata)
    kinds = get_args(field.annotation) if NoneType in get_args(field.annotation) else ()
    return [
        Annotated[each, *bounds] if bounds and each is not NoneType else each
        for each in kinds or [field.annotation]
    ]


ANY = st.sampled_from(SYNC_MODES.names).map(SYNC_MODES.get).flatmap(settings)


def test_a_mode_has_defaults_of_its_own_and_given_settings_replace_them() -> None:
    diloco = DiLoCo.parse("diloco:every=50,compress=int8")
    assert (diloco.outer_rate, diloco.outer_momentum) == (0.7, None)
    assert (diloco.every, diloco.compress) == (50, "int8")
    assert DiLoCo.parse("diloco:outer_momentum=0.5").outer_momentum == 0.5
    assert Stale.parse("stale:staleness=any").staleness is None


def test_the_outer_momentum_goes_by_the_optimizer_unless_it_is_given() -> None:
    """It was 0.9 for all, with which small tasks diverged."""
    assert DiLoCo().for_optimizer(adaptive=True).outer == (0.7, 0.5)
    assert DiLoCo().for_optimizer(adaptive=False).outer == (0.7, 0.7)
    for own in (
        DiLoCo(outer_momentum=0.9),
        *(each for each in SYNC_MODES if each.mode != "diloco"),
    ):
        assert own.for_optimizer(adaptive=False) == own


def test_a_plan_file_says_it_as_the_command_line_does(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('[sync]\nmode = "sparseloco"\nevery = 30\n')
    assert Plan.read(file).sync == SyncSettings.parse("sparseloco:every=30")
    file.write_text("")
    assert Plan.read(file).sync == AllReduce()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ('mode = "dilico"', "unknown synchronization mode 'dilico'"),
        ('mode = "gossip"\nevry = 2', r"'evry' is not a setting .* gossip\n  -> use 'every'"),
        ('mode = "easgd"\npull = 2', "pull=2 is not valid"),
    ],
)
def test_a_plan_file_with_a_wrong_section(tmp_path: Path, section: str, message: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(f"[sync]\n{section}\n")
    with pytest.raises(PacelineError, match=message):
        Plan.read(file)


@given(ANY)
def test_a_plan_with_any_settings_survives_its_file(sync: SyncSettings) -> None:
    plan = Plan(sync=sync)
    again = Plan.model_validate(tomllib.loads(plan.to_toml()))
    assert again == plan
    assert type(again.sync) is type(sync)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(ANY)
def test_what_a_table_shows_can_be_typed(sync: SyncSettings) -> None:
    assert SyncSettings.parse(sync.short()) == sync


@pytest.mark.parametrize("mode", list(SYNC_MODES), ids=lambda mode: mode.mode)
def test_every_mode_has_words_costs_and_candidates_of_its_own(mode: SyncSettings) -> None:
    assert isinstance(mode, SyncMode)
    assert SYNC_MODES.get(mode.mode) is mode
    assert mode.words
    assert mode.traffic(ReplicatedPart(4, 1000)).bytes_per_step > 0
    assert mode.extra_samples(1) == 1.0
    assert all(type(each) is type(mode) for each in mode.candidates())


def test_planning_loads_no_torch() -> None:
    program = (
        "import sys; from paceline.specs import SYNC_MODES, sync_candidates; list(SYNC_MODES);"
        " sync_candidates(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "False\n"


def test_the_docs_list_every_mode() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sync.md").read_text()
    table = page.partition("## Modes\n")[2].partition("\n\n| setting")[0]
    listed = set(re.findall(r"^\| `(\w+)", table, flags=re.MULTILINE))
    assert listed == set(SYNC_MODES.builtin)


def test_no_mode_is_named_outside_its_files() -> None:
    """But for the default; `local`, `stale` and `auto` are words of their own."""
    source = Path(paceline.__file__).parent
    names = [name for name in SYNC_MODES.builtin if name not in (DEFAULT_MODE, "local", "auto")]
    for path in source.rglob("*.py"):
        inside = path.relative_to(source).parts
        if inside[:2] != ("sync", "modes"):
            for name in names:
                assert f'"{name}"' not in path.read_text(), path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "dilico",
            r"unknown synchronization mode 'dilico'\n  -> use 'diloco', or one of: allreduce",
        ),
        (
            "diloco:evry=20",
            r"'evry' is not a setting of .* diloco\n  -> use 'every', or one of: comp",
        ),
        ("diloco:every", "'every' has no value"),
        ("diloco:every=often", "every=often is not valid"),
        ("diloco:compress=int9", "compress=int9 is not valid"),
        ("diloco:keep=2", "keep=2 is not valid"),
        ("gossip:compress=int8", "'compress' is not a setting of .* gossip"),
        (
            "easgd:overlap=1",
            r"'overlap' is not .* easgd\n  -> use one of: every, pull",
        ),
        ("canonical:compress=int8", "'compress' is not a setting of .* canonical"),
        ("auto:every=4", "it has no settings"),
    ],
)
def test_words_that_mean_nothing(words: str, message: str) -> None:
    with pytest.raises(PacelineError, match=message) as raised:
        SyncSettings.parse(words)
    assert "\n  -> " in str(raised.value)


@pytest.mark.parametrize(
    ("words", "layout", "message"),
    [
        ("diloco:every=4,overlap=4", REPLICAS, "would end only after the next one has begun"),
        ("diloco:every=4,fragments=5", REPLICAS, "at most one fragment is sent after each step"),
        ("gossip:overlap=2", REPLICAS, "a round ends with its step"),
        ("easgd:pull=0.9", REPLICAS, "pull=0.9"),
        ("local", Layout(replicas=2, batch_norm="synchronized"), "use --batch-norm local"),
        ("local", Layout(shards=4), "the layout has no replicas"),
        (
            "allreduce:compress=int8",
            Layout(replicas=2, precision="fp16"),
            "from one loss scale to another",
        ),
        ("canonical:parts=3", REPLICAS, "parts=3 was given for 4 replicas"),
        ("canonical", Layout(replicas=2, shards=2), "together with shards=2"),
        ("canonical", Layout(replicas=2, tensor=2), "together with tensor=2"),
        ("canonical", Layout(replicas=2, pipeline=2), "together with pipeline=2"),
        ("canonical", Layout(replicas=2, batch_norm="synchronized"), "use --batch-norm local"),
        ("canonical", Layout(replicas=2, compile=True), "leave compile out"),
    ],
)
def test_settings_that_do_not_go_together(words: str, layout: Layout, message: str) -> None:
    with pytest.raises(PacelineError, match=message):
        SyncSettings.parse(words).check(layout)


def test_a_canonical_plan_keeps_the_parts_that_it_began_with() -> None:
    canonical = SyncSettings.parse("canonical")
    assert canonical.for_replicas(4) == SyncSettings.parse("canonical:parts=4")
    assert canonical.for_replicas(4).for_replicas(3) == SyncSettings.parse("canonical:parts=4")
    assert AllReduce().for_replicas(4) == AllReduce()
