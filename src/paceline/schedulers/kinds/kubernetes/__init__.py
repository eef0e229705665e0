"""Kubernetes."""

from paceline.schedulers.kinds.kubernetes.kubernetes import Kubernetes

SCHEDULER = Kubernetes()
