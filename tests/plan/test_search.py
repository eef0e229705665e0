"""The search looks at all layouts, keeps those that fit, and ranks them."""

import numpy as np
import pytest

from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.engine_kind import ENGINES
from paceline.plan.search.ranking import every, search
from paceline.profile.families import Decoder, decoder
from paceline.specs import PacelineError
from plan.shapes import GPT3, SMALL, cluster

LLAMA_7B = decoder(Decoder(layers=32, hidden=4096, heads=32, seq=4096, vocab=32000))


def test_every_layout_uses_all_devices_and_can_be_run() -> None:
    layouts = every(decoder(SMALL), cluster(nodes=2), 64)
    assert (layouts.devices == 16).all()
    assert len(np.unique(layouts.tensor)) == 5
    for index in range(len(layouts)):
        layouts.layout(index, "bf16").check()
    shares = 64 / layouts.data_workers
    assert (shares % layouts.micro_batch == 0).all()


def test_the_fastest_that_fits_comes_first() -> None:
    found = search(LLAMA_7B, cluster(), 512, from_priors())
    assert (np.diff(found.seconds) >= 0).all()
    assert found.scored > len(found.seconds) > 0
    best = found.best(from_priors(), 5, "bf16")
    assert [each.step_seconds.value for each in best] == pytest.approx(list(found.seconds[:5]))
    for each in best:
        assert each.fits
        assert each.layout.workers == 64
        assert sum(each.seconds.values()) == pytest.approx(each.step_seconds.value)
        assert sum(each.bytes.values()) == pytest.approx(each.peak_bytes.value)
        assert each.step_seconds.origin == "assumed"
    # 7 billion parameters with 16 bytes each do not fit on one device: they are divided.
    assert best[0].layout.shards * best[0].layout.tensor * best[0].layout.pipeline > 1


def test_what_does_not_fit_is_kept_with_its_size() -> None:
    found = search(decoder(GPT3), cluster(nodes=1), 8, from_priors())
    assert not len(found.seconds)
    assert (found.too_large_held > cluster().device.memory_bytes / 1.2).all()


def test_a_batch_that_cannot_be_divided() -> None:
    tall = decoder(SMALL.model_copy(update={"layers": 1, "heads": 1}))
    with pytest.raises(PacelineError, match="a batch of 7"):
        search(tall, cluster(), 7, from_priors())


def test_stages_have_blocks() -> None:
    layouts = every(decoder(SMALL.model_copy(update={"layers": 4})), cluster(nodes=2), 64)
    assert (layouts.pipeline * layouts.chunks <= 4).all()
    assert (layouts.pipeline == 4).any()


@pytest.mark.parametrize("name", ENGINES.names)
def test_a_layout_fits_if_the_upper_end_of_its_memory_does(name: str) -> None:
    kind = ENGINES.get(name)
    where = cluster()
    found = search(LLAMA_7B, where, 512, from_priors(), kind=kind)
    room = where.device.memory_bytes
    for estimate in found.best(from_priors(), 50, "bf16"):
        peak = estimate.peak_bytes
        assert estimate.fits
        assert peak.low < peak.value < peak.high <= room
    engine = kind.engine(LLAMA_7B, where, "bf16")
    assert (found.too_large_held * engine.memory_high > room).all()
    assert (found.too_large_held < room).any(), "some are refused for the margin alone"
