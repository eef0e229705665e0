"""What Paceline raises when a person can mend the cause, and the exit codes beside 0."""

STOPPED_EXIT_CODE = 3
"""A run that was asked to stop and did so at the edge of a step: neither finished nor failed."""

OUT_OF_MEMORY_EXIT_CODE = 4
"""A worker whose memory ran out: started again in the same way, it would end so again."""

TOO_FEW_EXIT_CODE = 5
"""Too few workers were left to go on; from its last checkpoint the run can."""


class PacelineError(Exception):
    """A mistake or a state that the user can mend; shown as a sentence, never as a traceback.

    `problem` says what was set and what it conflicts with; `fix` says what to do.
    """

    exit_code = 2

    def __init__(self, problem: str, *, fix: str) -> None:
        super().__init__(f"{problem}\n  -> {fix}")
        self.problem = problem
        self.fix = fix


class RunOver(Exception):
    """The run ended while this worker waited for a rank in it."""


class RunFailed(PacelineError):
    """A run started and did not finish: the workers failed, or the job was ended."""

    exit_code = 1
