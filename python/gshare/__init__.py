"""Functions as pipelines: a graph of modules, such as a model with its pre- and postprocessing, which runs whole on one GPU or as stages on
several slices. Requires Linux and Python 3.9 but no packages; PyTorch and NumPy are used if the components use them. See docs/pipelines.md.
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
