"""Where the rows are: full-batch InfoMax needs only sums over rows, and an engine adds them up."""

from rpim.engine.memory import AddUp, Block, InMemory, Room
from rpim.engine.streamed import Streamed

Engine = InMemory | Streamed

__all__ = ["AddUp", "Block", "Engine", "InMemory", "Room", "Streamed"]
