"""Checks of the options of `paceline study`."""


def check_where(workers: str | None, nodes: str | None, with_nodes: str | None) -> None:
    """Refuse a study on neither or both of this machine and a cluster."""
    from paceline.specs import PacelineError

    if (workers is None) == (nodes is None):
        raise PacelineError(
            "a study needs --workers (this machine) or --nodes (of a cluster);"
            f" {'neither was' if workers is None else 'both were'} given",
            fix="write `paceline study train.py --workers 1,2` or `--nodes 1,2,4,8`",
        )
    if workers is not None and with_nodes is not None:
        raise PacelineError(
            "--devices and --testbed need --nodes, but --workers was given",
            fix="leave them out, or write --nodes in place of --workers",
        )


def check_measuring(kind: str, steps: int, warm_up: int, margin: float | None) -> None:
    """Refuse options that do not fit the kind of a study."""
    from paceline.specs import PacelineError

    if kind == "quality":
        if margin is not None and not 0 < margin < 1:
            raise PacelineError(
                f"--margin {margin:g} is not between 0 and 1",
                fix="give a fraction: --margin 0.01 is 1 % of the value on one worker",
            )
        return
    if margin is not None:
        raise PacelineError(
            f"--margin {margin:g} needs --kind quality, but the kind is {kind}",
            fix="leave --margin out, or write --kind quality",
        )
    if steps <= warm_up:
        raise PacelineError(
            f"--steps {steps} leaves nothing to measure after --warm-up {warm_up}",
            fix=f"give at least --steps {2 * warm_up}",
        )
