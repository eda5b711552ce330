"""One file per system, all with the contract of `DiscoveryEstimator`."""

from rpim.methods.gcd import GCD
from rpim.methods.kmeans import KMeans
from rpim.methods.label_spreading import SpreadLabels
from rpim.methods.orca import ORCA
from rpim.methods.pim import PIM
from rpim.methods.rankstats import RankStats
from rpim.methods.rim import RIM
from rpim.methods.rpim import RPIM
from rpim.methods.self_training import SelfTraining
from rpim.methods.tim import TIM
from rpim.methods.umap_hdbscan import UMAPHDBSCAN
from rpim.methods.uno import UNO

__all__ = [
    "GCD", "ORCA", "PIM", "RIM", "RPIM", "TIM", "UMAPHDBSCAN", "UNO", "KMeans", "RankStats", "SelfTraining",
    "SpreadLabels",
]  # fmt: skip
