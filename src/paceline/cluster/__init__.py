"""Machines and links: interfaces, file systems, the catalog, collectives, probes."""
