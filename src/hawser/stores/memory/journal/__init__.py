"""A journal for the memory store: every call that changes it is on disk before it is answered.

The journal is a folder. `log-N` holds calls in the order in which they were made, `image-N` the state after the log with the same
number. To open the journal is to load the newest image and to make the calls of the later logs again.
"""

from hawser.stores.memory.journal.store import JournaledStore

__all__ = ["JournaledStore"]
