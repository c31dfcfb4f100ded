"""Loggers that need a package which may not be installed. Free of torch."""

from __future__ import annotations

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import is_installed
from domainbert.training.config import LoggerName

_EXTRAS = ("wandb", "mlflow")  # both are called like their package


def need_logger(name: LoggerName) -> None:
    """`DomainbertError` if a logger's package is not installed; it names the extra."""
    if name in _EXTRAS and not is_installed(name):
        raise DomainbertError(f"loggers: {name} is not installed; pip install 'domainbert[{name}]'")
