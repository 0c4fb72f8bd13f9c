"""newcomer: learn from everyone; serve the newcomer.

The public names are imported on first use, so that `import newcomer` and `newcomer --help` stay quick.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # that of `typing`, whose import would take most of the time that this one takes

__version__ = "0.2.0"

# public name -> module that defines it
_HOME = {
    "Logs": "logs",
    "read_logs": "logs",
    "fit": "_fit",
    "Run": "run_settings",
    "check": "checks.check",
    "Model": "model",
    "load": "model",
    "ProBALLUCB": "policies.proball",
    "ProBALLTS": "policies.proball",
    "LocalUCB": "policies.local_ucb",
    "LinUCB": "policies.linear",
    "LinTS": "policies.linear",
    "PriorTS": "policies.prior",
    "PriorUCB": "policies.prior",
    "EmpiricalArms": "policies.baselines",
    "Uniform": "policies.baselines",
    "PopulationMean": "policies.baselines",
    "MUCB": "policies.finite_models",
    "MmUCB": "policies.finite_models",
    "MTS": "policies.finite_models",
    "MmTS": "policies.mixtures",
    "MixTS": "policies.mixtures",
    "play": "simulate",
    "summary": "simulate",
    "evaluate": "evaluation.evaluate",
    "report": "reporting.report",
    "plot": "charts.plot",
    "Client": "serve.client",
    "AsyncClient": "serve.client",
    "NewcomerError": "errors",
    "LogsError": "errors",
    "ModelError": "errors",
    "PolicyError": "errors",
    "OutputError": "errors",
    "StoreError": "errors",
    "MissingExtra": "errors",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'newcomer' has no attribute '{name}'")
    value = getattr(import_module(f"newcomer.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from newcomer._fit import fit as fit
    from newcomer.charts.plot import plot as plot
    from newcomer.checks.check import check as check
    from newcomer.errors import LogsError as LogsError
    from newcomer.errors import MissingExtra as MissingExtra
    from newcomer.errors import ModelError as ModelError
    from newcomer.errors import NewcomerError as NewcomerError
    from newcomer.errors import OutputError as OutputError
    from newcomer.errors import PolicyError as PolicyError
    from newcomer.errors import StoreError as StoreError
    from newcomer.evaluation.evaluate import evaluate as evaluate
    from newcomer.logs import Logs as Logs
    from newcomer.logs import read_logs as read_logs
    from newcomer.model import Model as Model
    from newcomer.model import load as load
    from newcomer.policies.baselines import EmpiricalArms as EmpiricalArms
    from newcomer.policies.baselines import PopulationMean as PopulationMean
    from newcomer.policies.baselines import Uniform as Uniform
    from newcomer.policies.finite_models import MTS as MTS
    from newcomer.policies.finite_models import MUCB as MUCB
    from newcomer.policies.finite_models import MmUCB as MmUCB
    from newcomer.policies.linear import LinTS as LinTS
    from newcomer.policies.linear import LinUCB as LinUCB
    from newcomer.policies.local_ucb import LocalUCB as LocalUCB
    from newcomer.policies.mixtures import MixTS as MixTS
    from newcomer.policies.mixtures import MmTS as MmTS
    from newcomer.policies.prior import PriorTS as PriorTS
    from newcomer.policies.prior import PriorUCB as PriorUCB
    from newcomer.policies.proball import ProBALLTS as ProBALLTS
    from newcomer.policies.proball import ProBALLUCB as ProBALLUCB
    from newcomer.reporting.report import report as report
    from newcomer.run_settings import Run as Run
    from newcomer.serve.client import AsyncClient as AsyncClient
    from newcomer.serve.client import Client as Client
    from newcomer.simulate import play as play
    from newcomer.simulate import summary as summary
