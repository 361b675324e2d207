"""Functions as pipelines: models with their pre- and postprocessing as a graph of modules, which runs whole on one GPU or as stages on
several slices. It needs Python 3.9, Linux, and no packages; PyTorch and NumPy are used where the components use them. See docs/pipelines.md.
"""

from .measure import build
from .errors import Closed, DeadlineExceeded, Error, GraphError, NodeError, NotTransferable, StageLost
from .graph import Symbol
from .module import Module
from .pipeline import Pipeline
from .runner import Runner
from .start import run

__all__ = [
    "Closed", "DeadlineExceeded", "Error", "GraphError", "Module", "NodeError", "NotTransferable", "Pipeline", "Runner", "StageLost", "Symbol", "build",
    "run",
]
