"""The error of a run that failed."""

from paceline.jobs.user_messages import short_place
from paceline.report import RunState, cause
from paceline.specs import PacelineError, Run, RunFailed


def refuse_failed(run: Run, state: RunState) -> None:
    """Raise if a run failed, with its cause and the last log lines."""
    if state.status != "failed":
        return
    reason = cause(state, run)
    lines = [f"{reason.where} failed: {reason.message}" if reason else "the run failed"]
    if reason and "\n  -> " not in reason.message:
        lines += [f"  | {line}" for line in reason.log_lines]
    failed = RunFailed(
        "\n".join(lines),
        fix=f"the whole log is in {short_place(run)}/{run.logs.name}",
        about=reason.topic if reason else None,
    )
    code = state.ended.exit_code if state.ended else None
    if code == PacelineError.exit_code and not state.step:  # a mistake, found before it trained
        failed.exit_code = PacelineError.exit_code
    raise failed
