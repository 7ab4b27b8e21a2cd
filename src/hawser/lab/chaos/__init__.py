"""Faults, made on purpose: on worker processes, servers, the wire between them, clocks, disks and memory.

All of it on this machine, each undone in the end, and by the same plan for the same seed.
"""
