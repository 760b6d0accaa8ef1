"""A Celery application that is configured by its installation and by nothing else.

Celery asks the environment before an application's own configuration: `CELERY_BROKER_URL`, `CELERY_BROKER_READ_URL`,
`CELERY_BROKER_WRITE_URL` and `CELERY_RESULT_BACKEND` replace its addresses, `CELERY_LOADER` and `CELERY_CONFIG_MODULE`
bring in another project's code, and `DJANGO_SETTINGS_MODULE` has it set up a Django project. A shell that serves
another Celery project has such variables set; read here, they would send this installation's messages to that
project's broker.
"""

from __future__ import annotations

from typing import Any

from celery.app.base import Celery
from celery.app.utils import Settings
from celery.loaders.app import AppLoader
from typing_extensions import override


class Configuration(Settings):
    """Celery's settings, with the addresses as they are configured."""

    @property
    @override
    def broker_url(self) -> Any:
        """The address of the broker."""
        return self.get("broker_url")

    @property
    @override
    def broker_read_url(self) -> Any:
        """The same address."""
        return self.broker_url

    @property
    @override
    def broker_write_url(self) -> Any:
        """The same address."""
        return self.broker_url

    @property
    @override
    def result_backend(self) -> Any:
        """The result backend, if there is one."""
        return self.get("result_backend")


class Loader(AppLoader):
    """A loader that reads no configuration module."""

    @override
    def read_configuration(self, env: str = "") -> dict[str, Any]:
        """Nothing."""
        return {}


class Application(Celery):
    """A Celery application that no variable of the environment configures."""

    def __init__(self, name: str, *, set_as_current: bool = True) -> None:
        """Make it without any configuration."""
        super().__init__(name, loader=Loader, fixups=[], set_as_current=set_as_current)

    @override
    def on_init(self) -> None:
        """Exchange the class of the settings, an object that Celery makes by itself and keeps for good."""
        # Plain assignment would make it a setting.
        object.__setattr__(self.conf, "__class__", Configuration)
