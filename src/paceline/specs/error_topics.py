"""Topics of errors: which section of the errors page, and of `paceline help`, explains an error.

An error's topic follows from the module that raises it, so that no error has a number of its own
to keep. Topics are stable; when a module moves, its line here moves with it.
"""

OTHER = "extensions"
"""Topic of errors that other packages raise."""

TOPICS: dict[str, tuple[str, ...]] = {
    "training": ("user", "user.field_checks", "user.training", "train"),
    "script": (
        *("user.script", "launch.target", "train.fit", "train.trainer", "train.worker"),
        "train.monitor.profiler",
    ),
    "phases": ("user.phase", "parallel.phased_model"),
    "batch": (
        *("user.growing_batch", "learning", "train.gradients.gradient_noise"),
        *("train.gradients.batch_plan", "train.state.tuned_batch"),
    ),
    "data": (
        *("data", "user.data_checks", "train.gradients.made_batch"),
        "train.gradients.same_stream",
    ),
    "metrics": (
        *("user.validation", "train.gradients.metric_objects"),
        "train.monitor.logged_rows",
    ),
    "model": ("parallel", "train.gradients"),
    "batch-norm": ("parallel.batch_norm",),
    "buffers": ("user.buffer_rules", "train.gradients.buffer_settling"),
    "whole-batch": ("parallel.step.whole_batch",),
    "check": ("parallel.check",),
    "dry-run": ("parallel.dry_run", "cli.dry_run"),
    "layout": (
        *("specs.plans", "specs.plans.layout", "jobs.plan_choice", "parallel.slices"),
        *("parallel.pipeline", "parallel.data_parallel", "parallel.data_speeds"),
        *("parallel.blocks", "plan.cost.pipeline_schedules"),
    ),
    "sync": (
        *("sync", "specs.plans.sync", "train.gradients.sync_hook"),
        *("train.gradients.canonical_parts", "train.state.weight_average"),
        "train.monitor.replica_check",
    ),
    "non-finite": ("train.monitor.non_finite", "train.monitor.step_windows"),
    "optimizer": ("train.state.updates", "train.state.training_state"),
    "checkpoints": (
        *("checkpoints", "specs.plans.saving", "train.state", "train.elastic.kept_equality"),
    ),
    "weights": (
        *("user.pretrained", "checkpoints.weight_files", "train.state.pretrained_weights"),
        "train.export",
    ),
    "ledger": ("checkpoints.ledger", "cli.resume"),
    "resume": ("jobs.resumed_run", "train.elastic", "membership"),
    "run-in-use": ("lease", "schedulers.living_trainer", "schedulers.job_lease"),
    "run-folder": (
        *("specs.runs", "specs.owned_files", "jobs.code_snapshot"),
        "report.comparison.compared_runs",
    ),
    "object-store": ("remote",),
    "run-failed": ("launch.supervisor", "jobs.failed_run"),
    "fault-tolerance": ("peers",),
    "devices": (
        *("comm.device_kind", "comm.devices", "comm.binding", "cluster.visible_devices"),
        *("launch", "launch.room", "observe.usage"),
    ),
    "network": ("cluster.interfaces", "cluster.open_files", "comm", "membership.rendezvous"),
    "listeners": ("observe",),
    "trace": ("observe.traces", "cli.trace"),
    "report": ("report",),
    "study": ("study", "cli.study", "train.study_overrides"),
    "plan": ("plan", "cli.plan", "jobs.calibration"),
    "plan-limits": ("plan.limits", "plan.search", "plan.training_cost", "plan.goodput_model"),
    "models": ("profile",),
    "cluster-file": ("cluster", "specs.measurements"),
    "probe": (
        *("cluster.kernels", "cluster.probe", "cli.probe"),
        *("jobs.probe_run", "jobs.learning_probe"),
    ),
    "sites": (
        *("plan.site_comparison", "cli.compared_sites", "cli.options.site_defaults"),
        *("cli.options.grouped_command", "jobs.site_draft", "specs.site_file"),
    ),
    "submit": ("schedulers", "jobs", "specs.runs.allocation", "specs.runs.job_environment"),
    "partitions": ("schedulers.kinds.slurm.partition_limits",),
    "accounts": ("schedulers.kinds.slurm.entitlement", "schedulers.kinds.slurm.site_names"),
    "kubernetes": ("schedulers.kinds.kubernetes",),
    "containers": ("schedulers.container_runtime", "cli.options.container_options"),
    "testbed": ("testbed", "cli.testbed"),
    "doctor": ("conformance", "cli.doctor"),
    "options": ("cli", "specs.key_value_settings", "schedulers.quantities"),
    "files": ("specs.base", "cli.app", "cli.init", "cli.options.output_file", "report.formats"),
    "extensions": ("specs.registry",),
}
"""Modules and packages of each topic, below `paceline`; the longest name that fits counts."""

_OF_MODULE = {module: topic for topic, modules in TOPICS.items() for module in modules}


def topic_of(module: str) -> str:
    """Return the topic of the errors that a module raises."""
    parts = module.split(".")
    if parts[0] != "paceline":
        return OTHER
    names = (".".join(parts[1:end]) for end in range(len(parts), 1, -1))
    return next((_OF_MODULE[name] for name in names if name in _OF_MODULE), OTHER)
