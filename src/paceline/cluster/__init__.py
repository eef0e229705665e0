"""Machines and links: interfaces, file systems, processes, the catalog, collectives."""
