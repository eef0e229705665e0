"""What is read from a profiler's file, where the truth is known."""

from typing import Any

import pytest

from paceline.observe.traces.overlap import recorded

BASE = 1_790_000_000_000_000_000
MAIN, OTHER = 100, 101


def span(name: str, begin: float, end: float, cat: str = "cpu_op", tid: int = MAIN) -> Any:
    """A span as torch's profiler writes it, in microseconds."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 99,
        "tid": tid,
        "ts": begin,
        "dur": end - begin,
        "args": {"External id": 7, "Ev Idx": 8},
    }


def mark(name: str, begin: float, end: float, tid: int = MAIN) -> Any:
    return span(name, begin, end, "user_annotation", tid)


def kernel(name: str, begin: float, end: float, stream: int) -> Any:
    return span(name, begin, end, "kernel", stream) | {"pid": 0}


def kineto(*spans: Any) -> dict[str, Any]:
    names = [
        {"ph": "M", "name": "thread_name", "pid": 99, "tid": tid, "ts": 0, "args": {"name": name}}
        for tid, name in ((MAIN, "thread 100 (python)"), (OTHER, "thread 101 (pt_gloo_runloop)"))
    ]
    whole = span("PyTorch Profiler (0)", 0, 9_000, "Trace")
    return {"baseTimeNanoseconds": BASE, "traceEvents": [*names, whole, *spans]}


STEPS = [mark("step 6", 1_000, 2_000), mark("step 7", 2_000, 3_000)]


def figures(*spans: Any) -> tuple[float, float]:
    """Microseconds of communication in both steps, and of these hidden."""
    found = recorded(kineto(*STEPS, *spans), rank=3, numbers=range(6, 8))
    assert found.steps == 2
    assert found.step_seconds == pytest.approx(1e-3)
    return 2e6 * found.communication_seconds, 2e6 * found.overlapped_seconds


def test_on_a_cpu_communication_is_hidden_while_an_operation_runs() -> None:
    spans = [
        span("aten::mm", 1_100, 1_400),
        span("aten::empty", 1_150, 1_160),
        mark("gloo:all_reduce", 1_300, 1_600, OTHER),
        mark("gloo:all_reduce", 1_500, 1_700, OTHER),
    ]
    assert figures(*spans) == pytest.approx((400, 100))


@pytest.mark.parametrize(
    "wait",
    [
        mark("wait for others", 1_350, 1_900),
        span("c10d::allreduce_", 1_350, 1_900),
        span("_c10d_functional::wait_tensor", 1_350, 1_900),
    ],
    ids=lambda wait: wait["name"],
)
def test_what_waits_inside_of_an_operation_does_not_compute(wait: Any) -> None:
    spans = [
        span("RegisterPostBackwardFunctionBackward", 1_200, 1_950),
        mark("gloo:all_reduce", 1_300, 1_900, OTHER),
        wait,
    ]
    assert figures(*spans) == pytest.approx((600, 50))


def test_other_threads_do_not_compute_for_the_model() -> None:
    spans = [
        span("aten::div_", 1_300, 1_600, tid=OTHER),
        mark("gloo:all_reduce", 1_300, 1_600, OTHER),
    ]
    assert figures(*spans) == pytest.approx((300, 0))


def test_only_what_lies_in_the_steps_counts() -> None:
    spans = [
        mark("gloo:all_reduce", 500, 1_100, OTHER),
        mark("gloo:all_reduce", 2_900, 3_500, OTHER),
        span("aten::mm", 2_950, 4_000),
        mark("step 8", 3_000, 3_200),
    ]
    assert figures(*spans) == pytest.approx((200, 50))


def test_on_an_accelerator_communication_is_hidden_while_another_kernel_runs() -> None:
    spans = [
        span("aten::mm", 1_000, 3_000),  # the host, far ahead
        kernel("ampere_sgemm_128x64_nn", 1_200, 1_500, 7),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)", 1_400, 1_800, 20),
        kernel("vectorized_elementwise_kernel", 1_700, 1_750, 7),
    ]
    assert figures(*spans) == pytest.approx((400, 150))


def test_a_worker_alone_communicates_nothing() -> None:
    assert figures(span("aten::mm", 1_100, 1_400)) == (0, 0)


def test_events_are_the_workers_and_nest_on_every_track() -> None:
    spans = [
        span("aten::mm", 1_100, 1_400),
        mark("gloo:recv", 1_300, 1_600),  # on the thread that began it, beyond its operations
        mark("gloo:send", 1_500, 1_700),
        span("aten::copy_", 1_450, 1_650, tid=OTHER),
    ]
    found = recorded(kineto(*STEPS, *spans), rank=3, numbers=range(6, 8))
    assert found.begin_unix_nanoseconds == BASE + 1_000_000
    tracks = {
        each["tid"]: each["args"]["name"] for each in found.events if each["name"] == "thread_name"
    }
    drawn = {each["name"]: each for each in found.events if each["ph"] == "X"}
    assert {each["pid"] for each in found.events} == {3}
    assert {name: tracks[each["tid"]] for name, each in drawn.items()} == {
        "step 6": "main thread",
        "step 7": "main thread",
        "aten::mm": "main thread",
        "gloo:recv": "communication 1",
        "gloo:send": "communication 2",
        "aten::copy_": "thread 101 (pt_gloo_runloop)",
    }
    assert drawn["aten::mm"] == {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 3,
        "tid": 1,
        "ts": 100,
        "dur": 300,
    }
