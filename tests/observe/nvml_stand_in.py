"""A stand-in for NVML (the module `pynvml`), since there is no GPU here to ask.

It has the functions that are used, with the signatures and units of nvidia-ml-py, and devices whose
clock the test moves.
"""

from dataclasses import dataclass
from types import SimpleNamespace


class NVMLError(Exception):
    """As pynvml's: what a device does not support, or nobody may do."""


@dataclass
class StandInDevice:
    """A device with made-up figures."""

    name: str = "Stand-in GPU"
    uuid: str = "GPU-0000"
    busy_percent: int = 90
    used_bytes: int = 20_000_000_000
    milliwatts: int = 400_000
    millijoules: int = 5_000_000_000
    counts_energy: bool = True
    answers: bool = True
    limit_milliwatts: int = 700_000
    may_limit: bool = True


class StandInNvml:
    """The module, as far as it is used."""

    NVMLError = NVMLError

    def __init__(self, *devices: StandInDevice, driver: bool = True) -> None:
        self._devices = devices
        self._driver = driver

    def nvmlInit(self) -> None:
        if not self._driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self._devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> StandInDevice:
        if index >= len(self._devices):
            raise NVMLError("Invalid Argument")
        return self._devices[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> StandInDevice:
        for device in self._devices:
            if device.uuid == uuid:
                return device
        raise NVMLError("Not Found")

    def nvmlDeviceGetName(self, handle: StandInDevice) -> str:
        return handle.name

    def nvmlDeviceGetUtilizationRates(self, handle: StandInDevice) -> SimpleNamespace:
        self._refuse_lost(handle)
        return SimpleNamespace(gpu=handle.busy_percent, memory=10)

    def nvmlDeviceGetMemoryInfo(self, handle: StandInDevice) -> SimpleNamespace:
        self._refuse_lost(handle)
        return SimpleNamespace(total=80_000_000_000, used=handle.used_bytes, free=0)

    def nvmlDeviceGetPowerUsage(self, handle: StandInDevice) -> int:
        self._refuse_lost(handle)
        return handle.milliwatts

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: StandInDevice) -> int:
        self._refuse_lost(handle)
        if not handle.counts_energy:
            raise NVMLError("Not Supported")
        return handle.millijoules

    def nvmlDeviceGetPowerManagementLimit(self, handle: StandInDevice) -> int:
        return handle.limit_milliwatts

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: StandInDevice) -> list[int]:
        self._refuse_lost(handle)
        return [200_000, 700_000]

    def nvmlDeviceSetPowerManagementLimit(self, handle: StandInDevice, limit: int) -> None:
        if not handle.may_limit:
            raise NVMLError("Insufficient Permissions")
        handle.limit_milliwatts = limit

    @staticmethod
    def _refuse_lost(handle: StandInDevice) -> None:
        if not handle.answers:
            raise NVMLError("GPU is lost")
