"""The main function of a worker process, from its start to its exit code."""

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from paceline.cluster.open_files import allow_most_files
from paceline.cluster.process import die_with_launcher, name_process
from paceline.cluster.visible_devices import show_own_instance
from paceline.comm.group_errors import CommunicationError
from paceline.comm.torch_loading import load_torch
from paceline.lease.lease import LeaseLost
from paceline.membership.hooks import Ended
from paceline.observe.event_writer import EventWriter
from paceline.schedulers.task_placement import placement
from paceline.specs import (
    FOLDER_GONE_EXIT_CODE,
    OUT_OF_MEMORY_EXIT_CODE,
    STOPPED_EXIT_CODE,
    DeviceFailed,
    Failed,
    Job,
    PacelineError,
    Placement,
    Run,
    RunFolderGone,
    RunOver,
    TrainingMistake,
)
from paceline.train.worker import outcome
from paceline.train.worker.out_of_memory import advice, ran_out_of_memory
from paceline.train.worker.threads import limit_threads
from paceline.train.worker.trainer_loading import load_gently, load_trainer


def work(folder: Path) -> NoReturn:
    """Run a worker of the run in this folder, and exit the process."""
    try:
        code = _run(folder)
    except SystemExit as asked:  # by the user's own code
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a broken process group may never end: exit without joining them.
    os._exit(code)


def _run(folder: Path) -> int:
    """Train or probe as the run's job says, and return the exit code."""
    if umask := os.environ.get("PACELINE_UMASK"):  # the user's, for files of the training itself
        os.umask(int(umask, 8))
    run = Run.open(folder)
    os.environ["PACELINE_RUN"] = str(run.path)
    # Asking for CUDA devices then does not start CUDA, which would forbid it to forked processes,
    # such as the check before a run.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    die_with_launcher()
    allow_most_files()
    # Block an early warning of the time limit until training can act on it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    job = run.job
    here = placement(job.first_generation)
    name_process("joins" if here.joins else str(here.rank))
    limit_threads(here, job.cpus_per_worker)
    try:
        show_own_instance(here)
        code = _train(run, job, here, job.train) if job.train and not job.probe else _probe(run)
        outcome.report(run, code)
        generation = _generation(run, here)
    except RunOver:
        return 0
    except RunFolderGone as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except LeaseLost as lost:  # outcome and events are the next holder's now
        print(lost, file=sys.stderr)
        return lost.exit_code
    except DeviceFailed as error:
        generation = _generation(run, here)
        if _others_continue(run, here):
            print(error, file=sys.stderr)
            return error.exit_code
        _report_failure(run, here, generation, error)
        outcome.tell_failure(run, here, error.exit_code)
        code = error.exit_code
    except Exception as error:
        generation = error.generation if isinstance(error, Ended) else _generation(run, here)
        _report_failure(run, here, generation, error)
        code = _code_of(error)
        if not _lost_peer(error):
            outcome.tell_failure(run, here, code)
    if run.is_gone:
        return FOLDER_GONE_EXIT_CODE
    outcome.end_job(run, here, code, generation)
    return code


def _code_of(error: Exception) -> int:
    if ran_out_of_memory(error):
        return OUT_OF_MEMORY_EXIT_CODE
    return error.exit_code if isinstance(error, PacelineError) else 1


def _probe(run: Run) -> int:
    load_torch()
    from paceline.train.probing.probe_worker import probe  # noqa: PLC0415 -- as below

    probe(run)
    return 0


def _train(run: Run, job: Job, here: Placement, file: Path) -> int:
    if here.joins:
        load_gently()
    else:
        load_trainer()
    from paceline.train import fit  # noqa: PLC0415 -- torch, after the threads are set
    from paceline.user.script import call_function, use_copies  # noqa: PLC0415
    from paceline.user.training import Training  # noqa: PLC0415

    os.chdir(job.folder)
    if job.code:
        copy = run.path / job.code
        use_copies(file.parent, copy.parent)
        file = copy
    sys.argv = [str(file), *job.arguments]
    given = call_function(file, job.function)
    if isinstance(given, Training):
        return STOPPED_EXIT_CODE if fit.fit(given).stopped else 0
    if given is None and fit.started_trainers:
        return 0
    raise PacelineError(
        f"{job.function}() of {file.name} returned {_described(given)}, not a paceline.Training",
        fix="end it with `return paceline.Training(…)`; a function with a loop of its own trains"
        " with paceline.start(…) and returns nothing",
    )


def _described(value: object) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"


def _report_failure(run: Run, here: Placement, generation: int, error: Exception) -> None:
    expected = isinstance(error, PacelineError)
    message = str(error) if expected else f"{type(error).__name__}: {error}"
    message = advice(error) if ran_out_of_memory(error) else message
    if isinstance(error, TrainingMistake) or not expected:
        print("".join(traceback.format_exception(error.__cause__ or error)), file=sys.stderr)
    if expected:
        print(message, file=sys.stderr)
    EventWriter(run.events, here.node).write(
        Failed(
            time=time.time(),
            node=here.node,
            generation=generation,
            rank=here.rank,
            message=message,
            lost_peer=_lost_peer(error),
            topic=error.topic if isinstance(error, PacelineError) else None,
        )
    )


def _generation(run: Run, here: Placement) -> int:
    """Return the run's newest generation, even if this worker is not part of it."""
    return max(here.generation, run.newest_generation or 0)


def _others_continue(run: Run, here: Placement) -> bool:
    """Return whether the run continues without this worker."""
    has_others = here.joins or here.workers > 1
    return has_others and run.plan.faults.regroup and run.has_begun(run.job.first_generation)


def _lost_peer(error: Exception) -> bool:
    """Return whether the error is only the loss of another worker."""
    if isinstance(error, Ended):
        return error.by_peer
    return isinstance(error, CommunicationError)
