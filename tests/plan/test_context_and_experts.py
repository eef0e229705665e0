"""Context and expert parallelism, 8 bits, and variants that save memory: before, the planner
refused or ignored all of them."""

import json
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest

from paceline.cluster.catalog import usual_cluster
from paceline.plan.calibration.calibrate import from_priors
from paceline.plan.cost.coefficients import Coefficients
from paceline.plan.cost.engine_kind import ENGINES, Chosen
from paceline.plan.cost.layout_table import Layouts
from paceline.plan.cost.memory import Bytes, memory
from paceline.plan.cost.step_time import StepModel, Times
from paceline.plan.engines.deepspeed import ZeroThree, ZeroTwo
from paceline.plan.inputs import PlanRequest
from paceline.plan.planner import make_plan
from paceline.plan.search.degrees import context_degrees, expert_degrees
from paceline.plan.search.ranking import search
from paceline.profile.named_models import known, parse_model, profile_of
from paceline.specs import Answer, Layout, PacelineError, Profile

LONG = "llama3-8b: seq=32k"
MIXTRAL = "mixtral-8x7b"
BATCH = 64.0


def _row(**degrees: float) -> Layouts:
    """A layout of Megatron with these degrees; all others are 1."""
    usual = dict.fromkeys(("replicas", "shards", "tensor", "pipeline", "micro_batch"), 1.0)
    usual |= {"recompute": 0.0, "chunks": 1.0, "sequence": 0.0, "reshard": 1.0}
    values = usual | {"optimizer_shards": 1.0} | degrees
    return Layouts(**{name: np.array([float(value)]) for name, value in values.items()})


def _bytes(profile: Profile, layouts: Layouts, name: str = "megatron") -> Bytes:
    engine = ENGINES.get(name).engine(profile, usual_cluster("h100-80gb", 4), "bf16")
    return memory(profile, layouts, BATCH, engine)


def _times(profile: Profile, layouts: Layouts, nodes: int = 4) -> Times:
    there = usual_cluster("h100-80gb", nodes)
    engine = ENGINES.get("megatron").engine(profile, there, "bf16")
    model = StepModel(profile, there, "bf16", engine, Coefficients.prior())
    return model.times(layouts, BATCH)


def _plan(model: str, engine: str, nodes: int = 16, batch: int = 256, **more: object) -> Answer:
    request = PlanRequest(
        model=model, device="h100-80gb", nodes=(nodes,), batch=(batch,), engine=engine
    )
    return make_plan(replace(request, **more)).answer  # type: ignore[arg-type]


def test_contexts_divide_activations_and_not_weights() -> None:
    profile = profile_of(LONG)
    whole, divided = (
        _bytes(profile, _row(replicas=32, tensor=1, context=context)) for context in (1, 4)
    )
    assert divided.activations == pytest.approx(whole.activations / 4)
    assert divided.logits == pytest.approx(whole.logits / 4)
    assert divided.weights == whole.weights
    # Context-parallel workers share gradients and optimizer state, as replicas do.
    assert divided.optimizer == whole.optimizer
    assert _row(replicas=32, context=4).data_workers == 8


def test_contexts_divide_the_work_and_pass_keys_and_values_on() -> None:
    profile = profile_of(LONG)
    whole = _times(profile, _row(replicas=32))
    divided = _times(profile, _row(replicas=32, context=4))
    # A quarter of the work, for four times as many micro-batches.
    assert divided.compute == pytest.approx(whole.compute, rel=0.05)
    across = _times(profile, _row(replicas=32, context=16))
    assert across.tensor > divided.tensor > 0
    assert whole.tensor == 0


def test_columns_of_ones_change_nothing() -> None:
    profile = profile_of(MIXTRAL)
    plain = _row(replicas=16, tensor=2, sequence=1)
    ones = _row(replicas=16, tensor=2, sequence=1, context=1, expert=1)
    assert not plain.context.ndim
    assert ones.context.ndim
    for one, other in ((_times(profile, plain), _times(profile, ones)),):
        assert all(getattr(one, each.name) == getattr(other, each.name) for each in fields(Times))
    assert _bytes(profile, plain).total == _bytes(profile, ones).total


def test_experts_divide_their_weights_over_workers() -> None:
    profile = profile_of(MIXTRAL)
    whole, divided = (_bytes(profile, _row(replicas=32, expert=degree)) for degree in (1, 8))
    block = profile.block
    others = profile.parameters - block.count * block.parameters_experts
    held = others + block.count * block.parameters_experts / 8
    assert whole.weights == 2 * profile.parameters
    assert divided.weights == pytest.approx(2 * held)
    assert divided.gradients == pytest.approx(4 * held)
    # Each is on an eighth of the workers, so that its state is divided by four instead of 32.
    assert divided.optimizer == pytest.approx(whole.optimizer)


def test_shards_of_experts_hold_as_much_and_gather_less() -> None:
    profile = profile_of(MIXTRAL)
    whole, divided = (
        _bytes(profile, _row(shards=32, optimizer_shards=0, expert=degree), "torchtitan")
        for degree in (1, 8)
    )
    assert divided.weights == pytest.approx(whole.weights)
    assert divided.gathered < 0.25 * whole.gathered


def test_tokens_travel_to_experts_and_farther_take_longer() -> None:
    profile = profile_of(MIXTRAL)
    none, inside, across = (
        _times(profile, _row(replicas=32, expert=degree)).tensor for degree in (1, 8, 16)
    )
    assert 0 == none < inside < across
    # Gradients of experts travel between the workers that hold the same ones only.
    gradients = [_times(profile, _row(replicas=32, expert=each)).data for each in (1, 8)]
    assert gradients[1] < 0.8 * gradients[0]


@pytest.mark.parametrize("name", [name for name, each in known().items() if each.active])
def test_flops_are_those_of_active_parameters(name: str) -> None:
    """Six per active parameter and token, beside attention; most published figures count the
    embedding, which computes nothing."""
    profile, shape = profile_of(name), parse_model(name)[2]
    attention = sum(each.flops for each in profile.block.matmuls if each.attention)
    flops = profile.flops - 3 * profile.block.count * attention
    computing = flops / 6 / shape.seq  # type: ignore[attr-defined]
    published = known()[name].active
    assert published is not None
    assert 0.98 * computing < published < 1.02 * (computing + profile.before.parameters)


def test_a_capacity_bounds_the_tokens_of_experts() -> None:
    more = profile_of("mixtral-8x7b: capacity=1.25").block
    usual = profile_of("mixtral-8x7b").block
    assert more.routed_bytes == pytest.approx(1.25 * usual.routed_bytes)
    experts = [sum(m.flops for m in each.matmuls if m.routed) for each in (more, usual)]
    assert experts[0] == pytest.approx(1.25 * experts[1])


def test_degrees_leave_enough_tokens_and_whole_experts() -> None:
    assert context_degrees(profile_of("llama2-7b: seq=2k")) == [1]
    assert context_degrees(profile_of(LONG)) == [1, 2, 4, 8, 16]
    assert expert_degrees(profile_of(MIXTRAL)) == [1, 2, 4, 8]
    assert expert_degrees(profile_of(LONG)) == [1]


def test_a_plan_for_megatron_has_flags_of_experts() -> None:
    said = _plan(MIXTRAL, "megatron")
    flags = set(said.engine_settings.splitlines())
    assert f"--expert-model-parallel-size {said.estimate.layout.expert}" in flags
    assert said.estimate.layout.workers == 128
    layouts = _row(replicas=16, tensor=2, pipeline=4, expert=8, sequence=1)
    chosen = Chosen(layouts, 256, "bf16", profile_of(MIXTRAL))
    flags = set(ENGINES.get("megatron").settings(chosen).splitlines())
    assert {"--expert-model-parallel-size 8", "--expert-tensor-parallel-size 1"} <= flags


def test_a_plan_for_long_samples_has_flags_of_contexts() -> None:
    """Sixteen samples on 128 devices had no layout without slices or stages to use them all."""
    said = _plan("llama3-8b: seq=128k", "megatron", batch=16)
    context = said.estimate.layout.context
    assert context > 1
    assert f"--context-parallel-size {context}" in said.engine_settings
    assert said.estimate.layout.workers == 128
    titan = tomllib.loads(_plan("llama3-8b: seq=128k", "torchtitan", batch=16).engine_settings)
    parallelism = titan["parallelism"]
    assert parallelism.get("context_parallel_degree", 1) > 1
    assert parallelism["data_parallel_shard_degree"] >= 1


def test_pacelines_search_has_neither() -> None:
    found = search(profile_of(MIXTRAL), usual_cluster("h100-80gb", 8), 512, from_priors())
    assert not found.steps.layouts.context.ndim
    assert not found.steps.layouts.expert.ndim


@pytest.mark.parametrize("given", [{"context": 2}, {"expert": 8}, {"precision": "fp8"}])
def test_pacelines_engine_refuses_what_others_have(given: dict[str, object]) -> None:
    with pytest.raises(PacelineError, match="Paceline's engine") as caught:
        Layout.model_validate(given).check()
    assert "--engine megatron" in caught.value.fix


def test_a_plan_in_8_bits_is_faster_and_has_its_flags() -> None:
    usual, low = _plan("llama3-70b", "megatron"), _plan("llama3-70b", "megatron", precision="fp8")
    assert low.estimate.step_seconds.value < usual.estimate.step_seconds.value
    assert "--fp8-format hybrid" in low.engine_settings
    titan = _plan("llama3-70b", "torchtitan", precision="fp8").engine_settings
    assert tomllib.loads(titan)["model"]["converters"] == ["float8"]


def test_8_bits_are_refused_where_nothing_computes_in_them() -> None:
    with pytest.raises(PacelineError, match="Paceline is planned in 16 bits") as caught:
        _plan("llama3-8b", "paceline", precision="fp8")
    assert "--engine megatron or torchtitan" in caught.value.fix
    with pytest.raises(PacelineError, match="a100-80gb has no matrix products in fp8"):
        _plan("llama3-8b", "megatron", precision="fp8", device="a100-80gb")


def test_zero_2_and_3_divide_gradients_and_weights() -> None:
    profile, there = profile_of("llama2-7b"), usual_cluster("a100-80gb", 1)
    kinds = {1: ENGINES.get("deepspeed"), 2: ZeroTwo(), 3: ZeroThree()}
    rows = {1: _row(replicas=8), 2: _row(replicas=8), 3: _row(shards=8, optimizer_shards=0)}
    held = {
        stage: memory(profile, rows[stage], BATCH, kind.engine(profile, there, "bf16"))
        for stage, kind in kinds.items()
    }
    assert held[2].gradients == pytest.approx(held[1].gradients / 8)
    assert held[2].weights == held[1].weights
    assert held[3].weights == pytest.approx(held[1].weights / 8)
    assert held[3].optimizer == pytest.approx(held[1].optimizer)


def test_memory_is_saved_only_where_nothing_else_fits() -> None:
    usual = _plan("llama2-7b", "deepspeed", nodes=4, batch=32)
    assert not any("planned with" in each for each in usual.remarks)
    tight = _plan("llama3-70b", "deepspeed", nodes=1, batch=8)
    assert any("optimizer on the hosts" in each for each in tight.remarks)
    _, _, file = tight.engine_settings.partition("json:\n")
    assert json.loads(file)["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_megatron_narrows_or_offloads_its_optimizer_where_nothing_else_fits() -> None:
    said = _plan("llama3-70b", "megatron", nodes=1, batch=8)
    assert "--optimizer-cpu-offload" in said.engine_settings
    assert any("on the hosts" in each for each in said.remarks)
    assert said.estimate.seconds["optimizer"] > 1.0
