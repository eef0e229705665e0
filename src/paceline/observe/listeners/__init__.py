"""Other tools that are told of a run: one file each, one dictionary to find them.

They follow the run's folder from a process of its own, so that none of them can slow training or
end it.
"""

from paceline.observe.listeners.audience import LISTENERS, Audience, check_listener

__all__ = ["LISTENERS", "Audience", "check_listener"]
