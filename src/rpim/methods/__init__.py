"""One file per system, all with the contract of `DiscoveryEstimator`."""

from rpim.methods.pim import PIM
from rpim.methods.rpim import RPIM

__all__ = ["PIM", "RPIM"]
