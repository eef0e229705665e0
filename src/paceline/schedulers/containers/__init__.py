"""Container runtimes, one file each with a `RUNTIME`; `container_runtime` is their protocol."""
