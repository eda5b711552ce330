"""Where the rows are: full-batch InfoMax needs only sums over rows, and an engine adds them up."""

from rpim.engine.memory import Block, InMemory, Room

__all__ = ["Block", "InMemory", "Room"]
