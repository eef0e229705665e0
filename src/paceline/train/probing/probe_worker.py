"""One worker of a probe: it measures its device, then communication, in the same order on all."""

from paceline.cluster.probe.cases import groupings, partners
from paceline.cluster.probe.probe_folder import note_done, write_probed
from paceline.comm.binding.near_cores import use_near_cores
from paceline.comm.device_kind import device_kind
from paceline.comm.groups import Groups
from paceline.schedulers.task_placement import placement
from paceline.specs import Run, TrainingProfile
from paceline.specs.measurements.probe import CollectiveTime, PairRate, Probed, ProbedWorker
from paceline.train.elastic.joined_groups import joined
from paceline.train.probing.collective_timing import collective_times, pair_rate, shared
from paceline.train.probing.device_measurement import best_flops, measured
from paceline.train.probing.kernel_grids import kernel_cases
from paceline.train.probing.kernel_table import kernel_table


def probe(run: Run) -> None:
    """Measure the cluster with all workers of the run; worker 0 writes the measurements."""
    here = placement(run.job.first_generation)
    device = device_kind().bind(here)
    use_near_cores(device_kind(), device)
    with joined(run, here, device, run.job.port) as groups:
        _Probe(run, groups).measure()


class _Probe:
    def __init__(self, run: Run, groups: Groups) -> None:
        self._run = run
        self._groups = groups
        placement = groups.placement
        self._groupings = groupings(placement.nodes, placement.local_workers)
        self._rounds = partners(placement.nodes)
        self._planned = 1 + 3 * len(self._groupings) + len(self._rounds)
        self._planned += sum(each.members == 2 for each in self._groupings)
        self._planned += len(kernel_cases(groups.device))
        self._done = 0

    def measure(self) -> None:
        groups = self._groups
        shared(groups, 0.0)  # a barrier: all devices measure at the same time, as in training
        worker = measured(groups.placement, groups.device)
        self._advance()
        done = self._done + len(kernel_cases(groups.device))
        kernels, from_cache = kernel_table(groups, self._run.job.kernel_seconds, self._advance)
        self._done = done
        pairs = self._pairs()
        collectives = self._collectives()
        # Measure again: another process may have delayed the device the first time.
        better = max(worker.best_flops, best_flops(groups.device))
        worker = worker.model_copy(update={"best_flops": better})
        workers = groups.collect("devices", worker.model_dump_json())
        profile = self._profile()
        if groups.placement.rank == 0:
            probed = self._probed(workers, pairs, collectives)
            found = {"profile": profile, "kernels": kernels, "kernels_cached": from_cache}
            write_probed(self._run, probed.model_copy(update=found))

    def _profile(self) -> TrainingProfile | None:
        job = self._run.job
        if job.train is None:
            return None
        # This loads the dry run, which a probe without a model does not need.
        from paceline.train.probing.model_timing import training_profile  # noqa: PLC0415

        return training_profile(job.train, job.function, job.arguments, job.folder, self._groups)

    def _pairs(self) -> list[PairRate]:
        placement = self._groups.placement
        devices = placement.local_workers
        node = placement.rank // devices
        found = []
        for partner in self._rounds:
            mate = partner.get(node) if placement.leads_node else None
            own = pair_rate(self._groups, None if mate is None else mate * devices)
            rates = shared(self._groups, own)
            found += [
                PairRate(nodes=(one, other), bytes_per_second=rates[one * devices])
                for one, other in partner.items()
                if one < other
            ]
            self._advance()
        return found

    def _collectives(self) -> list[CollectiveTime]:
        found = []
        for each in self._groupings:
            for times in collective_times(self._groups, each):
                found += times
                self._advance()
        return found

    def _advance(self) -> None:
        self._done += 1
        if self._groups.placement.rank == 0:
            note_done(self._run, self._done / self._planned)

    def _probed(
        self, workers: list[str], pairs: list[PairRate], collectives: list[CollectiveTime]
    ) -> Probed:
        groups, placement = self._groups, self._groups.placement
        return Probed(
            nodes=placement.nodes,
            devices_per_node=placement.local_workers,
            backend=groups.backend,
            interface=groups.interface.name if groups.interface else "none",
            workers=tuple(ProbedWorker.model_validate_json(each) for each in workers),
            collectives=tuple(collectives),
            pairs=tuple(pairs),
        )
